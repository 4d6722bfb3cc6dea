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
from typing import Annotated, Any, Literal

import tyro

from answer_graders.programs.console import progress, say, table
from answer_graders.programs.files import write_json
from answer_graders.programs.model_folders import TRUSTED
from answer_graders.programs.settings import Field, Settings, choose, program
from openrlhf_js.reward_model import TOKEN_VARIABLE
from openrlhf_js.reward_model.preferences import Keys, PreferencePair, read_pairs

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

    Reports accuracy with an interval clustered by prompt, also by subset; calibration; the
    influence of length; and the mean and std that normalise rewards. The same command resumes. It
    writes scores.jsonl (rewards, as they are computed) and evaluation.json (every figure).
    """

    file: tyro.conf.Positional[Path] = Field(
        description="file of preferences: JSON, JSON lines, CSV or Parquet"
    )
    model: str = Field(description="reward model: a folder, or a name on the hub")
    prompt_key: str | None = Field(
        None, description="column of the prompt (default: it is a part of both sides)"
    )
    chosen_key: str = Field("chosen", description="column of the preferred side")
    rejected_key: str = Field("rejected", description="column of the other side")
    subset_key: str = Field("subset", description="column of groups to report separately")
    apply_chat_template: bool = Field(
        False,
        description="read the columns as messages, and write them in the tokenizer's chat template",
    )
    input_template: str | None = Field(
        None, description="text around a prompt, {}, such as $'User: {}\\nAssistant: ' in bash"
    )
    max_len: int = Field(default=2048, ge=1, description="tokens of a text at most, as in training")
    dtype: Dtype = Field("bf16", description="dtype of the weights")
    device: str | None = Field(
        None, description="torch device, such as cuda (default: a GPU if there is one)"
    )
    value_head_prefix: str = Field(
        "score", description="name of the value head, if config.json gives none"
    )
    trust_remote_code: bool = Field(False, description=TRUSTED)
    out: Path | None = Field(
        None, description="folder of the results (default: runs/rm-eval-<hash of what decides>)"
    )


def _evaluate(settings: RewardEvalSettings) -> None:
    from answer_graders.programs.model_folders import model_fingerprint, model_folder
    from openrlhf_js.reward_model import evaluate as evaluation
    from openrlhf_js.reward_model.checkpoint import load_tokenizer

    settings.file.stat()  # before a model is downloaded
    folder = model_folder(settings.model, settings.trust_remote_code)
    tokenizer = load_tokenizer(
        folder,
        messages=settings.apply_chat_template,
        trust_remote_code=settings.trust_remote_code,
    )
    pairs = _read_pairs(settings)
    template = tokenizer.apply_chat_template if settings.apply_chat_template else None
    texts = evaluation.texts_of(pairs, template, settings.input_template)
    identity = {
        "texts": _digest(texts),
        "model": model_fingerprint(folder),
        "max_len": settings.max_len,
        "dtype": settings.dtype,
        "value_head_prefix": settings.value_head_prefix,
    }
    out = settings.out or Path("runs", f"rm-eval-{_digest(identity)[:12]}")
    rewards, description = _score(settings, folder, texts, identity, out)
    results = {
        "model": settings.model,
        "file": str(settings.file),
        "settings": settings.manifest(),
        "identity": identity,
        "description": {**description, "model": settings.model},
        "repetitions": evaluation.repetitions(texts),
        **evaluation.evaluate(
            rewards,
            lengths=evaluation.response_lengths(tokenizer, pairs),
            prompts=[evaluation.prompt_of(pair) for pair in pairs],
            subsets=[pair.subset for pair in pairs],
        ),
    }
    _show_results(results, out)


evaluate = partial(program, EVAL, RewardEvalSettings, _evaluate, resumes=True)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _read_pairs(settings: RewardEvalSettings) -> list[PreferencePair]:
    """The pairs of the file; warns if they lack the prompt that the file has."""
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


def _score(
    settings: RewardEvalSettings,
    folder: Path,
    texts: Sequence[tuple[str, str]],
    identity: dict[str, Any],
    out: Path,
) -> tuple[Any, dict[str, Any]]:
    """The rewards (pairs, 2), read from scores.jsonl if there, and the model's description."""
    from answer_graders.programs.store import Store
    from openrlhf_js.reward_model.evaluate import score_pairs
    from openrlhf_js.reward_model.model import RewardModel

    with Store(out / "scores.jsonl", identity, ("pair",)) as store:
        model = RewardModel.load(
            folder,
            max_len=settings.max_len,
            device=settings.device,
            dtype=settings.dtype,
            normalize=False,  # margins are in the units of training
            value_head_prefix=settings.value_head_prefix,
            trust_remote_code=settings.trust_remote_code,
        )
        with progress("scoring", len(texts), "pairs") as bar:
            rewards = score_pairs(texts, model.scores, store, progress=bar.update)
    return rewards, model.description


def _show_results(results: dict[str, Any], out: Path) -> None:
    """Writes evaluation.json, and prints the figures."""
    from openrlhf_js.reward_model import page as report

    write_json(out / "evaluation.json", results)
    table(report.figure_rows(results))
    table(report.subset_rows(results))
    for sentence in report.in_words(results):
        say(sentence)
    say(str(out / "evaluation.json"))


