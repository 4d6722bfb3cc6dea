"""From the lab's flags to a folder of samples: prompts, reward function, engine, then sampling."""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from openrlhf_js.cli.lab_flags import PROMPTS
from openrlhf_js.cli.progress import Bar
from openrlhf_js.cli.sampling_flags import device_of, dtype_of, engine_of, loaded, policy_of
from openrlhf_js.cli.saying import say
from openrlhf_js.data.writing import items, options_of, row
from openrlhf_js.lab.results import versions
from openrlhf_js.lab.rewards import Grader, file_grader, task_grader
from openrlhf_js.lab.sampling import grade_anew, plan, sample
from openrlhf_js.lab.store import Store
from openrlhf_js.reward_model.checkpoint import local_folder
from openrlhf_js.reward_model.score_file import hash_of_model
from openrlhf_js.sampling.engines import ROWS
from openrlhf_js.sampling.model_files import model_files
from openrlhf_js.sampling.prompts import Form, Row, asked, check_lengths, drawn, rows_of
from openrlhf_js.tasks import TASKS
from openrlhf_js.tasks.base import Generated

TASK_POOL = 1000  # problems that a task makes, of which some are drawn


def sample_missing(args: argparse.Namespace, responses: int, errors: Console) -> int:
    """Samples what --out lacks of what the flags ask for, and returns the number of prompts.

    Args:
        args: the flags.
        responses: to each prompt.
        errors: shows progress.

    Raises:
        ValueError: what was given cannot be used. RewardFailed: a response has no reward.
        OSError: a file cannot be read or written.
    """
    grader = task_grader(args.task) if args.reward is None else file_grader(args.reward)
    rows, source = _rows(args, errors)
    folder = local_folder(args.model)
    files = model_files(folder)
    tokenizer = files.tokenizer
    form = Form(
        args.input_key,
        args.label_key or None,
        args.group_key,
        args.apply_chat_template or args.task is not None,
        args.input_template,
    )
    wanted = asked(drawn(rows, args.prompts_count, PROMPTS, args.seed), form, tokenizer)
    check_lengths(wanted, args.max_new_tokens, files.context)
    with Store(args.out, _settings(args, folder, source, form, grader)) as store:
        prompts = store.record(wanted)

        def decode(tokens: list[int]) -> str:
            return str(tokenizer.decode(tokens, skip_special_tokens=False))

        with Bar("grading", 1, errors, "files") as bar:
            anew = grade_anew(
                store, prompts, decode, grader, lambda done, of: bar.update(done / of, done)
            )
        if anew:
            say(errors, f"graded {anew:,} responses anew, with {grader.name}")
        engine_name = engine_of(args)
        rows_at_once = args.batch_size or ROWS[engine_name]
        pieces = plan(store, len(wanted), responses, rows_at_once)
        if not pieces:
            return len(wanted)
        longest = max(len(each.tokens) for each in prompts)
        policy = policy_of(args, files, longest, args.temperature, args.top_p, args.max_new_tokens)
        total = sum(piece.prompts * piece.draws for piece in pieces)
        say(errors, f"sampling {total:,} responses with {engine_name} on {policy.device} ...")
        engine = loaded(engine_name, policy)
        with Bar("sampling", total, errors, "responses") as bar:
            sample(
                store,
                pieces,
                prompts,
                engine,
                policy,
                decode,
                grader,
                args.seed,
                lambda done, _: bar.update(done, done),
            )
    return len(wanted)


def _rows(args: argparse.Namespace, errors: Console) -> tuple[list[Row], dict[str, str]]:
    """The rows of the data, with their name and fingerprint."""
    if args.prompts:
        digest = hashlib.sha256(args.prompts.read_bytes()).hexdigest()
        return rows_of(args.prompts), {"prompts": str(args.prompts), "prompts_sha256": digest}
    task = TASKS[args.task]
    made = isinstance(task, Generated)
    count = max(TASK_POOL, args.prompts_count or 0) if made else None
    with Bar(f"building {args.task}", 1, errors) as bar:
        found = items(task, args.split, count, args.seed, options_of(task), bar.update)
        rows = [row(task, item) for item in found]
    digest = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
    return rows, {"prompts": f"task {args.task}, {args.split}", "prompts_sha256": digest}


def _settings(
    args: argparse.Namespace, folder: Path, source: dict[str, str], form: Form, grader: Grader
) -> dict[str, Any]:
    """What the samples depend on; `lab.store.NOTES` says what of it may change."""
    return {
        "model": str(folder),
        "model_sha256": hash_of_model(folder),
        **source,
        **form.__dict__,
        "reward": grader.name,
        "reward_sha256": grader.sha256,
        "temperature": args.temperature,
        "top_p": args.top_p,
        "max_new_tokens": args.max_new_tokens,
        "seed": args.seed,
        "engine": engine_of(args),
        "dtype": dtype_of(args),
        "device": device_of(args),
        "versions": versions(),
    }
