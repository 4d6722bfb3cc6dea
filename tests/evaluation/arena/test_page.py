"""The page and files of scores: nothing foreign runs, and nothing is lost."""

import json

import pytest
from chromium import opened
from judged_bench import BASELINE, answer_row, judgment_row, write_judged, write_lines

from openrlhf_js.evaluation.arena.board import Boards, board
from openrlhf_js.evaluation.arena.data import Folder
from openrlhf_js.evaluation.arena.pool import load
from openrlhf_js.report.arena import cells, markdown, page

HOSTILE = (
    "</script><script>top.ran = 1</script><img src=x onerror=top.ran=2>&amp;\u2028\x00{{7*7}}"
    "[a](javascript:top.ran=3) ![b](http://h/b.png) <javascript:top.ran=4> [c]: http://h 'd'"
)
LONG_NAME = "Llama-3.2-3B-Instruct-" + "x" * 60


@pytest.fixture
def judged(tmp_path):
    """A page with every outcome of a judgment, two judges, and texts that would do harm."""
    outcomes = [(2, 1), (0, 1), (-1, -2), (1, -1), (0, 0), (None, -2)]
    rows = []
    for number, margins in enumerate(outcomes):
        rows.append(judgment_row(f"q{number}", *margins, model=LONG_NAME))
        rows.append(judgment_row(f"q{number}", -1, -1, model="rival"))
    rows.append(judgment_row("q0", "failed", -1, model=LONG_NAME, judge="k"))
    rows.append(judgment_row("q1", 1, 1, model=LONG_NAME, judge="k"))
    for row in rows:
        for game in row["games"]:
            if game:
                game["judgment"]["answer"] = HOSTILE
    write_judged(tmp_path, rows, characters=3000)
    bench = Folder(tmp_path, "own")
    thoughts = answer_row("q0", LONG_NAME, HOSTILE)
    thoughts["messages"][-1]["content"]["thought"] = "let me think"
    write_lines(bench.answers(LONG_NAME), [thoughts])
    pools = load(bench, ["j", "k"], baseline=BASELINE)
    boards = [board(pools[0], judges) for judges in (["j"], ["j", "k"])]
    path = tmp_path / "page.html"
    path.write_text(page(pools, Boards(boards, [HOSTILE], [])), encoding="utf-8")
    return path


def test_a_browser_shows_the_page(judged):
    with opened(judged) as tab:
        the_pictures_and_texts_are_there_and_nothing_foreign_runs(tab)
        outcomes_are_words_and_chips_count_them(tab)
        tab.check()
    html = judged.read_text(encoding="utf-8")
    assert html.count("let me think") == 1
    assert "\x00" not in html
    assert "No answer is in the files." in html
    assert "The judge's call was refused or failed." in html


def the_pictures_and_texts_are_there_and_nothing_foreign_runs(tab):
    tab.evaluate("document.querySelectorAll('details').forEach(node => { node.open = true; })")
    assert tab.evaluate("window.ran ?? null") is None
    assert tab.evaluate("document.scripts.length") == 1
    pictures = tab.evaluate("[...document.images].map(image => image.alt)")
    assert [alt.partition(".")[0] for alt in pictures] == [
        f"Score against {BASELINE}, score, %"
    ] * 2
    assert tab.texts("figcaption .quiet") == ["intervals: 95 %, by question"] * 2
    assert tab.texts("a[href]") == ["6 questions with every answer and verdict"]
    shown = tab.evaluate("document.querySelector('.pair [data-model]:not([hidden])').textContent")
    for text in ("let me think", "<script>top.ran = 1</script>", "![b](http://h/b.png)", "{{7*7}}"):
        assert text in shown


def outcomes_are_words_and_chips_count_them(tab):
    assert tab.texts(".question > summary .outcome") == [
        "won twice",
        "won once, tied once",
        "lost twice",
        "split",
        "tied twice",
        "lost once, no verdict once",
    ]
    chips = ["all 6", "won 2", "lost 1", "split 1", "tied 1", "no verdict 1"]
    assert tab.texts(".chips button") == chips
    tab.click(".chips [data-kind=split]")
    assert tab.text("#count") == "1 of 6 questions"
    assert tab.texts(".question > summary .outcome") == ["split"]
    assert tab.evaluate("document.querySelector('.chips [data-kind=split]').ariaPressed") == "true"
    tab.choose("#search", "prompt of q1", "input")
    tab.until("document.getElementById('count').textContent === '0 of 6 questions'")
    assert tab.texts(".chips button")[:2] == ["all 1", "won 1"]
    tab.choose("#search", "", "input")
    tab.click(".chips button")
    tab.choose("#judge", "1", "change")
    assert tab.texts(".question > summary .outcome") == ["lost once, no verdict once", "won twice"]


def test_a_game_with_another_official_verdict_says_both(tmp_path):
    row = judgment_row("q0", 1, 2)
    row["games"][0]["judgment"]["answer"] = "Verdict: [[A>>B]], though it says `[[B>A]]`."
    write_judged(tmp_path, [row])
    pools = load(Folder(tmp_path, "own"), ["j"], baseline=BASELINE)
    said = "(A&gt;&gt;B) (by the official rule B&gt;A), with the baseline shown"
    assert said in page(pools, Boards([board(pools[0], ["j"])], [], []))


def test_markdown_is_rendered_and_bounded():
    text = "# T\n**b** `c`\n\n|x|\n|-|\n|1|\n\n```x' onload=y\n<i>\n```"
    html = markdown(text)
    for tag in ("<h1>T", "<strong>b", "<code>c", "<td>1", "&lt;i&gt;"):
        assert tag in html
    assert "onload" not in html
    assert markdown("*" * 60_000) == f'<pre class="plain">{"*" * 60_000}</pre>'


def test_cells_say_what_they_count(tmp_path):
    write_judged(tmp_path, [judgment_row("q0", 2, 1), judgment_row("q1", -2, 0)])
    (pool,) = load(Folder(tmp_path, "own"), ["j"], baseline=BASELINE)
    scores = board(pool, ["j"])
    best, baseline = cells(scores)
    assert best["questions"] == "2 of 2"
    assert best["games won/lost/tied"] == "2/1/1"
    assert best["score"].startswith("56.2 (")
    assert baseline["score"] == "50.0"  # no interval: half of its own games
    assert json.loads(json.dumps(scores.rows, allow_nan=False)) == scores.rows
