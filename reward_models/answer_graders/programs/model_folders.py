"""Model folders, local or from the hub, without untrusted Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from answer_graders.programs.console import progress
from answer_graders.programs.files import fingerprint

FINGERPRINTED = (  # files that decide a model's responses
    "*.safetensors",
    "*.bin",
    "config.json",
    "*.index.json",
    "tokenizer*",
    "special_tokens_map.json",
    "vocab*",
    "merges.txt",
    "chat_template*",
    "processor_config.json",
    "preprocessor_config.json",
)
MEGABYTE = 10**6
NOT_DOWNLOADED = ("*.pth", "*.gguf", "*.onnx", "*.msgpack", "*.h5", "original/*")
PYTHON = "*.py"  # a model's code, downloaded only if it is trusted
TRUST = "--trust_remote_code"
CONFIGURATIONS = "*config*.json"  # the files in which transformers looks for `auto_map`
GENERATION = "custom_generate/generate.py"  # transformers runs it even if nothing refers to it
TRUSTED = "run the Python that a model's folder brings; read it first"


def local_folder(name_or_path: str | Path, **wanted: Any) -> Path:
    """The folder itself, or the one that the hub's files were downloaded to.

    `wanted` are arguments of `snapshot_download`; ValueError if the hub does not give the files. A
    model's Python is not downloaded.
    """
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    try:
        wanted = {"ignore_patterns": [*NOT_DOWNLOADED, PYTHON], **wanted}
        return Path(snapshot_download(str(name_or_path), **wanted))
    except (OSError, ValueError) as error:
        message = f"{name_or_path} is not a folder here, and the hub does not give it: {error}"
        raise ValueError(message.splitlines()[0]) from error


def model_folder(
    name_or_path: str | Path, trust_remote_code: bool, flag: str = TRUST, **wanted: Any
) -> Path:
    """The folder of a model, as `local_folder` finds it, without untrusted Python.

    Every program gets its models here, before it loads anything of them. ValueError if loading the
    folder would run its own Python and `trust_remote_code` is false; `flag` is what allows it.
    """
    if trust_remote_code:
        with_python = {"ignore_patterns": list(NOT_DOWNLOADED), **wanted}
        return local_folder(name_or_path, **with_python)
    folder = local_folder(name_or_path, **wanted)
    code = "; ".join(own_code(folder))
    if code:
        raise ValueError(
            f"{name_or_path} would run its own Python ({code:.300}): read it, then allow it with "
            f"{flag}, or take a copy without auto_map if transformers itself has this model"
        )
    return folder


def own_code(folder: Path) -> Iterator[str]:
    """The Python that loading a model folder would run, with the file that refers to it.

    transformers and vLLM run what `auto_map` in a configuration refers to, in this folder or in
    another repository of the hub, and `GENERATION`.
    """
    for path in sorted(folder.glob(CONFIGURATIONS)):
        classes = list(dict.fromkeys(_mapped_classes(path)))
        if classes:
            yield f"{path.name}: {', '.join(classes)}"
    if (folder / GENERATION).exists():
        yield GENERATION


def _mapped_classes(path: Path) -> Iterator[str]:
    """What `auto_map` refers to, at any depth: "file.Class" or "repository--file.Class"."""
    maps: list[Any] = []

    def keep(content: dict[str, Any]) -> dict[str, Any]:
        maps.append(content.get("auto_map"))
        return content

    try:
        json.loads(path.read_bytes(), object_hook=keep)
    except (ValueError, RecursionError):  # transformers refuses such a file, and says why
        return
    for classes in maps:
        values = classes.values() if isinstance(classes, dict) else [classes]
        for value in values:
            for name in value if isinstance(value, list) else [value]:
                if name:
                    yield " ".join(str(name).split())


def model_fingerprint(folder: Path) -> str:
    """The sha256 of a model's files, with progress on stderr."""
    patterns = list(FINGERPRINTED)
    if any(own_code(folder)):
        patterns.append(f"**/{PYTHON}")
    paths: set[Path] = set()
    for pattern in patterns:
        paths.update(folder.glob(pattern))
    size_bytes = sum(path.stat().st_size for path in paths)
    with progress("reading the model", size_bytes // MEGABYTE, "MB") as bar:
        return fingerprint(paths, lambda read_bytes: bar.update(read_bytes // MEGABYTE))
