"""`openrlhf-js rm serve`: serves a reward model's scores to training runs."""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from openrlhf_js.cli.rm_serve_flags import parser
from openrlhf_js.reward_model.requests import Limits
from openrlhf_js.reward_model.tokens import TOKEN_VARIABLE, is_loopback, read_token

if TYPE_CHECKING:
    from openrlhf_js.reward_model.model import Description, RewardModel

SPARE_FILES = 64  # that a process has open beside its connections


def main(argv: list[str] | None = None) -> int:
    """Serves until SIGTERM or SIGINT.

    Args:
        argv: the arguments, without the program's name; the process's own if None.

    Returns:
        The exit status: 0 ended as told, 2 what was given cannot be used. Wrong flags exit with 2.
    """
    arguments = parser()
    args = vars(arguments.parse_args(argv))
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    try:
        if args["tiny"]:
            with TemporaryDirectory() as name:
                _tiny(args, Path(name))
        else:
            _serve(args)
    except ValueError as error:
        for line in str(error).splitlines():
            print(f"{arguments.prog}: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _say(url: str) -> None:
    print(f"serving on {url}", flush=True)


def _serve(args: dict[str, Any], tell: Callable[[str], None] = _say) -> None:
    """Serves, or only looks whether it could; `tell` is told the URL once it listens."""
    host = args["host"]
    token = read_token(os.environ.get(TOKEN_VARIABLE), args["token_file"])
    if token is None and not is_loopback(host):
        raise ValueError(
            f"--host {host} can be reached from other machines, so clients must bring a token: set "
            f"{TOKEN_VARIABLE}, as `openssl rand -hex 32` prints it, or give --token_file"
        )
    _allow_open_files(args["max_connections"] + SPARE_FILES)
    with _bind(host, args["port"]) as listener:
        shown, port = f"[{host}]" if ":" in host else host, listener.getsockname()[1]
        url = f"http://{shown}:{port}/get_reward"
        if args["dry_run"]:
            _check(args)
            print(f"would serve on {url}, {'with' if token else 'without'} a token")
            return
        from openrlhf_js.reward_model.http_server import make_server
        from openrlhf_js.reward_model.serve import RewardService

        model = _load(args)
        limits = Limits(**{each.name: args[f"max_{each.name}"] for each in fields(Limits)})
        service = RewardService(
            partial(
                model.score_batches,
                max_tokens=args["max_tokens_per_batch"],
                max_texts=args["batch_size"],
            ),
            model.description,
            limits,
            token,
            batch_size=args["batch_size"],
            max_wait_seconds=args["max_wait_ms"] / 1000,
            queue_size=args["queue_size"],
        )
        server = make_server(
            service.app(),
            service,
            head_seconds=limits.head_seconds,
            drain_seconds=limits.drain_seconds,
            connections=args["max_connections"],
            ready=partial(tell, url),
        )
        print(_summary(model.description), flush=True)
        server.run(sockets=[listener])
        service.close()


def _check(args: dict[str, Any]) -> None:
    """Prints the configuration; ValueError if the checkpoint is none that can be served."""
    from openrlhf_js.reward_model.checkpoint import checkpoint_problems

    for name, value in args.items():
        print(f"--{name} {value}")
    problems = checkpoint_problems(
        args["reward.model_name_or_path"],
        args["ds.value_head_prefix"],
        normalize=args["reward.normalize_enable"],
        pad_with_eos=args["pad_with_eos"],
    )
    if problems:
        raise ValueError("\n".join(problems))


def _tiny(args: dict[str, Any], folder: Path) -> None:
    """The same flags with a tiny model on CPU: serves it, asks it for one reward, and ends."""
    from openrlhf_js.tiny.reward_model import QUERY, write

    write(folder / "tiny")
    args |= {"reward.model_name_or_path": str(folder / "tiny"), "device": "cpu", "port": 0}

    statuses = []

    def ask(url: str) -> None:
        import httpx

        token = read_token(os.environ.get(TOKEN_VARIABLE), args["token_file"])
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            answer = httpx.post(url, json={"query": [QUERY]}, headers=headers, timeout=60)
            print(f"{answer.status_code} {answer.text}", flush=True)
            statuses.append(answer.status_code)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def begin(url: str) -> None:
        _say(url)
        threading.Thread(target=ask, args=(url,)).start()

    _serve(args, begin)
    if statuses != [200] and not args["dry_run"]:
        raise SystemExit("openrlhf-js rm serve: the tiny model gave no reward")


def _load(args: dict[str, Any]) -> RewardModel:
    import torch

    from openrlhf_js.reward_model.model import RewardModel

    device = args["device"]
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    model = RewardModel.load(
        args["reward.model_name_or_path"],
        args["data.max_len"],
        device,
        args["ds.param_dtype"],
        args["reward.normalize_enable"],
        args["ds.value_head_prefix"],
        attention=args["ds.attn_implementation"],
        pad_with_eos=args["pad_with_eos"],
    )
    model.score(["a text"])  # the first one is slow
    gc.collect()
    gc.freeze()  # else each full collection goes through all that is imported: a stall of 0.2 s
    return model


def _summary(loaded: Description) -> str:
    if loaded.normalized:
        scores = f"(reward - {loaded.mean:g}) / {loaded.std:g}"
    elif loaded.mean is not None:
        scores = f"as they are, not normalised by mean {loaded.mean:g}, std {loaded.std:g}"
    else:
        scores = "as they are; config.json has no mean and std"
    return (
        f"{loaded.model}: {loaded.architecture}, head {loaded.value_head}, {loaded.dtype} on "
        f"{loaded.device}\ntexts: at most {loaded.max_len} tokens, cut on the "
        f"{loaded.truncation_side}, EOS at the end\nscores: {scores}"
    )


def _bind(host: str, port: int) -> socket.socket:
    """A socket that does not listen yet: who comes before the model is loaded is told so."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"cannot listen on {host} port {port}: {reason}") from None
    return listener


def _allow_open_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and count > hard:
        raise ValueError(
            f"--max_connections {count - SPARE_FILES} needs {count} open files; this user may have "
            f"{hard}: give fewer, or raise `ulimit -Hn`"
        )
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


if __name__ == "__main__":
    sys.exit(main())
