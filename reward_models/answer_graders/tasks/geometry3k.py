"""Geometry3k: geometry problems that are stated partly in a figure.

OpenRLHF reads the figures from the paths in the column `--data.image_key`, and puts them at the
`<image>` tags. Paths are absolute, since workers may run in another folder than the driver.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from answer_graders import hub
from answer_graders.hub import Row, gold_text, text
from answer_graders.programs.files import atomic_write
from answer_graders.record import SOURCE, BenchmarkRecord, Item, Message, PublishedProblems, Task
from answer_graders.tasks import math

if TYPE_CHECKING:
    from PIL import Image

NAME = "geometry3k"
HUB_ID = "hiyouga/geometry3k"
PLACEHOLDER = "<image>"
SPLITS: tuple[str, ...] = ("train", "validation", "test")
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MAX_PIXELS = 32_000_000


def load(
    split: str, source: str = HUB_ID, *, images_dir: str | os.PathLike[str] = "images"
) -> Iterator[Item]:
    """The items of the data set's own split, each problem once: `problem`, `answer` and `images`.

    `source` is as in `hub.rows`; its images are `{"bytes": ..., "path": ...}`, or paths relative to
    the file. Figures are written to `images_dir` as PNG, named after the SHA-256 of their bytes,
    and `images` holds their absolute paths.
    """
    path = Path(source).expanduser()
    beside = path.parent if path.is_file() else path
    folder = Path(images_dir).expanduser().resolve()

    def item(row: Row) -> Item:
        problem = text(row, "problem")
        images = row["images"]
        if not images or problem.count(PLACEHOLDER) != len(images):
            raise ValueError(
                f"the problem must say {PLACEHOLDER} once for each of its images, {problem!r:.80}"
            )
        paths = [_saved(_encoded(image, beside), folder) for image in images]
        return {"problem": problem, "answer": gold_text(row, "answer"), "images": paths}

    def shown(item: Item) -> str:
        return f"{item['problem']} {' '.join(item['images'])}"

    rows = hub.rows(source, split, ("images", "problem", "answer"))
    return hub.distinct(rows, source, item, shown, lambda item: item["answer"])


def prompt(item: Item) -> list[Message]:
    """Messages that ask for the answer in a box, with `<image>` in the place of each figure."""
    return math.prompt_for(item["problem"])


def _encoded(image: Any, beside: Path) -> bytes:
    """The bytes of an image file, from the row or from the path in the row."""
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

    Transparent figures have black lines, often over black pixels; vLLM and the processor that
    OpenRLHF trains with may put different backgrounds behind them.
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


TASK = Task(
    name=NAME,
    summary="Geometry3k: geometry problems that are stated partly in a figure",
    right_if="it is right for `math.py`; the prompt comes with a figure",
    label_form="the gold answer",
    problems=PublishedProblems(load=load, splits=SPLITS, options={"source": SOURCE}),
    prompt=prompt,
    label=math.label,
    score=math.score,
    right_response=math.right_response,
    wrong_response=math.wrong_response,
    reward_file="geometry3k.py",
    reads_label=math.is_readable,
    voted_answer=math.answer_of,
    same_answer=math.same_answer,
    benchmarks={
        # The test split, 601 problems (Lu et al., 2021). Needs a vision-language model, loaded here
        # (a folder or a hub id) or served (`vllm serve MODEL --generation-config vllm`).
        "geometry3k": BenchmarkRecord(max_new_tokens=1024),
    },
)
