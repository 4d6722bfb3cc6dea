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

from openrlhf_js.tasks import hub, math
from openrlhf_js.tasks.base import Item, Message, as_given
from openrlhf_js.tasks.files import Row
from openrlhf_js.tasks.problems import distinct, text

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
    progress: hub.Progress = hub.unseen,
) -> Iterator[Item]:
    """The items of the data set's own split, each problem once: `problem`, `answer` and `images`.

    Figures are written to `images_dir` as PNG, named after the SHA-256 of the data set's bytes; one
    that is there already is left as it is.

    Args:
        split: `train`, `validation` or `test`.
        source: a hub id, file or folder with columns `images`, `problem` and `answer`, as
            `hub.rows` takes them. Images are `{"bytes": ..., "path": ...}`, or paths beside the
            file.
        images_dir: a folder, created where needed; `images` holds absolute paths into it.
        progress: as `hub.rows` calls it.

    Raises:
        ValueError: as `hub.rows`; or an image does not open, or a problem has not one `<image>` for
            each of its images.
    """
    if split not in SPLITS:
        raise ValueError(f"Geometry3k has the splits {', '.join(SPLITS)}, not {split!r}")
    beside = Path(source).expanduser()
    beside = beside.parent if beside.is_file() else beside
    folder = Path(images_dir).expanduser().resolve()

    def item(row: Row) -> Item:
        problem, images = text(row, "problem"), row["images"]
        if not isinstance(images, list) or problem.count(PLACEHOLDER) != len(images) or not images:
            raise ValueError(
                f"the problem must say {PLACEHOLDER} once for each of its images: "
                f"{problem!r:.80} with {len(images) if isinstance(images, list) else 'no list of'} "
                "images"
            )
        paths = [_saved(_encoded(image, beside), folder) for image in images]
        return {"problem": problem, "answer": text(row, "answer"), "images": paths}

    rows = hub.rows(source, split, ("images", "problem", "answer"), None, progress)
    return distinct(rows, source, item, _content, lambda item: item["answer"])


used = as_given
label, score = math.label, math.score
right_response, wrong_response = math.right_response, math.wrong_response


def prompt(item: Item) -> list[Message]:
    """Messages that ask for the answer in a box; `<image>` stands where each figure belongs."""
    return math.prompt_for(item["problem"])


def _content(item: Item) -> str:
    return " ".join([item["problem"], *item["images"]])


def _encoded(image: Any, beside: Path) -> bytes:
    """The bytes of an image file, from the row or from the path that the row names."""
    path = image
    if isinstance(image, dict):
        path = image.get("path")
        if isinstance(image.get("bytes"), bytes):
            return image["bytes"]
    if not isinstance(path, str):
        raise ValueError(f"an image must be a path or hold bytes or a path, not {image!r:.80}")
    try:
        return (beside / path).read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read the image {path!r}: {error.strerror}") from None


def _saved(encoded: bytes, folder: Path) -> str:
    path = folder / f"{hashlib.sha256(encoded).hexdigest()}.png"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}.part")
        figure = _opaque(encoded)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            figure.save(part, "PNG")
            part.replace(path)
        except OSError as error:
            error.filename = error.filename or str(path)  # a full disk does not say where
            raise
        finally:
            part.unlink(missing_ok=True)
    return str(path)


def _opaque(encoded: bytes) -> Image.Image:
    """The picture, fully decoded, on white.

    Transparent figures have black lines, often over black: vLLM and the processor that OpenRLHF
    trains with need not agree on what to put behind them.
    """
    from PIL import Image, UnidentifiedImageError

    if not encoded:
        raise ValueError("an image does not open: it has 0 bytes")
    try:
        opened = Image.open(io.BytesIO(encoded), formats=FORMATS)
        if opened.width * opened.height > MAX_PIXELS:
            raise ValueError(f"an image of {opened.width} x {opened.height} pixels is too large")
        figure = opened.convert("RGBA")
    except UnidentifiedImageError:  # its own words hold a memory address
        formats = ", ".join(FORMATS)
        raise ValueError(f"an image does not open: it is no picture of {formats}") from None
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"an image does not open: {error}") from None
    sheet = Image.new("RGBA", figure.size, "white")
    sheet.alpha_composite(figure)
    return sheet.convert("RGB")
