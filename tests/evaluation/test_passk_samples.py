import json
import sys
from pathlib import Path

import pytest

from openrlhf_js.evaluation.passk.items import item_of, items_of_file
from openrlhf_js.evaluation.passk.samples import Sample, SampleFile

sys.path.insert(0, str(Path(__file__).parent))
from passk_kit import items, lines

IDENTITY = {"model": "here", "model_sha256": "abc", "temperature": 0.5}
ITEMS = items(4)


def sample(item, draw, text="said"):
    return Sample(item, draw, 7, text, 3, "stop", "correct", "1", 0.25)


def opened(folder, identity=IDENTITY, made=ITEMS):
    return SampleFile(folder, "toy", identity, made)


def test_what_was_written_is_there_again(tmp_path):
    with opened(tmp_path) as file:
        file.append([sample(0, 0, "one\u2028\ud800\n"), sample(2, 1)])
    assert [each["text"] for each in lines(file.path)] == ["one\u2028\ud800\n", "said"]
    with opened(tmp_path) as file:
        assert file.samples == {(0, 0): sample(0, 0, ""), (2, 1): sample(2, 1, "")}
        assert file.missing(4, 2) == 6
    told = [json.loads(line) for line in (tmp_path / "samples/toy.items.jsonl").open("rb")]
    assert [each["uid"] for each in told] == [each.uid for each in ITEMS]


def test_batches_do_not_depend_on_what_is_there(tmp_path):
    with opened(tmp_path) as file:
        everything = list(file.batches(4, 3, 5))
        assert [len(each) for each in everything] == [5, 5, 2]
        file.append(sample(*place) for place in everything[1])
        assert list(file.batches(4, 3, 5)) == [everything[0], everything[2]]
        file.append([sample(0, 1)])
        first = next(file.batches(4, 3, 5))
        assert first == [each for each in everything[0] if each != (0, 1)]


def test_a_line_that_was_cut_short_is_dropped(tmp_path):
    with opened(tmp_path) as file:
        file.append([sample(0, 0), sample(0, 1)])
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[:-20])
    with opened(tmp_path) as again:
        assert set(again.samples) == {(0, 0)}
        again.append([sample(0, 1)])
    assert file.path.read_bytes() == whole


def test_a_header_that_was_cut_short_is_written_anew(tmp_path):
    with opened(tmp_path) as file:
        pass
    file.path.write_bytes(file.path.read_bytes()[:10])
    with opened(tmp_path) as file:
        file.append([sample(1, 1)])
    with opened(tmp_path) as file:
        assert set(file.samples) == {(1, 1)}


def test_other_settings_are_refused_and_notes_are_not(tmp_path):
    with opened(tmp_path) as file:
        file.append([sample(0, 0)])
    with pytest.raises(ValueError, match=r"temperature: 0\.5 there, 0\.7 now"):
        opened(tmp_path, {**IDENTITY, "temperature": 0.7})
    with opened(tmp_path, {**IDENTITY, "model": "moved"}) as file:
        assert len(file.samples) == 1


def test_items_may_be_added_but_not_changed(tmp_path):
    with opened(tmp_path, made=ITEMS[:2]) as file:
        file.append([sample(0, 0)])
    with opened(tmp_path) as file:
        assert len(list(file.path.with_suffix(".items.jsonl").open("rb"))) == 4
    with opened(tmp_path, made=ITEMS[:1]):
        pass
    assert len(list(file.path.with_suffix(".items.jsonl").open("rb"))) == 4
    with pytest.raises(ValueError, match="of other items, from number 2 on; give another --out"):
        opened(tmp_path, made=[ITEMS[0], ITEMS[2]])


def test_a_folder_with_figures_may_be_moved(tmp_path):
    seen = [each._replace(images=["/here/a.png"]) for each in ITEMS]
    with opened(tmp_path, made=seen) as file:
        file.append([sample(0, 0)])
    moved = [each._replace(images=["/there/a.png"]) for each in ITEMS]
    with opened(tmp_path, made=moved) as file:
        assert len(file.samples) == 1


def test_the_settings_of_the_samples_are_known(tmp_path):
    with opened(tmp_path, {**IDENTITY, "versions": {"torch": "1"}}) as file:
        assert file.identity["versions"] == {"torch": "1"}
        file.append([sample(0, 0)])
    with opened(tmp_path, {**IDENTITY, "versions": {"torch": "2"}}) as file:
        assert file.identity["versions"] == {"torch": "1"}


def test_only_one_process_writes(tmp_path):
    with opened(tmp_path), pytest.raises(ValueError, match="another process samples into"):
        opened(tmp_path)
    with opened(tmp_path):
        pass


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "nothing",
        '{"item": -1}',
        "[" * 10**5,
        json.dumps({**sample(0, 0)._asdict(), "status": "fine"}),
        json.dumps({**sample(0, 0)._asdict(), "tokens": True}),
        json.dumps({**sample(0, 0)._asdict(), "answer": 3}),
        json.dumps({**sample(0, 0)._asdict(), "seconds": "1"}),
    ],
)
def test_damaged_lines(tmp_path, line):
    with opened(tmp_path) as file:
        file.append([sample(0, 0)])
    with file.path.open("a") as appended:
        appended.write(line + "\n")
    with pytest.raises(ValueError, match="line 3, is damaged: delete that line"):
        opened(tmp_path)


def test_a_file_of_something_else(tmp_path):
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples/toy.jsonl").write_text("[1]\n")
    with pytest.raises(ValueError, match=r"toy\.jsonl is no file of samples"):
        opened(tmp_path)


ROW = {"input": "2 + 2?", "label": "4", "datasource": "gsm8k"}


def test_items_are_told_apart_by_content():
    messages = [{"role": "user", "content": "2 + 2?"}]
    again = item_of(dict(ROW))
    assert item_of(ROW).uid == again.uid
    others = [{**ROW, "label": "5"}, {**ROW, "input": messages}, {**ROW, "images": ["a/1.png"]}]
    assert len({item_of(row).uid for row in (ROW, *others)}) == 4
    moved = {**ROW, "images": ["b/1.png"]}
    assert item_of(moved).uid == item_of(others[2]).uid
    assert item_of(others[1]).messages == item_of(ROW).messages == messages
    assert item_of(others[1]).text == "2 + 2?"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"input": "x"}, "no value under the key 'label'; keys seen: input"),
        ({**ROW, "label": 4}, "'label' holds int; it must hold text"),
        ({**ROW, "input": []}, "a list of messages, or text"),
        ({**ROW, "input": ["x"]}, "must have a role and a content"),
        ({**ROW, "datasource": "poetry"}, "no task grades the datasource 'poetry'"),
        ({**ROW, "label": "four"}, "the label must be a number"),
        ({**ROW, "images": [3]}, "must hold a list of paths"),
    ],
)
def test_rows_that_are_no_items(tmp_path, row, message):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2: .*" + message):
        items_of_file(path)


def test_an_empty_file(tmp_path):
    (tmp_path / "none.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="holds no item: build it with `openrlhf-js data build`"):
        items_of_file(tmp_path / "none.jsonl")
