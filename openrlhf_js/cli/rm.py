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
from typing import Any, Literal

import tyro

from openrlhf_js.common.console import progress, say, table
from openrlhf_js.common.files import atomic_write, write_json
from openrlhf_js.common.settings import Field, Settings, choose, parse, run
from openrlhf_js.reward_model import TOKEN_VARIABLE
from openrlhf_js.reward_model.check import KINDS, Report
from openrlhf_js.sampling.settings import TRUSTED

PROGRAMS = {
    "train": ("openrlhf_js.cli.rm:train", "train on preferences (OpenRLHF's flags)"),
    "eval": ("openrlhf_js.cli.rm:evaluate", "measure on held-out preferences"),
    "serve": ("openrlhf_js.cli.rm:serve", "serve the scores over HTTP"),
}
EVAL, SERVE = "openrlhf-js rm eval", "openrlhf-js rm serve"
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
    from openrlhf_js.reward_model.evaluate import ScoringFailed

    settings = parse(RewardEvalSettings, EVAL, argv)
    return run(EVAL, partial(_evaluate, settings), resumes=True, failures={ScoringFailed: str})


def _evaluate(settings: RewardEvalSettings) -> None:
    from transformers import AutoTokenizer

    from openrlhf_js.common.store import Store
    from openrlhf_js.report import reward_model as report
    from openrlhf_js.reward_model import evaluate as evaluation
    from openrlhf_js.reward_model.checkpoint import tokenizer_problems
    from openrlhf_js.reward_model.model import RewardModel
    from openrlhf_js.reward_model.preferences import read_pairs, response
    from openrlhf_js.sampling.models import model_fingerprint, model_folder

    settings.file.stat()  # before a model is downloaded
    trust = settings.trust_remote_code
    model_at = model_folder(settings.model, trust)
    messages = settings.apply_chat_template
    if problems := tokenizer_problems(model_at, messages=messages, trust_remote_code=trust):
        raise ValueError("\n".join(problems))
    tokenizer = AutoTokenizer.from_pretrained(model_at, trust_remote_code=trust)
    columns = (settings.prompt_key, settings.chosen_key, settings.rejected_key, settings.subset_key)
    pairs = list(read_pairs(settings.file, *columns))
    if unread := sum(each.unread_prompt for each in pairs):
        text = f"warning: {unread:,} of {len(pairs):,} pairs are scored without their prompt"
        say(f"{text}: --prompt_key prompt adds that column", error=True, style="yellow")
    template = tokenizer.apply_chat_template if messages else None
    texts = evaluation.texts_of(pairs, template, settings.input_template)
    identity = {
        "texts": hashlib.sha256(json.dumps(texts).encode()).hexdigest(),
        "model": model_fingerprint(model_at),
        **{name: getattr(settings, name) for name in ("max_len", "dtype", "value_head_prefix")},
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    folder = settings.out or Path("runs", f"rm-eval-{digest}")
    # not normalised: margins are in the units of training
    how = (settings.max_len, settings.device, settings.dtype, False, settings.value_head_prefix)
    with Store(folder / "scores.jsonl", identity, ("pair",)) as store:
        model = RewardModel.load(model_at, *how, trust_remote_code=trust)
        with progress("scoring", len(texts), "pairs") as bar:
            rewards = evaluation.score_pairs(texts, model.scores, store, progress=bar.update)
    responses = [(response(each.chosen), response(each.rejected)) for each in pairs]
    lengths = evaluation.token_counts(tokenizer, responses)
    prompts, subsets = map(evaluation.prompt_of, pairs), (each.subset for each in pairs)
    found = {
        "model": settings.model,
        "file": str(settings.file),
        "settings": settings.manifest(),
        "identity": identity,
        "description": model.description | {"model": settings.model},
        **evaluation.evaluate(rewards, lengths, [*prompts], [*subsets]),
    }
    write_json(folder / "evaluation.json", found)
    with atomic_write(folder / "report.html") as file:
        file.write(report.page(found).encode())
    for rows in (report.figures(found), report.subsets(found)):
        table(rows)
    for sentence in report.in_words(found):
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


def serve(argv: Sequence[str]) -> int:
    """`openrlhf-js rm serve`."""
    settings = parse(RewardServeSettings, SERVE, argv)
    return run(SERVE, partial(_serve, settings))


def _serve(settings: RewardServeSettings) -> None:
    from openrlhf_js.reward_model import server
    from openrlhf_js.reward_model.checkpoint import checkpoint_problems
    from openrlhf_js.reward_model.model import RewardModel
    from openrlhf_js.sampling.models import model_folder

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    token = server.read_token(os.environ.get(TOKEN_VARIABLE), settings.token_file)
    if token is None and not server.is_loopback(settings.host):
        said = f"--host {settings.host} can be reached from other machines, so clients must send a"
        raise ValueError(f"{said} token: set {TOKEN_VARIABLE}, or --token_file")
    name, normalize = settings.reward.model_name_or_path, settings.reward.normalize_enable
    prefix, trust = settings.ds.value_head_prefix, settings.trust_remote_code
    with server.bind(settings.host, settings.port) as listener:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        url = f"http://{host}:{listener.getsockname()[1]}/get_reward"
        if settings.dry_run:
            say(json.dumps(settings.manifest(), indent=2))
            problems = checkpoint_problems(
                model_folder(name, trust), prefix, normalize=normalize, trust_remote_code=trust
            )
            if problems:
                raise ValueError("\n".join(problems))
            say(f"would serve on {url}, {'with' if token else 'without'} a token")
            return
        options = (settings.data.max_len, settings.device, settings.ds.param_dtype)
        attention = settings.ds.attn_implementation
        model = RewardModel.load(
            name, *options, normalize, prefix, attention=attention, trust_remote_code=trust
        )
        model.score(["a text"])  # the first one is slow
        say(json.dumps(model.description, indent=2))
        size, tokens = settings.batch_size, settings.max_tokens_per_batch
        scores = partial(model.scores, max_tokens=tokens, max_texts=size)
        batching = (size, settings.max_wait_ms / 1000, settings.queue_size)
        app = server.make_app(scores, model.description, token, batching)
        gc.collect()
        gc.freeze()  # what is loaded: to look through it stops all requests for 0.3 s
        listener.listen()
        print(f"serving on {url}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn repeats the signal at its end
            server.make_server(app, settings.drain_seconds).run(sockets=[listener])


def train(argv: Sequence[str]) -> int:
    """`openrlhf-js rm train`: checks every pair, then runs OpenRLHF's reward model training."""
    from openrlhf_js.plugin import reward_training
    from openrlhf_js.plugin import run as plugin_run
    from openrlhf_js.plugin.parser import flag_values, validate_upstream
    from openrlhf_js.plugin.upstream import BadInput, UpstreamMismatch

    flat: dict[str, Any] = {}
    try:
        parser = reward_training.reward_parser()
        args = parser.parse_args(argv)
        flat = vars(args)
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        device = plugin_run.prepare_device(flat["js.device"])
        if plugin_run.is_first():
            reward_training.check_flags(flat)
            _check_pairs(flat)
        checked = validate_upstream(args, reward_training.PROGRAM)
        if not flat["js.dry_run"]:
            reward_training.train(checked, device)
        elif plugin_run.is_first():
            print("\n".join(flag_values(args, parser)))
        return 0
    except (BadInput, UpstreamMismatch) as error:
        return _complain(str(error), 2 if isinstance(error, BadInput) else 1)
    except KeyboardInterrupt:
        pass  # reported below, once upstream's progress bars are gone with its frames
    resume = "nothing was saved (--ckpt.save_steps saves regularly)"
    if tag := reward_training.last_checkpoint(flat) if flat else None:
        resume = f"--ckpt.load_enable resumes from {tag} in {flat['ckpt.path']}"
    return _complain(f"interrupted; {resume}", 130)


def _complain(text: str, status: int) -> int:
    for line in text.splitlines():
        say(f"openrlhf_js: {line}", error=True)
    return status


def _check_pairs(flat: dict[str, Any]) -> None:
    """Shows what is in the preference data; BadInput if it should not be trained on."""
    from openrlhf_js.plugin import reward_training
    from openrlhf_js.plugin.upstream import BadInput

    making = reward_training.making(flat, reward_training.load_tokenizer(flat))
    reports, problems = [], []
    with progress("checking preferences", unit="pairs") as bar:
        for flag, split in reward_training.DATA.items():
            reports.append(reward_training.check_data(flat, flag, split, making, bar.advance))
    for flag, report in zip(reward_training.DATA, reports, strict=True):
        _show_pairs(flag, report, flat["data.max_len"])
        if kinds := report.stopping(flat["js.allow"]):
            problems.append(f"--{flag}: {report.refusal(kinds)}")
    pairs = None  # where upstream draws them
    if not flat["data.dataset_probs"]:
        pairs = min(reports[0].pairs, flat["data.max_samples"])
    if problems := problems or reward_training.pair_problems(flat, pairs, reports[1].pairs):
        raise BadInput("\n".join(problems))
    for notice in reward_training.notices(flat):
        say(f"openrlhf_js: {notice}")


def _show_pairs(flag: str, report: Report, max_len: int) -> None:
    """Prints lengths, and the first problems of each kind."""
    if report.tokens:
        row = {"preferences": f"--{flag}", "pairs": report.pairs}
        row |= {"tokens, median": round(median(report.tokens)), "most": max(report.tokens)}
        table([row | {f"cut to {max_len:,}": report.counts["cut"]}])
    for kind, problems in report.problems.items():
        count, rows = report.counts[kind], report.pairs + report.counts["no pair"]
        of = f"{count:,} ({count / rows:.1%})".replace("%", " %")
        say(f"{of} x {KINDS[kind].text} [{kind}], such as", style="bold")
        for problem in problems:
            say(f"  {problem}".replace("\n", "\\n"))


if __name__ == "__main__":
    sys.exit(main())
