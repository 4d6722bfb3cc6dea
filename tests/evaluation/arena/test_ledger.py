"""The ledger of paid replies: nothing lost, nothing believed that is damaged."""

from __future__ import annotations

import json
import os

import pytest

from openrlhf_js.evaluation.arena.ledger import Ledger, key_of
from openrlhf_js.evaluation.arena.prices import Bill, Worst
from openrlhf_js.evaluation.arena.verdict import parse_verdict
from openrlhf_js.evaluation.replies import Reply

GOOD = Reply("so\u2028[[A>B]]", "hm", "stop", 100, 10)
SILENT = Reply("I cannot say", "", "length", 50, 5)


def no_warning(line):
    raise AssertionError(line)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "own" / "judge_ledger" / "stub.jsonl"


def opened(path, warn=no_warning, verdict_of=parse_verdict, **how):
    return Ledger(path, verdict_of, warn, **how)


def filled(path):
    with opened(path) as ledger:
        assert ledger.add("k1", "m", 400, GOOD, uid="q1", game=1) == "A>B"
        assert ledger.add("k2", "m", 200, SILENT) is None
        assert ledger.add("k2", "n", 200, GOOD._replace(prompt_tokens=None)) == "A>B"
        ledger.sync()


def test_what_is_added_is_found_again(path):
    filled(path)
    with opened(path) as ledger:
        assert {key: entry.verdict for key, entry in ledger.verdicts.items()} == {
            "k1": "A>B",
            "k2": "A>B",
        }
        assert ledger.silent == {"k2": 1}
        assert ledger.text("k1") == ledger.text("k2") == GOOD.text
        assert ledger.bills["m"] == Bill(2, 150, 15, 2, 600, 150, 15)
        assert ledger.paid(["m", "n", "nobody"]) == Bill(3, 350, 25, 2, 600, 150, 15)
        assert "nobody" not in ledger.bills
        ledger.add("k3", "m", 1, Reply("[[B>A]]", "", "", 1, 1))
        assert ledger.text("k3") == "[[B>A]]"
        assert ledger.text("k1") == GOOD.text


def test_lost_replies_are_no_replies_and_count_at_worst(path):
    filled(path)
    with opened(path) as ledger:
        paid = ledger.paid(["m"])
        ledger.lose("k9", "m", 400, Worst(500, 16000, 1.0), uid="q9")
        ledger.add("k9", "m", 400, GOOD)
        assert ledger.text("k9") == GOOD.text
    with opened(path) as ledger:
        assert ledger.text("k9") == GOOD.text
        assert ledger.silent == {"k2": 1}
        assert (ledger.paid(["m"]) - paid).prompt_tokens == 100
        assert (ledger.paid_at_worst(["m"]) - paid).prompt_tokens == 100 + 500
        assert (ledger.paid_at_worst(["m"]) - paid).completion_tokens == 10 + 16000
        assert ledger.paid_at_worst(["n", "nobody"]) == ledger.paid(["n"])


def test_a_reply_is_written_before_its_verdict_is_looked_for(path):
    def look(text):
        assert path.read_bytes().endswith(b"\n")
        raise KeyboardInterrupt

    with opened(path, verdict_of=look) as ledger, pytest.raises(KeyboardInterrupt):
        ledger.add("k1", "m", 400, GOOD)
    with opened(path) as ledger:
        assert ledger.text("k1") == GOOD.text


def test_lines_hold_everything_and_are_lines_for_everybody(path):
    filled(path)
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) == 3  # U+2028 is written as an escape
    assert json.loads(text.split("\n")[0]) == {
        "key": "k1",
        "model": "m",
        "uid": "q1",
        "game": 1,
        "prompt_bytes": 400,
        **GOOD._asdict(),
    }


def test_a_line_cut_short_by_a_kill_is_left_out_and_the_next_one_is_whole(path):
    filled(path)
    whole = path.read_bytes()
    for cut in (2, 20, len(whole.split(b"\n")[2])):
        path.write_bytes(whole[:-cut])
        warnings = []
        with opened(path, warnings.append) as ledger:
            assert list(ledger.verdicts) == ["k1"]
            ledger.add("k4", "m", 1, GOOD)
        assert len(warnings) == 1
        assert "line 3: a reply that a kill cut short" in warnings[0]
        with opened(path) as ledger:
            assert sorted(ledger.verdicts) == ["k1", "k4"]
            assert ledger.text("k4") == GOOD.text


