"""`openrlhf-js rm train|eval|serve`: reward models, from preferences to a served score."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import tyro

from openrlhf_js.common.console import complain, progress, say, table
from openrlhf_js.common.files import atomic_write, write_json
from openrlhf_js.common.model_folders import TRUSTED
from openrlhf_js.common.settings import Field, Settings, choose, parse, program, run
from openrlhf_js.reward_model import TOKEN_VARIABLE
from openrlhf_js.reward_model.check import KINDS, Report
from openrlhf_js.reward_model.preferences import Keys, PreferencePair, read_pairs

if TYPE_CHECKING:  # torch: not for --help
    from openrlhf_js.reward_model.model import RewardModel

PROGRAMS = {
    "train": ("openrlhf_js.cli.rm:train", "train on preferences (OpenRLHF's flags)"),
    "eval": ("openrlhf_js.cli.rm:evaluate", "measure on held-out preferences"),
    "serve": ("openrlhf_js.cli.rm:serve", "serve the scores over HTTP"),
}
EVAL = "openrlhf-js rm eval"
SERVE = "openrlhf-js rm serve"
Dtype = Literal["bf16", "fp16", "float32"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one of the programs, and returns its exit status."""
    return choose("openrlhf-js rm", PROGRAMS, sys.argv[1:] if argv is None else argv)


class RewardEvalSettings(Settings):
    """Measure a reward model on preferences that it has not seen.

    Accuracy with an interval clustered by prompt, also by subset; calibration; the influence of
    length; and the mean and std that normalise rewards. The same command resumes. The folder gets
    scores.jsonl (rewards as they come), evaluation.json (every figure) and report.html (pictures).
    """

    file: tyro.conf.Positional[Path] = Field(description="JSON, JSON lines, CSV or Parquet")
    model: str = Field(description="reward model: a folder, or a name on the hub")
    prompt_key: str | None = Field(None, description="of the prompt; default: in both sides")
    chosen_key: str = Field("chosen", description="column of the preferred side")
    rejected_key: str = Field("rejected", description="column of the other side")
    subset_key: str = Field("subset", description="column of groups to report separately")
    apply_chat_template: bool = Field(False, description="the columns hold messages")
    input_template: str | None = Field(None, description="such as 'User: {}\\nAssistant: '")
    max_len: int = Field(default=2048, ge=1, description="tokens of a text, as in training")
    dtype: Dtype = Field("bf16", description="of the weights")
    device: str | None = Field(None, description="such as cuda; default: a GPU if there is one")
    value_head_prefix: str = Field("score", description="if config.json gives none")
    trust_remote_code: bool = Field(False, description=TRUSTED)
    out: Path | None = Field(None, description="default: runs/rm-eval-<hash of what decides>")


def evaluate(argv: Sequence[str]) -> int:
    """`openrlhf-js rm eval`."""
    settings = parse(RewardEvalSettings, EVAL, argv)
    from openrlhf_js.reward_model.evaluate import ScoringFailed

    return run(EVAL, partial(_evaluate, settings), resumes=True, failures={ScoringFailed: str})


