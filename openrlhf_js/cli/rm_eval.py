"""`openrlhf-js rm eval`: measures a reward model on preferences that it has not seen."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from openrlhf_js.cli.progress import Bar
from openrlhf_js.cli.rm_eval_flags import PROGRAM, parse
from openrlhf_js.reward_model.tokens import TOKEN_VARIABLE

if TYPE_CHECKING:  # what needs torch is imported once the flags are right
    from openrlhf_js.reward_model.held_out import HeldOut
    from openrlhf_js.reward_model.score_file import ScoreFile

NAME_WIDTH = 28  # of a subset; what is longer ends in an ellipsis


def main(argv: list[str] | None = None) -> int:
    """Runs the program from its command line.

    Args:
        argv: the arguments, without the program's name; the process's own if None.

    Returns:
        The exit status: 0 done, 1 a reward cannot be had, 2 what was given cannot be used, 130
        stopped. Wrong flags exit with 2.
    """
    args = parse(argv)
    errors = Console(stderr=True)
    from openrlhf_js.reward_model.scoring import ScoringFailed

    try:
        work(args, Console(), errors)
    except KeyboardInterrupt:
        return _fail(errors, "stopped; the same call goes on from here", 130)
    except ScoringFailed as error:
        return _fail(errors, f"{error}. What has been scored is kept; call again to go on", 1)
    except ValueError as error:
        return _fail(errors, str(error), 2)
    except OSError as error:
        return _fail(errors, f"{error.filename or args.file}: {error.strerror or error}", 2)
    return 0


def _fail(errors: Console, message: str, status: int) -> int:
    for line in message.splitlines():
        errors.print(Text(f"{PROGRAM}: {line}"), soft_wrap=True)
    return status


def work(args: argparse.Namespace, console: Console, errors: Console) -> None:
    """Scores what has no rewards yet, then writes and shows what they say."""
    from openrlhf_js.report import reward_model as report
    from openrlhf_js.reward_model.evaluate import evaluate
    from openrlhf_js.reward_model.held_out import held_out
    from openrlhf_js.reward_model.preferences import read_pairs
    from openrlhf_js.reward_model.score_file import ScoreFile

    pairs = read_pairs(
        args.file, args.prompt_key, args.chosen_key, args.rejected_key, args.subset_key
    )
    args.file.stat()  # before a model is looked for
    if args.model:
        _check_model(args)
    tokenizer = _tokenizer(args.tokenizer or args.model)
    template = tokenizer.apply_chat_template if args.apply_chat_template else None
    data = held_out(pairs, template, args.input_template)
    identity = _identity(args, data, errors)
    folder = args.output or Path("runs", f"rm-eval-{_short_hash(identity)}")
    folder.mkdir(parents=True, exist_ok=True)
    with ScoreFile(folder / "scores.jsonl", identity, len(data.texts)) as file:
        scorer = _score_with_model if args.model else _score_with_servers
        description = scorer(args, data, file, errors)
        rewards = [file.rewards[pair] for pair in range(len(data.texts))]

    def lengths(texts: Any) -> list[int]:
        if tokenizer is None:
            return [len(text) for text in texts]
        return [len(ids) for ids in tokenizer(list(texts), add_special_tokens=False).input_ids]

    scored = data.scored(rewards, lengths, "tokens" if tokenizer else "characters")
    found = {
        "model": args.model or " ".join(args.url),
        "file": str(args.file),
        "identity": identity,
        "description": description,
        **evaluate(scored),
    }
    text = json.dumps(found, indent=2, allow_nan=False)
    (folder / "evaluation.json").write_text(text + "\n", encoding="utf-8")
    (folder / "report.html").write_text(report.page(found), encoding="utf-8")
    _show(console, ("", "", ""), report.rows(found))
    if found["subsets"]:
        _show(console, report.SUBSET_COLUMNS, report.subset_rows(found))
    for sentence in report.in_words(found):
        console.print(Text(sentence))
    console.print(Text(f"The page with pictures: {folder / 'report.html'}"), soft_wrap=True)


def _show(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(box=None, show_header=any(columns), pad_edge=False)
    for place, column in enumerate(columns):
        name = place == 0  # which stays on a line of its own
        table.add_column(column, no_wrap=name, max_width=NAME_WIDTH if name else None)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _check_model(args: argparse.Namespace) -> None:
    """Raises ValueError, one line for each problem of the checkpoint."""
    from openrlhf_js.reward_model.checkpoint import checkpoint_problems
    from openrlhf_js.reward_model.model import local_folder

    folder = local_folder(args.model)
    from_model = args.apply_chat_template and not args.tokenizer
    problems = checkpoint_problems(folder, args.value_head_prefix, messages=from_model)
    if problems:
        raise ValueError("\n".join(problems))


def _tokenizer(name: str | None) -> Any:
    """The tokenizer of that name or folder; None if there is no name."""
    if name is None:
        return None
    from transformers import AutoTokenizer

    from openrlhf_js.reward_model.model import local_folder

    folder = local_folder(name)
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{name} has no tokenizer that can be loaded: {first}") from error


def _identity(args: argparse.Namespace, data: HeldOut, errors: Console) -> dict[str, Any]:
    """What must be the same for rewards to be gone on with."""
    found: dict[str, Any] = {"texts": data.hash()}
    if args.url:
        return {**found, "servers": sorted(args.url)}
    from openrlhf_js.reward_model.model import local_folder
    from openrlhf_js.reward_model.score_file import hash_of_model, model_files

    folder = local_folder(args.model)
    size = sum(path.stat().st_size for path in model_files(folder))
    with Bar("reading the model", size, errors, "MB") as bar:
        found["model"] = hash_of_model(folder, lambda done: bar.update(done, done // 10**6))
    options = ("max_len", "dtype", "value_head_prefix")
    return {**found, **{name: getattr(args, name) for name in options}}


def _short_hash(identity: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]


def _score_with_model(
    args: argparse.Namespace, data: HeldOut, file: ScoreFile, errors: Console
) -> dict[str, Any]:
    import torch

    from openrlhf_js.reward_model.model import RewardModel
    from openrlhf_js.reward_model.scoring import score_pairs

    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    # Not normalised: the difference of two rewards would no longer be that of training.
    model = RewardModel.load(
        args.model, args.max_len, device, args.dtype, False, args.value_head_prefix
    )

    def scorer(texts: Any) -> list[float]:
        scores = [float("nan")] * len(texts)
        for indices, values in model.score_batches(texts):
            for index, value in zip(indices, values, strict=True):
                scores[index] = value
        return scores

    with Bar("scoring", len(data.texts), errors, "pairs") as bar:
        score_pairs(
            data.texts, scorer, file, args.pairs_at_once, lambda done: bar.update(done, done)
        )
    return asdict(model.description)


def _score_with_servers(
    args: argparse.Namespace, data: HeldOut, file: ScoreFile, errors: Console
) -> dict[str, Any]:
    from openrlhf_js.reward_model.remote_scoring import Servers

    servers = Servers(args.url, timeout_seconds=args.timeout, token=os.environ.get(TOKEN_VARIABLE))
    with Bar("scoring", len(data.texts), errors, "pairs") as bar:
        told = asyncio.run(
            servers.score_pairs(
                data.texts,
                file,
                at_once=args.pairs_at_once,
                in_flight=args.in_flight,
                progress=lambda done: bar.update(done, done),
            )
        )
    return {"servers": args.url, **told._asdict()}


if __name__ == "__main__":
    sys.exit(main())
