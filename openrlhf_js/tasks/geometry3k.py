"""Geometry3k: geometry problems that are stated partly in a figure.

OpenRLHF reads a figure from the path that `--data.image_key` names, and puts it where the prompt
says `<image>`. The paths are absolute, since its workers need not run in the driver's folder.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openrlhf_js.common.files import atomic_write
from openrlhf_js.tasks import base, hub, math
from openrlhf_js.tasks.base import Item, Message, Progress
from openrlhf_js.tasks.hub import Row, text

if TYPE_CHECKING:
    from PIL import Image

NAME = "geometry3k"
HUB_ID = "hiyouga/geometry3k"
PLACEHOLDER = "<image>"
SPLITS: tuple[str, ...] = ("train", "validation", "test")
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MAX_PIXELS = 32_000_000


def load(
    split: str,
    source: str = HUB_ID,
    *,
    images_dir: str | os.PathLike[str] = "images",
    progress: Progress = base.no_progress,
) -> Iterator[Item]:
    """The items of the data set's own split, each problem once: `problem`, `answer` and `images`.

    `source` is as `hub.rows` takes it; its images are `{"bytes": ..., "path": ...}`, or paths
    beside the file. Figures are written to `images_dir` as PNG, named after the SHA-256 of their
    bytes, and `images` holds absolute paths.
    """
    beside = Path(source).expanduser()
    beside = beside.parent if beside.is_file() else beside
    folder = Path(images_dir).expanduser().resolve()

    def item(row: Row) -> Item:
        problem, images = text(row, "problem"), row["images"]
        if problem.count(PLACEHOLDER) != len(images) or not images:
            raise ValueError(
                f"the problem must say {PLACEHOLDER} once for each of its images, {problem!r:.80}"
            )
        paths = [_saved(_encoded(image, beside), folder) for image in images]
        return {"problem": problem, "answer": text(row, "answer"), "images": paths}

    rows = hub.rows(source, split, ("images", "problem", "answer"), None, progress)
    content = lambda item: " ".join([item["problem"], *item["images"]])  # noqa: E731
    return hub.distinct(rows, source, item, content, lambda item: item["answer"])


used = base.as_given
answer_of, label, score = math.answer_of, math.label, math.score
right_response, wrong_response = math.right_response, math.wrong_response


def prompt(item: Item) -> list[Message]:
    """Messages that ask for the answer in a box; `<image>` stands where each figure belongs."""
    return math.prompt_for(item["problem"])


def _encoded(image: Any, beside: Path) -> bytes:
    """The bytes of an image file, from the row or from the path that the row names."""
    stored = image if isinstance(image, dict) else {"path": image}
    if isinstance(stored.get("bytes"), bytes):
        return stored["bytes"]
    try:
        return (beside / stored["path"]).read_bytes()
    except (OSError, KeyError, TypeError) as error:
        raise ValueError(f"cannot read the image {image!r:.80}: {error}") from None


def _saved(encoded: bytes, folder: Path) -> str:
    path = folder / f"{hashlib.sha256(encoded).hexdigest()}.png"
    if not path.exists():
        figure = _opaque(encoded)
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            figure.save(file, "PNG")
    return str(path)


def _opaque(encoded: bytes) -> Image.Image:
    """The picture, fully decoded, on white.

    Transparent figures have black lines, often over black: vLLM and the processor that OpenRLHF
    trains with need not agree on what to put behind them.
    """
    from PIL import Image

    try:
        opened = Image.open(io.BytesIO(encoded), formats=FORMATS)
        if opened.width * opened.height > MAX_PIXELS:
            raise ValueError(f"an image of {opened.width} x {opened.height} pixels is too large")
        figure = opened.convert("RGBA")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"an image of {len(encoded)} bytes does not open: {error}") from None
    sheet = Image.new("RGBA", figure.size, "white")
    sheet.alpha_composite(figure)
    return sheet.convert("RGB")