def _evaluate(settings: RewardEvalSettings) -> None:
    from openrlhf_js.common.model_folders import model_folder
    from openrlhf_js.reward_model import evaluate as evaluation
    from openrlhf_js.sampling.models import model_fingerprint

    settings.file.stat()  # before a model is downloaded
    model_at = model_folder(settings.model, settings.trust_remote_code)
    tokenizer = _load_tokenizer(settings, model_at)
    pairs = _read_pairs(settings)
    template = tokenizer.apply_chat_template if settings.apply_chat_template else None
    texts = evaluation.texts_of(pairs, template, settings.input_template)
    identity = {
        "texts": _digest(texts),
        "model": model_fingerprint(model_at),
        "max_len": settings.max_len,
        "dtype": settings.dtype,
        "value_head_prefix": settings.value_head_prefix,
    }
    folder = settings.out or Path("runs", f"rm-eval-{_digest(identity)[:12]}")
    scored = _score(settings, model_at, texts, identity, folder)
    results = {
        "model": settings.model,
        "file": str(settings.file),
        "settings": settings.manifest(),
        "identity": identity,
        "description": {**scored.description, "model": settings.model},
        "repetitions": evaluation.repetitions(texts),
        **evaluation.evaluate(
            scored.rewards,
            lengths=evaluation.response_lengths(tokenizer, pairs),
            prompts=[evaluation.prompt_of(pair) for pair in pairs],
            subsets=[pair.subset for pair in pairs],
        ),
    }
    _show_results(results, folder)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _load_tokenizer(settings: RewardEvalSettings, folder: Path) -> Any:
    from transformers import AutoTokenizer

    from openrlhf_js.reward_model.checkpoint import tokenizer_problems

    problems = tokenizer_problems(
        folder,
        messages=settings.apply_chat_template,
        trust_remote_code=settings.trust_remote_code,
    )
    if problems:
        raise ValueError("\n".join(problems))
    return AutoTokenizer.from_pretrained(folder, trust_remote_code=settings.trust_remote_code)


def _read_pairs(settings: RewardEvalSettings) -> list[PreferencePair]:
    """The pairs of the file; warns where they lack the prompt that the file has."""
    keys = Keys(
        prompt=settings.prompt_key,
        chosen=settings.chosen_key,
        rejected=settings.rejected_key,
        subset=settings.subset_key,
    )
    pairs = list(read_pairs(settings.file, keys))
    unread = sum(pair.unread_prompt for pair in pairs)
    if unread:
        say(
            f"warning: {unread:,} of {len(pairs):,} pairs are scored without their prompt: "
            "--prompt_key prompt adds that column",
            error=True,
            style="yellow",
        )
    return pairs


class Scored(NamedTuple):
    """The rewards (pairs, 2) of chosen and rejected texts, and the model that gave them."""

    rewards: Any
    description: dict[str, Any]


def _score(
    settings: RewardEvalSettings,
    model_at: Path,
    texts: Sequence[tuple[str, str]],
    identity: dict[str, Any],
    folder: Path,
) -> Scored:
    """Scores the texts that scores.jsonl in the folder does not have, and reads all scores."""
    from openrlhf_js.common.store import Store
    from openrlhf_js.reward_model.evaluate import score_pairs
    from openrlhf_js.reward_model.model import RewardModel

    with Store(folder / "scores.jsonl", identity, ("pair",)) as store:
        model = RewardModel.load(
            model_at,
            max_len=settings.max_len,
            device=settings.device,
            dtype=settings.dtype,
            normalize=False,  # margins are in the units of training
            value_head_prefix=settings.value_head_prefix,
            trust_remote_code=settings.trust_remote_code,
        )
        with progress("scoring", len(texts), "pairs") as bar:
            rewards = score_pairs(texts, model.scores, store, progress=bar.update)
    return Scored(rewards, model.description)


def _show_results(results: dict[str, Any], folder: Path) -> None:
    """Writes evaluation.json and report.html, and prints the figures."""
    from openrlhf_js.report import reward_model as report

    write_json(folder / "evaluation.json", results)
    with atomic_write(folder / "report.html") as file:
        file.write(report.page(results).encode())
    table(report.figures(results))
    table(report.subsets(results))
    for sentence in report.in_words(results):
        say(sentence)
    say(f"The page with pictures: {folder / 'report.html'}")


class _RewardFlags(Settings):
    model_name_or_path: str = Field(description="a folder, or a name on the hub")
    normalize_enable: bool = Field(False, description="serve (reward - mean) / std of config.json")


class _DataFlags(Settings):
    max_len: int = Field(default=2048, ge=1, description="tokens of a text, as in training")


class _DeepSpeedFlags(Settings):
    value_head_prefix: str = Field(default="score", description="if config.json gives none")
    param_dtype: Dtype = Field(default="bf16", description="of the weights")
    attn_implementation: str = Field(default="sdpa", description="as transformers names it")


