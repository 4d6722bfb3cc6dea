"""The page and files of scores: nothing foreign runs, nothing is lost, and it stays small."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import json
from html.parser import HTMLParser

import pytest
from judged_bench import answer_row, judgment_row, random_rows, write_judged, write_lines

from openrlhf_js.evaluation.arena.data import Folder
from openrlhf_js.evaluation.arena.page import (
    TEMPLATES,
    as_csv,
    cells,
    image,
    pack,
    page,
)
from openrlhf_js.evaluation.arena.score import Plan, board, load

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\u2028\x00{{7*7}}"


@pytest.fixture
def bench(tmp_path):
    """Two models on four questions, one judgment incomplete: pools and boards."""
    rows = random_rows(2, 4)
    rows[0] = judgment_row("q0", None, "failed", model="m0")
    write_judged(tmp_path, rows)
    pools = load(Folder(tmp_path, "own"), ["j"])
    return pools, [board(pool, ["j"], Plan()) for pool in pools]


class Parsed(HTMLParser):
    """The elements of a page, what its scripts hold, and its text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.text = [], {}, ""
        self._script = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "script":
            self._script = dict(attributes).get("id", "code")

    def handle_endtag(self, tag):
        self._script = None

    def handle_data(self, data):
        if self._script:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data
        else:
            self.text += data


def unpack(text):
    return json.loads(gzip.decompress(base64.b64decode(text)))


def test_the_page_holds_every_text_once_unpacked(bench):
    found = Parsed(page(*bench, []))
    data = unpack(found.scripts["data"])
    assert sorted(data["models"]) == ["m0", "m1"] and data["judges"] == ["j"]
    place = str(data["models"].index("m0"))
    first, second = data["questions"][:2]
    assert (first["uid"], first["prompt"]) == ("q0", "prompt of q0")
    assert first["models"][place]["judged"]["0"] == [[None, "because"], None]
    assert second["baseline"] == {"name": "base", "text": "base says q1.", "thinking": ""}
    assert second["models"][place]["text"] == "m0 says q1."


def test_nothing_but_our_script_can_run(bench):
    text = page(*bench, [])
    found, script = Parsed(text), (TEMPLATES / "arena.js").read_text("utf-8")
    policy = next(a["content"] for tag, a in found.elements if a.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:"
    )
    assert found.scripts["code"] == script
    assert text.index("Content-Security-Policy") < text.index("<script")
    links = [a[name] for _, a in found.elements for name in ("src", "href") if name in a]
    assert links and all(link.startswith("data:image/svg+xml") for link in links)
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way not in script


def test_hostile_texts_stay_texts(tmp_path):
    name = "<script>alert('x')<$"
    rows = [judgment_row(HOSTILE, 1, -1, model=name), judgment_row("q1", 1, 1, model=name)]
    rows[0]["games"][0]["judgment"]["answer"] = HOSTILE
    folder = Folder(tmp_path, "own")
    write_judged(tmp_path, rows)
    write_lines(folder.answers(name), [answer_row(HOSTILE, name, HOSTILE)])
    pools = load(folder, ["j"])
    text = page(pools, [board(pools[0], ["j"], Plan())], [HOSTILE])
    found = Parsed(text)
    assert [tag for tag, _ in found.elements].count("script") == 2
    assert not any(name.startswith("on") for _, own in found.elements for name in own)
    assert "alert(1)" not in "".join(found.scripts.values())
    assert unpack(found.scripts["data"])["questions"][0]["models"]["0"]["text"] == HOSTILE
    assert "\x00" not in text and "{{7*7}}" in found.text
    assert HOSTILE[:30] in found.text and name in found.text  # shown, not run


def test_thinking_and_missing_answers(bench):
    folder = bench[0][0].folder
    lines = [answer_row("q0", "m0", "answer")]
    lines[0]["messages"][-1]["content"]["thought"] = "let me think"
    write_lines(folder.answers("m0"), lines)
    first, second, *_ = unpack(pack(bench[0], ["j"], ["m0"]))["questions"]
    assert first["models"]["0"]["thinking"] == "let me think"
    assert second["models"]["0"]["text"] is None


def test_cells_and_files(bench):
    pools, boards = bench
    line = next(row for row in cells(boards[0]) if row["model"] == "m0")
    assert line["questions"] == "3 of 4"
    plain = json.loads(json.dumps(boards[0].rows, allow_nan=False))
    assert {"ci_low", "deviations", "much_weight", "worst_case_low"} <= set(plain[0])
    controlled = board(pools[0], ["j"], Plan(style_control="length"))
    assert controlled.title == "all, judged by j, style controlled: length"
    assert any("Style, in log-odds" in note and "length" in note for note in controlled.notes)
    assert "without control" in cells(controlled)[0]
    (line, *_) = csv.DictReader(io.StringIO(as_csv(boards[0].rows)))
    assert float(line["score"]) == pytest.approx(plain[0]["score"]) and line["deviations"]
    assert image([*boards, controlled], "svg") == image([*boards, controlled], "svg")
