"""The page of an arena: nothing foreign runs in it, nothing is lost, and it stays small."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import json
import random
import re
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

from openrlhf_js.evaluation.arena.benches import bench_of
from openrlhf_js.evaluation.arena.browse import files_of, questions_of
from openrlhf_js.evaluation.arena.compare import compare
from openrlhf_js.evaluation.arena.files import Folder
from openrlhf_js.evaluation.arena.leaderboard import Plan, board
from openrlhf_js.evaluation.arena.pool import Pool, load
from openrlhf_js.evaluation.arena.rows import rows, table
from openrlhf_js.evaluation.arena.standing import Standing
from openrlhf_js.evaluation.arena.verdict import VERDICTS
from openrlhf_js.report import arena, arena_files, style
from openrlhf_js.report.arena_data import GROUP, fitted, packed
from openrlhf_js.report.arena_figure import forest
from openrlhf_js.report.arena_page import page
from openrlhf_js.report.arena_script import SCRIPT

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation" / "arena"))
from arena_pools import answer_row, judgment, random_pool, write_bench, write_judgments, write_lines

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\u2028\x00\ud83d{{7*7}}"
)


@pytest.fixture
def bench(tmp_path):
    """A small bench with one judgment that is incomplete, read."""
    folder = Folder(tmp_path, "mine")
    judgments = random_pool(models=2, questions=4)
    judgments[0] = judgment("q0", None, "failed", model="m0")
    write_bench(folder.root, judgments)
    pools = load(folder, ["j"], warn=[].append)
    return folder, pools, [board(pool, ["j"], Plan()) for pool in pools]


class Page(HTMLParser):
    """The elements of a page, and what its scripts hold."""

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
    folder, pools, boards = bench
    data = questions_of(folder, pools, ["j"], ["m0", "m1"])
    assert [question["uid"] for question in data["questions"]] == ["q0", "q1", "q2", "q3"]
    found = Page(page("heading", boards, data).html)
    listing, texts = unpack(found.scripts["listing"]), unpack(found.scripts["texts-0"])
    assert listing["models"] == ["m0", "m1"] and listing["judges"] == ["j"]
    first = listing["questions"][0]
    assert (first["uid"], first["title"], first["baseline"]) == ("q0", "prompt of q0", "base")
    assert first["models"]["0"]["0"] == [None, None]
    assert texts[0]["models"]["0"]["judged"]["0"] == ["first text", None]
    assert texts[1]["baseline"]["text"] == "base on q1: text"
    assert texts[1]["models"]["1"]["text"] == "m1 on q1: text"
    for question in listing["questions"][1:]:
        assert all(verdict in VERDICTS for verdict in question["models"]["1"]["0"])


def test_nothing_but_our_script_can_run(bench):
    folder, pools, boards = bench
    text = page("heading", boards, questions_of(folder, pools, ["j"], ["m0"])).html
    found = Page(text)
    policy = next(a["content"] for tag, a in found.elements if a.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256(found.scripts["code"].encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:"
    )
    assert found.scripts["code"] == SCRIPT
    # before anything that it should guard
    assert text.index("Content-Security-Policy") < text.index("<script")
    links = [a[name] for _, a in found.elements for name in ("src", "href") if name in a]
    assert links and all(link.startswith("data:image/svg+xml") for link in links)
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way not in SCRIPT


def test_hostile_texts_stay_texts(tmp_path):
    folder = Folder(tmp_path, "mine")
    name = "<script>alert('model')</script>"[:20].replace("/", "")
    judgments = [judgment(HOSTILE, 1, -1, model=name), judgment("q1", 1, 1, model=name)]
    write_bench(folder.root, judgments, text=HOSTILE)
    rows_of = [json.loads(line) for line in folder.judgments("j", name).open(encoding="utf-8")]
    rows_of[0]["games"][0]["judgment"]["answer"] = HOSTILE
    write_lines(folder.judgments("j", name), rows_of)
    (pool,) = load(folder, ["j"], warn=[].append)
    boards = [board(pool, ["j"], Plan())]
    data = questions_of(folder, [pool], ["j"], [name])
    text = page(HOSTILE, boards, data, [HOSTILE]).html
    found = Page(text)
    assert [tag for tag, _ in found.elements].count("script") == 3
    assert not any(name.startswith("on") for _, attributes in found.elements for name in attributes)
    assert "alert(1)" not in "".join(found.scripts.values())
    assert unpack(found.scripts["texts-0"])[0]["models"]["0"]["text"].endswith(HOSTILE)
    assert "\x00" not in text
    assert HOSTILE[:30] in found.text.replace("\n", "")  # shown, not run
    text.encode()  # half a character of a pair would not be UTF-8


def test_a_model_s_thinking_and_a_missing_answer(bench):
    folder, pools, _ = bench
    lines = [answer_row(f"q{n}", "m0", "answer") for n in range(3)]
    lines[0]["messages"][-1]["content"]["thought"] = "let me think"
    write_lines(folder.answers("m0"), lines)
    questions = questions_of(folder, pools, ["j"], ["m0"])["questions"]
    assert questions[0]["models"]["0"]["thinking"] == "let me think"
    assert "thinking" not in questions[1]["models"]["0"]
    assert questions[3]["models"]["0"]["text"] is None
    counted = []
    questions_of(folder, pools, ["j"], ["m0"], counted.append)
    assert counted[-1] == files_of(folder, pools, ["j"], 1) == 3


def test_judgments_of_other_categories_and_baselines_are_not_shown(bench):
    folder, pools, _ = bench
    other = [
        judgment("q1", 1, 1, model="m0", baseline="another"),
        judgment("q2", 1, 1, model="m0", category="unasked"),
        judgment("q3", 1, 1, model="m0"),
    ]
    write_judgments(folder.root, other)
    found = questions_of(folder, pools, ["j"], ["m0"])
    assert [question["uid"] for question in found["questions"]] == ["q3"]


def large(models, thinking=0, questions=GROUP + 1):
    """Data with texts that do not compress."""
    rng = random.Random(0)
    return {
        "models": [f"m{n}" for n in range(models)],
        "judges": ["j"],
        "questions": [
            {
                "uid": f"q{q}",
                "category": "c",
                "cluster": "",
                "prompt": "  why \n ask  " * 100,
                "baseline": {"name": "base", "text": "b"},
                "models": {
                    str(m): {
                        "text": rng.randbytes(300).hex(),
                        "judged": {"0": [["A>B", "x"], None]},
                        **({"thinking": rng.randbytes(thinking).hex()} if thinking else {}),
                    }
                    for m in range(models)
                },
            }
            for q in range(questions)
        ],
    }


def test_questions_are_packed_in_groups():
    found = packed(large(1))
    assert [len(unpack(group)) for group in found.groups] == [GROUP, 1]
    listing = unpack(found.listing)
    assert listing["group"] == GROUP and len(listing["questions"]) == GROUP + 1
    assert listing["questions"][0]["title"].startswith("why ask why ask")
    assert len(listing["questions"][0]["title"]) <= 120
    assert listing["questions"][0]["models"] == {"0": {"0": ["A>B", None]}}


def test_what_does_not_fit_goes_thinking_first_then_the_last_models():
    data = large(4, thinking=400)
    whole, bare = packed(data).size, packed(large(4)).size
    kept = fitted(data, whole)
    assert kept.notes == [] and kept.size == whole
    without = fitted(data, int(1.1 * bare))
    assert without.size <= 1.1 * bare
    assert without.notes == ["What the models thought before they answered is left out: too large."]
    fewer = fitted(data, int(0.6 * bare))
    assert fewer.size <= 0.6 * bare
    assert unpack(fewer.listing)["models"] == ["m0", "m1"]
    assert "m2, m3. Choose by --models" in fewer.notes[1]
    one = fitted(data, 10)
    assert unpack(one.listing)["models"] == ["m0"]


def test_rows_and_words(bench):
    _, (pool,), (found,) = bench
    assert arena.title(found) == "hard, judged by j"
    assert all(len(arena.row(line)) == len(arena.columns(found)) for line in found.lines)
    cells = dict(
        zip(arena.COLUMNS, arena.row(next(x for x in found.lines if x.model == "m0")), strict=True)
    )
    assert cells["questions"] == "3 of 4" and cells["no verdict"] == "25.0 %"
    words = " ".join(arena.in_words([found])[0])
    for said in (
        "Intervals: 95 %, by question.",
        "Few questions, so take the interval with caution: m",
        "Scored on a part of the questions: m0.",
        "12.5 % of all games have no verdict (1 failed, 1 without one): judge again",
        "1 of 8 judgments lack a verdict and are left out whole.",
        "name different winners in",
    ):
        assert said in words
    told = found._replace(protocol=Standing(False, ("the judge is j",)))
    twice = arena.in_words([told, told])
    assert "Not the official protocol: the judge is j." in twice[0]
    assert twice[1] == arena.of_scores(told)

    controlled = board(pool, ["j"], Plan("official", "length", rounds=20))
    assert arena.title(controlled) == "hard, judged by j, style controlled: length"
    assert all(len(arena.row(x)) == len(arena.columns(controlled)) for x in controlled.lines)
    words = " ".join(arena.of_scores(controlled))
    assert "90 %, by row as the script of v2.0 has it. They count rows" in words
    assert "Style, in log-odds of one standard deviation: length" in words


def test_a_judge_that_favours_a_side_is_told_of():
    biased = [judgment(f"q{n}", -1, 1 if n % 4 else -1) for n in range(40)]
    pool = Pool("hard", table(biased, "base"), 40, {}, bench_of("mine", "base"))
    words = " ".join(arena.of_judging(board(pool, ["j"], Plan())))
    assert "The judge favours the answer shown first: 87.5 %" in words


def test_comparisons_in_words():
    judged = table(random_pool(models=3, questions=60), "base")
    clear = " ".join(arena.compared(compare(rows(judged), judged, "m2", "m0"), "where"))
    assert re.search(
        r"where, m2 against m0, paired by question: \d+\.\d - \d+\.\d = \+\d+\.\d points \(95 %: "
        r"\d.* to \d.*\), p < 0.0001; m2 is better\. On the 60 questions that count for both\. "
        r"This test would have seen a difference of \d+\.\d points or more",
        clear,
    )
    assert "Left out" not in clear
    alike = table(
        [judgment(f"q{n}", m, m, model="a") for n, m in enumerate([1, -1] * 5)]
        + [judgment(f"q{n}", m, m, model="b") for n, m in enumerate([-1, 1] * 4)],
        "base",
    )
    unclear = " ".join(arena.compared(compare(rows(alike), alike, "a", "b"), "w"))
    assert "p = 1; these questions do not tell which one is better" in unclear
    assert "Left out are questions that count for one alone: 2 for a, 0 for b." in unclear


def test_files_of_lines(bench):
    _, _, (found,) = bench
    plain = json.loads(arena_files.as_json(found.lines))
    assert [each["model"] for each in plain] == [line.model for line in found.lines]
    assert plain[0]["ci_low"] == found.lines[0].ci_low
    lines = arena_files.as_csv(found.lines).splitlines()
    assert lines[0].startswith("model,score,ci_low,ci_high,category,judge")
    assert len(lines) == 4 and ",j,j,base,none,clustered,0.95," in lines[1]


@pytest.mark.parametrize("sign", ["=", "+", "-", "@"])
def test_a_name_is_no_formula_to_a_spreadsheet_and_a_number_stays_one(bench, sign):
    _, _, (found,) = bench
    name = f"{sign}1+1"
    line = found.lines[0]._replace(model=name, judges=(name, "j"), ci_low=-1.5)
    (row,) = csv.DictReader(io.StringIO(arena_files.as_csv([line]), newline=""))
    assert (row["model"], row["judges"]) == (f"'{name}", f"'{name}; j")
    assert row["ci_low"] == "-1.5" and row["baseline"] == "base"


def test_many_comparisons_are_told_of_once():
    assert arena.by_chance(4) == []
    (said,) = arena.by_chance(20)
    assert "20 comparisons" in said and "about 1 of them would have p < 0.05" in said
    assert said.endswith("ask for p < 0.0025.")


def test_markdown_shows_names_as_they_are(bench):
    _, _, (found,) = bench
    strange = found._replace(
        lines=[found.lines[0]._replace(model="a|b <b>*x*</b> [c](d)"), *found.lines[1:]]
    )
    text = arena_files.as_markdown([strange], ["more *words*"])
    assert "| a\\|b \\<b\\>\\*x\\*\\</b\\> \\[c\\](d) |" in text
    rows_of = [line for line in text.split("\n") if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows_of}) == 1
    assert "more \\*words\\*" in text and text.startswith("## hard, judged by j\n\n| model |")


def test_the_picture_is_a_drawing_with_names(bench):
    _, _, (found,) = bench
    svg = style.svg(forest([found, found]))
    ET.fromstring(svg)
    assert svg.count(">m0<") == 2 and "score, per cent" in svg and "hard, judged by j" in svg
    assert svg == style.svg(forest([found, found]))
    many = found._replace(lines=[found.lines[0]._replace(model=f"n{i}\x00$") for i in range(80)])
    crowded = style.svg(forest([many]))
    assert "20 lower ones are not shown" in crowded and ">n79" not in crowded