class RewardServeSettings(Settings):
    """Serve a reward model over HTTP, as OpenRLHF asks for rewards: POST {"query": [texts]} to
    /get_reward. The scores are those of training. Flags of OpenRLHF's own server keep their names.
    """

    reward: _RewardFlags
    data: _DataFlags = _DataFlags()
    ds: _DeepSpeedFlags = _DeepSpeedFlags()
    device: str | None = Field(None, description="such as cuda:1; default: a GPU if there is one")
    dry_run: bool = Field(False, description="check everything but the weights, show it, and end")
    batch_size: int = Field(64, ge=1, description="texts in the model at a time")
    max_tokens_per_batch: int = Field(16384, ge=1, description="tokens, with padding")
    max_wait_ms: float = Field(3.0, ge=0, lt=1e6, description="for a batch to fill up")
    queue_size: int = Field(8192, ge=1, description="texts that may wait; more get status 503")
    host: str = Field("127.0.0.1", description="one that others can reach needs a token")
    port: int = Field(5000, ge=0, le=65535, description="0: any that is free")
    token_file: Path | None = Field(None, description=f"of the token; default: ${TOKEN_VARIABLE}")
    drain_seconds: int = Field(60, ge=1, description="to answer what is left at SIGTERM")
    trust_remote_code: bool = Field(False, description=TRUSTED)