def test_a_line_that_lacks_only_its_end_is_kept(path):
    filled(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with opened(path, write=False) as ledger:
        assert ledger.text("k2") == GOOD.text
    assert path.read_bytes() == whole[:-1]
    with opened(path) as ledger:
        ledger.add("k4", "m", 1, GOOD)
        assert ledger.text("k2") == ledger.text("k4") == GOOD.text
    assert path.read_bytes().startswith(whole)
    with opened(path) as ledger:
        assert sorted(ledger.verdicts) == ["k1", "k2", "k4"]


@pytest.mark.parametrize(
    "line",
    [
        b"not JSON",
        b"\xff\xfe",
        b"[1]",
        b"{}",
        b'{"key": 1, "model": "m", "text": "[[A>B]]", "thinking": ""}',
        b'{"key": "k", "model": "m", "text": "[[A>B]]", "thinking": "", "prompt_tokens": "9"}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_line_is_told_of_and_kept(path, line):
    filled(path)
    first, *rest = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([first, line, *rest]))
    warnings = []
    with opened(path, warnings.append) as ledger:
        assert ledger.text("k1") == ledger.text("k2") == GOOD.text
        ledger.add("k5", "m", 1, GOOD)
        assert ledger.text("k5") == GOOD.text
    (warning,) = warnings
    assert "line 2: no reply of a judge; left out" in warning
    assert path.read_bytes().split(b"\n")[1] == line


def test_better_patterns_find_verdicts_that_were_paid_for(path):
    filled(path)
    with opened(path, verdict_of=lambda text: "A=B" if "cannot" in text else None) as ledger:
        assert {key: entry.verdict for key, entry in ledger.verdicts.items()} == {"k2": "A=B"}
        assert ledger.text("k2") == SILENT.text
        assert ledger.silent == {"k1": 1, "k2": 1}


def test_only_one_writes(path):
    with opened(path), pytest.raises(ValueError, match="another call judges the same bench"):
        opened(path)
    opened(path).__exit__()


def test_reading_makes_nothing_and_disturbs_nobody(path):
    with opened(path, write=False) as ledger:
        assert not ledger.verdicts
        assert ledger.paid(["m"]) == Bill()
    assert not path.parent.exists()
    filled(path)
    path.write_bytes(path.read_bytes() + b'{"half')
    warnings = []
    with opened(path, warnings.append) as writer, opened(path, write=False) as reader:
        assert sorted(reader.verdicts) == sorted(writer.verdicts) == ["k1", "k2"]
        assert reader.text("k1") == GOOD.text
    assert len(warnings) == 1


def test_a_full_disk_leaves_no_half_line(path, monkeypatch):
    filled(path)
    before = path.read_bytes()
    with opened(path) as ledger:

        class Full:
            """Takes ten bytes, then the disk is full."""

            def __init__(self, file):
                self.file, self.left = file, 10

            def write(self, data):
                if not self.left:
                    raise OSError(28, "No space left on device")
                count = self.file.write(bytes(data[: self.left]))
                self.left -= count
                return count

            def __getattr__(self, name):
                return getattr(self.file, name)

        whole = ledger._file
        ledger._file = Full(whole)
        with pytest.raises(OSError, match="No space left") as error:
            ledger.add("k6", "m", 1, GOOD)
        assert error.value.filename == str(path)
        assert path.read_bytes() == before
        assert "k6" not in ledger.verdicts
        ledger._file = whole
        ledger.add("k6", "m", 1, GOOD)
        assert ledger.text("k6") == GOOD.text
    assert os.path.getsize(path) > len(before)


def test_a_key_is_what_is_asked():
    messages = [{"role": "user", "content": "x\ud800"}]
    key = key_of("j", {"temperature": 0.0, "max_tokens": 9}, messages)
    assert len(key) == 64
    assert key == key_of("j", {"max_tokens": 9, "temperature": 0.0}, [dict(messages[0])])
    others = [
        key_of("k", {"temperature": 0.0, "max_tokens": 9}, messages),
        key_of("j", {"temperature": 0.5, "max_tokens": 9}, messages),
        key_of("j", {"temperature": 0.0, "max_tokens": 9, "seed": 1}, messages),
        key_of("j", {"temperature": 0.0, "max_tokens": 9}, [{"role": "user", "content": "y"}]),
        key_of("j", {"temperature": 0.0, "max_tokens": 9}, messages * 2),
    ]
    assert len({key, *others}) == 6
