"""Figures become files that OpenRLHF opens, each where the prompt says `<image>`."""

import base64
import hashlib
import io
import json
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageDraw

from answer_graders.tasks import geometry3k

PROBLEM = "<image>Find the measure of $\\angle A$."


def figure(mode="RGB", colour="white", line="black", form="PNG", size=(40, 30)):
    picture = Image.new(mode, size, colour)
    ImageDraw.Draw(picture).line((5, 5, 35, 25), fill=line, width=2)
    encoded = io.BytesIO()
    picture.save(encoded, form)
    return encoded.getvalue()


def row(*images, problem=PROBLEM, answer="48"):
    stored = [{"bytes": image, "path": "1.png"} for image in images]
    return {"images": stored, "problem": problem, "answer": answer}


def load(folder, *rows, split="train"):
    (folder / "data").mkdir(exist_ok=True)
    file = folder / "data" / f"{split}-00000-of-00001.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file)
    return list(geometry3k.load(split, str(folder), images_dir=folder / "figures"))


def test_a_downloaded_copy(tmp_path, monkeypatch):
    one = figure()
    two = figure(colour="yellow")
    both = "Compare <image> with <image>."
    rows = [row(one), row(two), row(one), row(one, two, problem=both, answer="2 \\sqrt{3}")]
    names = [f"{hashlib.sha256(encoded).hexdigest()}.png" for encoded in (one, two)]
    paths = [str(tmp_path / "figures" / name) for name in names]
    assert load(tmp_path, *rows) == [
        {"problem": PROBLEM, "answer": "48", "images": paths[:1]},
        {"problem": PROBLEM, "answer": "48", "images": paths[1:]},  # another figure
        {"problem": both, "answer": "2 \\sqrt{3}", "images": paths},
    ]
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == sorted(names)
    with Image.open(paths[1]) as written, Image.open(io.BytesIO(two)) as original:
        assert (written.format, written.mode) == ("PNG", "RGB")
        assert written.tobytes() == original.tobytes()
    monkeypatch.chdir(tmp_path)
    first, *_ = geometry3k.load("train", ".", images_dir="figures")
    assert first["images"] == paths[:1]  # absolute in any folder


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "1"])
def test_every_kind_of_figure_is_dark_lines_on_white(tmp_path, mode):
    encoded = figure()
    if mode in ("RGBA", "LA"):  # a transparent ground that is black underneath
        encoded = figure("RGBA", (0, 0, 0, 0), (0, 0, 0, 255))
    converted = io.BytesIO()
    with Image.open(io.BytesIO(encoded)) as picture:
        picture.convert(mode).save(converted, "PNG")
    (item,) = load(tmp_path, row(converted.getvalue()))
    with Image.open(item["images"][0]) as written:
        assert written.mode == "RGB"
        assert written.getpixel((0, 0)) == (255, 255, 255)
        assert written.getpixel((20, 15)) == (0, 0, 0)


def test_images_beside_a_file_of_lines(tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "1.jpg").write_bytes(figure(form="JPEG"))
    file = tmp_path / "test.jsonl"
    lines = [
        {"images": ["pictures/1.jpg"], "problem": PROBLEM, "answer": "1"},
        {"images": [{"path": "pictures/1.jpg"}], "problem": "In <image>, why?", "answer": "1"},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    items = list(geometry3k.load("test", str(file), images_dir=tmp_path / "figures"))
    assert items[0]["images"] == items[1]["images"]


@pytest.mark.parametrize(
    "images", [None, "1.png", [5], [None], [{"bytes": None, "path": None}], ["pictures/2.jpg"]]
)
def test_images_of_another_kind_are_refused(tmp_path, images):
    file = tmp_path / "test.jsonl"
    file.write_text(json.dumps({"images": images, "problem": PROBLEM, "answer": "1"}) + "\n")
    with pytest.raises(ValueError, match="row 1: "):
        list(geometry3k.load("test", str(file), images_dir=tmp_path / "figures"))


def bomb():
    """A PNG whose header says 60,000 x 60,000 pixels."""

    def chunk(kind, data):
        size = len(data).to_bytes(4, "big")
        return size + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    header = chunk(b"IHDR", 2 * (60_000).to_bytes(4, "big") + b"\x08\x00\x00\x00\x00")
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 1000))


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"<svg/>",
        base64.b64encode(figure()),
        figure(form="TIFF"),
        figure()[:-60],
        bomb(),
        figure("1", 1, 0, size=(8000, 4001)),
    ],
)
def test_an_image_that_does_not_open_is_refused_by_row(tmp_path, encoded):
    with pytest.raises(ValueError, match=r"row 2: an image of .* (does not open|is too large)"):
        load(tmp_path, row(figure()), row(encoded))
    assert [file.suffix for file in (tmp_path / "figures").iterdir()] == [".png"]  # the first row's


@pytest.mark.parametrize(
    ("problem", "images"),
    [("Find x.", 1), ("<image>Find x.", 0), ("<image><image>Find x.", 1), ("x", 0)],
)
def test_one_placeholder_for_each_image(tmp_path, problem, images):
    with pytest.raises(ValueError, match="row 2: the problem must say <image> once for each"):
        load(tmp_path, row(figure()), row(*[figure()] * images, problem=problem))


def test_the_prompt_keeps_the_placeholder_where_it_is():
    item = {"problem": PROBLEM, "answer": "2 \\sqrt{221}", "images": ["a.png"]}
    system, user = geometry3k.prompt(item)
    assert user["content"].startswith(PROBLEM)
    assert (system["content"] + user["content"]).count("<image>") == 1
    task = geometry3k.TASK
    label = task.label(item)
    assert label == "2 \\sqrt{221}"
    assert task.score(task.right_response(label), label).status == "correct"