def _serve(settings: RewardServeSettings) -> None:
    from openrlhf_js.reward_model import server

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    token = server.read_token(os.environ.get(TOKEN_VARIABLE), settings.token_file)
    if token is None and not server.is_loopback(settings.host):
        raise ValueError(
            f"--host {settings.host} can be reached from other machines, so clients must send a "
            f"token: set {TOKEN_VARIABLE}, or --token_file"
        )
    with server.bind(settings.host, settings.port) as listener:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        url = f"http://{host}:{listener.getsockname()[1]}/get_reward"
        if settings.dry_run:
            _check_served_model(settings)
            say(f"would serve on {url}, {'with' if token else 'without'} a token")
            return
        model = _load_served_model(settings)
        say(json.dumps(model.description, indent=2))
        app = server.make_app(
            partial(
                model.scores,
                max_tokens=settings.max_tokens_per_batch,
                max_texts=settings.batch_size,
            ),
            model.description,
            token,
            server.Batching(
                batch_size=settings.batch_size,
                max_wait_seconds=settings.max_wait_ms / 1000,
                queue_size=settings.queue_size,
            ),
        )
        gc.collect()
        gc.freeze()  # what is loaded: to look through it stops all requests for 0.3 s
        listener.listen()
        print(f"serving on {url}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn repeats the signal at its end
            server.make_server(app, settings.drain_seconds).run(sockets=[listener])


serve = partial(program, SERVE, RewardServeSettings, _serve)


def _check_served_model(settings: RewardServeSettings) -> None:
    """Prints the settings; ValueError if the model, apart from its weights, cannot be served."""
    from openrlhf_js.common.model_folders import model_folder
    from openrlhf_js.reward_model.checkpoint import checkpoint_problems

    say(json.dumps(settings.manifest(), indent=2))
    problems = checkpoint_problems(
        model_folder(settings.reward.model_name_or_path, settings.trust_remote_code),
        settings.ds.value_head_prefix,
        normalize=settings.reward.normalize_enable,
        trust_remote_code=settings.trust_remote_code,
    )
    if problems:
        raise ValueError("\n".join(problems))


def _load_served_model(settings: RewardServeSettings) -> RewardModel:
    from openrlhf_js.reward_model.model import RewardModel

    model = RewardModel.load(
        settings.reward.model_name_or_path,
        max_len=settings.data.max_len,
        device=settings.device,
        dtype=settings.ds.param_dtype,
        normalize=settings.reward.normalize_enable,
        value_head_prefix=settings.ds.value_head_prefix,
        attention=settings.ds.attn_implementation,
        trust_remote_code=settings.trust_remote_code,
    )
    model.score(["a text"])  # the first one is slow
    return model


def train(argv: Sequence[str]) -> int:
    """`openrlhf-js rm train`: checks every pair, then runs OpenRLHF's reward model training."""
    from openrlhf_js.plugin import reward_training
    from openrlhf_js.plugin.flags.parser import flag_values, validate_upstream
    from openrlhf_js.plugin.run.device import is_first, prepare_device
    from openrlhf_js.plugin.upstream import BadInput, UpstreamMismatch

    flat: dict[str, Any] = {}
    try:
        parser = reward_training.reward_parser()
        args = parser.parse_args(argv)
        flat = vars(args)
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        device = prepare_device(flat["js.device"])
        if is_first():
            reward_training.check_flags(flat)
            _check_pairs(flat)
        checked = validate_upstream(args, reward_training.PROGRAM)
        if not flat["js.dry_run"]:
            reward_training.train(checked, device)
        elif is_first():
            print("\n".join(flag_values(args, parser)))
        return 0
    except BadInput as error:
        return complain(str(error), 2)
    except UpstreamMismatch as error:
        return complain(str(error), 1)
    except KeyboardInterrupt:
        pass  # reported below, once upstream's progress bars are gone with its frames
    return complain(f"interrupted; {_how_to_resume(flat)}", 130)


def _how_to_resume(flat: dict[str, Any]) -> str:
    from openrlhf_js.plugin import reward_training

    tag = reward_training.last_checkpoint(flat) if flat else None
    if tag is None:
        return "nothing was saved (--ckpt.save_steps saves regularly)"
    return f"--ckpt.load_enable resumes from {tag} in {flat['ckpt.path']}"


def _check_pairs(flat: dict[str, Any]) -> None:
    """Shows what is in the preference data; BadInput if it should not be trained on."""
    from openrlhf_js.plugin import reward_training
    from openrlhf_js.plugin.upstream import BadInput

    making = reward_training.making(flat, reward_training.load_tokenizer(flat))
    reports: dict[str, Report] = {}  # by the flag of the data
    with progress("checking preferences", unit="pairs") as bar:
        for flag, split in reward_training.DATA.items():
            reports[flag] = reward_training.check_data(flat, flag, split, making, bar.advance)
    problems = []
    for flag, report in reports.items():
        _show_lengths(flag, report, flat["data.max_len"])
        _show_problems(report)
        kinds = report.stopping(flat["js.allow"])
        if kinds:
            problems.append(f"--{flag}: {report.refusal(kinds)}")
    if not problems:
        training, held_out = (report.pairs for report in reports.values())
        known = not flat["data.dataset_probs"]  # otherwise upstream draws them
        drawn = min(training, flat["data.max_samples"]) if known else None
        problems = reward_training.pair_problems(flat, drawn, held_out)
    if problems:
        raise BadInput("\n".join(problems))
    for notice in reward_training.notices(flat):
        say(f"openrlhf_js: {notice}")


def _show_lengths(flag: str, report: Report, max_len: int) -> None:
    if report.tokens:
        row = {
            "preferences": f"--{flag}",
            "pairs": report.pairs,
            "tokens, median": round(median(report.tokens)),
            "most": max(report.tokens),
            f"cut to {max_len:,}": report.counts["cut"],
        }
        table([row])


def _show_problems(report: Report) -> None:
    """Prints the first problems of each kind."""
    rows = report.pairs + report.counts["no pair"]
    for kind, problems in report.problems.items():
        count = report.counts[kind]
        share = f"{100 * count / rows:.1f} %"
        say(f"{count:,} ({share}) x {KINDS[kind].text} [{kind}], such as", style="bold")
        for problem in problems:
            say(f"  {problem}".replace("\n", "\\n"))


if __name__ == "__main__":
    sys.exit(main())