class RewardServeSettings(Settings):
    """Serve a reward model over HTTP with OpenRLHF's protocol: POST {"query": [texts]} to
    /get_reward. The scores are those of training. Flags of OpenRLHF's own server keep their names.
    """

    model: Annotated[str, tyro.conf.arg(name="reward.model_name_or_path")] = Field(
        description="reward model: a folder, or a name on the hub"
    )
    normalize: Annotated[bool, tyro.conf.arg(name="reward.normalize_enable")] = Field(
        False, description="serve (reward - mean) / std, with both from config.json"
    )
    max_len: Annotated[int, tyro.conf.arg(name="data.max_len")] = Field(
        2048, ge=1, description="tokens of a text at most, as in training"
    )
    value_head_prefix: Annotated[str, tyro.conf.arg(name="ds.value_head_prefix")] = Field(
        "score", description="name of the value head, if config.json gives none"
    )
    dtype: Annotated[Dtype, tyro.conf.arg(name="ds.param_dtype")] = Field(
        "bf16", description="dtype of the weights"
    )
    attention: Annotated[str, tyro.conf.arg(name="ds.attn_implementation")] = Field(
        "sdpa", description="attention implementation, as transformers names it"
    )
    device: str | None = Field(
        None, description="torch device, such as cuda:1 (default: a GPU if there is one)"
    )
    batch_size: int = Field(64, ge=1, description="number of texts in the model at a time")
    max_tokens_per_batch: int = Field(
        16384, ge=1, description="tokens in the model at a time, with padding"
    )
    host: str = Field(
        "127.0.0.1", description="address to listen on; one that others can reach needs a token"
    )
    port: int = Field(
        5000, ge=0, le=65535, description="port to listen on, 0 to 65535; 0: any that is free"
    )
    token_file: Path | None = Field(
        None, description=f"file of the token (default: what ${TOKEN_VARIABLE} holds)"
    )
    trust_remote_code: bool = Field(False, description=TRUSTED)


def _serve(settings: RewardServeSettings) -> None:
    from openrlhf_js.reward_model import server
    from openrlhf_js.reward_model.model import RewardModel

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    token = server.read_token(os.environ.get(TOKEN_VARIABLE), settings.token_file)
    if token is None and not server.is_loopback(settings.host):
        raise ValueError(
            f"--host {settings.host} can be reached from other machines, so clients must send a "
            f"token: set {TOKEN_VARIABLE}, or --token_file"
        )
    with server.bind(settings.host, settings.port) as listener:
        model = RewardModel.load(
            settings.model,
            max_len=settings.max_len,
            device=settings.device,
            dtype=settings.dtype,
            normalize=settings.normalize,
            value_head_prefix=settings.value_head_prefix,
            attention=settings.attention,
            trust_remote_code=settings.trust_remote_code,
        )
        model.score(["a text"])  # the first one is slow
        say(json.dumps(model.description, indent=2))
        score = partial(
            model.scores,
            max_tokens=settings.max_tokens_per_batch,
            max_texts=settings.batch_size,
        )
        batching = server.Batching(batch_size=settings.batch_size)
        app = server.make_app(score, model.description, token, batching)
        gc.collect()
        gc.freeze()  # else collecting what is loaded stops all requests for 0.3 s
        listener.listen()
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        print(f"serving on http://{host}:{listener.getsockname()[1]}/get_reward", flush=True)
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn repeats the signal at its end
            server.make_server(app).run(sockets=[listener])


serve = partial(program, SERVE, RewardServeSettings, _serve)


def train(argv: Sequence[str]) -> int:
    """`openrlhf-js rm train`: checks every pair, then runs OpenRLHF's reward model training."""
    from openrlhf_js.trainers.openrlhf import reward_training
    from openrlhf_js.trainers.openrlhf.flags.parser import settings_text, validate_upstream
    from openrlhf_js.trainers.openrlhf.run.device import is_first, prepare_device
    from openrlhf_js.trainers.openrlhf.run.failures import complain
    from openrlhf_js.trainers.openrlhf.upstream import BadInput, UpstreamMismatch

    flat: dict[str, Any] = {}
    try:
        parser = reward_training.reward_parser()
        args = parser.parse_args(argv)
        flat = vars(args)
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        device = prepare_device(flat["js.device"])
        if is_first():
            reward_training.check_flags(flat, device)
            reward_training.check_pairs(flat)
        checked = validate_upstream(args, reward_training.PROGRAM)
        if not flat["js.dry_run"]:
            reward_training.train(checked, device)
        elif is_first():
            print(settings_text(flat, parser))
        return 0
    except BadInput as error:
        return complain(str(error), 2)
    except UpstreamMismatch as error:
        return complain(str(error), 1)
    except KeyboardInterrupt:
        pass  # reported below, once upstream's progress bars are gone with its frames
    return complain(f"interrupted; {reward_training.how_to_resume(flat)}", 130)


if __name__ == "__main__":
    sys.exit(main())
