"""The page of pass@k's samples in a real browser: squares, filters, search, and hostile texts."""

import json
from pathlib import Path

import pytest
from chromium import WIDTHS, browser
from passk_kit import group, items, write_results

from paired_eval.pages import passk, samples
from paired_eval.pages.passk import PasskRun
from paired_eval.pages.samples import KINDS
from paired_eval.sampling.complete import REFUSED, Sample

HOSTILE = (
    "</script><script>top.ran = 1</script><img src=http://h/x.png onerror=top.ran=2>"
    "<!--<script>\u2028\x00\u202edesrever\ud800{{7*7}} \\boxed{1}"
)
SIGNS = {kind.name: kind.sign for kind in KINDS}


def texts_of(group_of_one: list[Sample], text: str) -> list[Sample]:
    return [sample._replace(text=text) for sample in group_of_one]


def single(folder: Path) -> list[PasskRun]:
    """One run: an item all right, one with every kind of response, one that is hostile."""
    asked = items(3)
    mixed = [*group(1, "rwnm"), *group(1, "wwww")]
    mixed[4] = mixed[4]._replace(draw=4, finish_reason="length", text="<think>on and on")
    mixed[5] = mixed[5]._replace(draw=5, status="timeout")
    mixed[6] = Sample(mixed[6].uid, 6, finish_reason=REFUSED, refused="400: flagged")
    mixed[7] = mixed[7]._replace(
        draw=7, text="<think>first 1</think> so 7, that is 7", thinking="hm"
    )
    groups = [
        texts_of(group(0, "rrrrrrrr"), "plain prose"),
        mixed,
        texts_of(group(2, "wwwwwwww"), HOSTILE),
    ]
    results = write_results(folder, "runs/model", {"toy": (asked, groups)})
    return [PasskRun("", folder, results)]


@pytest.fixture(scope="module")
def tab():
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page about one run."""
    folder = tmp_path_factory.mktemp("one")
    runs = single(folder)
    path = folder / "samples.html"
    assert samples.write(runs, passk.scores(runs[0].results), path)
    return path


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The page about two runs on 130 problems of two tasks; A alone is right in the first."""
    folder = tmp_path_factory.mktemp("two")
    asked = items(24)
    uids = list(asked)
    marks = {"A": ["rrrr", "wwww", "rrww", "wwww"], "B": ["wwww", "rrrr", "rwww", "wwww"]}
    runs = []
    for label, of_run in marks.items():
        groups = [
            [sample._replace(uid=uid) for sample in group(0, of_run[number % 4])]
            for number, uid in enumerate(uids)
        ]
        tasks = {"toy": (asked, groups), "more": (asked, groups[::-1])}
        runs.append(
            PasskRun(label, folder / label, write_results(folder / label, f"m/{label}", tasks))
        )
    path = folder / "samples.html"
    assert samples.write(runs, [{"benchmark": "toy", "A %": "50.0"}], path)
    return path


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_overflows_is_pale_or_is_asked_for(tab, page, compared, width, dark):
    for path in (page, compared):
        tab.open(path, width, dark)
        tab.check()
        tab.click("button.square")
        tab.check()
        assert tab.evaluate("window.ran ?? null") is None


def test_samples_that_lack_what_the_results_count_are_refused(tmp_path):
    runs = single(tmp_path)
    file = runs[0].samples_file("toy")
    file.write_bytes(file.read_bytes()[:-20])  # a kill cut the last line short
    with pytest.raises(ValueError, match=r"toy\.jsonl lacks responses that .*results\.json counts"):
        samples.write(runs, [], tmp_path / "samples.html")


def test_a_square_tells_what_became_of_a_response(tab, page):
    tab.open(page, 1280)
    kinds = ["right", "wrong", "none", "none", "cut", "ungraded", "masked", "wrong"]
    second = ".problem:nth-child(2) button.square"
    assert tab.texts(second) == [SIGNS[kind] for kind in kinds]  # not by colour alone
    labels = tab.evaluate(f"[...document.querySelectorAll('{second}')].map(n => n.ariaLabel)")
    assert labels[6] == "response 7: masked: refused, in no figure"
    assert tab.texts(".legend li")[:2] == [
        f"{SIGNS['right']} right: 9",
        f"{SIGNS['wrong']} wrong: 10",
    ]


def test_a_click_shows_the_graded_part_and_the_answer(tab, page):
    tab.open(page, 1280)
    tab.click(".problem:nth-child(2) button.square:nth-of-type(8)")
    assert tab.text(".response h3") == "response 8 of 8: wrong"
    gold, answer, graded = tab.texts(".response .text")[1:]
    assert gold == "2"
    assert answer == "7"
    assert graded == "so 7, that is 7"
    assert tab.texts(".response mark") == ["7"]
    assert tab.evaluate("document.querySelector('mark').previousSibling.data") == "so 7, that is "
    tab.evaluate("document.querySelector('.response details').open = true")
    assert tab.texts(".response details .text") == ["hm<think>first 1</think>"]
    tab.click(".problem:nth-child(2) button.square:nth-of-type(5)")
    assert "nothing: the text ends within its thinking" in tab.text(".response")
    tab.click(".problem:nth-child(2) button.square:nth-of-type(7)")
    assert "400: flagged" in tab.text(".response")
    assert len(tab.texts(".response")) == 1


def test_hostile_text_is_shown_and_does_nothing(tab, page):
    tab.open(page, 1280)
    tab.click(".problem:nth-child(3) button.square")
    shown = tab.texts(".response .text")[-1]
    assert shown.startswith("</script><script>top.ran = 1</script><img src=http://h/x.png")
    assert "\\u202edesrever" in shown
    assert "\\u0000" in shown
    assert "{{7*7}}" in shown
    assert tab.evaluate("[window.ran ?? null, document.images.length]") == [None, 0]
    tab.choose("#search", "</SCRIPT><script>top", "input")
    tab.until("document.getElementById('count').textContent.startsWith('1 of')")
    tab.check()


def test_filters_and_search_of_one_run(tab, page):
    tab.open(page, 420)
    assert tab.texts("#chips button") == [
        *("all 3", "all right 1", "some right 1", "none right 1"),
        *("cut off 1", "not graded 1", "masked 1"),
    ]
    tab.click("#chips button:nth-child(4)")
    assert tab.text("#count") == "1 of 3 problems"
    assert tab.evaluate("document.activeElement.textContent") == "none right 1"
    tab.click("#chips button")
    tab.choose("#search", "PLAIN prose", "input")
    tab.until("document.getElementById('count').textContent === '1 of 3 problems'")
    tab.choose("#search", "responses", "input")  # no text has it
    tab.until("document.getElementById('count').textContent === '0 of 3 problems'")


def test_the_keyboard_goes_through_squares(tab, page):
    tab.open(page, 1280)
    focused = "document.activeElement.ariaLabel"
    tab.evaluate("document.querySelector('button.square').focus()")
    tab.press("ArrowRight")
    tab.press("ArrowDown")
    assert tab.evaluate(focused) == "response 2: wrong"
    tab.press("Enter")
    assert tab.text(".response h3") == "response 2 of 8: wrong"
    tab.press("ArrowRight")  # the text follows
    assert tab.text(".response h3") == "response 3 of 8: no readable answer"
    assert tab.evaluate(focused) == "response 3: no readable answer"
    tab.press("Escape")
    assert tab.texts(".response") == []
    assert tab.evaluate(focused) == "response 3: no readable answer"
    reachable = "document.querySelectorAll('.problem:nth-child(2) .square[tabindex=\"0\"]').length"
    assert tab.evaluate(reachable) == 1


def test_two_runs_side_by_side(tab, compared):
    tab.open(compared, 1280)
    assert tab.texts("#chips button") == [
        *("all 48", "A right, B wrong 12", "B right, A wrong 12"),
        *("A more often right 24", "B more often right 12", "none right 12"),
    ]
    tab.click("#chips button:nth-child(2)")
    tab.choose("#task", "1", "change")
    assert tab.text("#count") == "6 of 48 problems"
    signs = tab.texts(".problem:first-child button.square")
    assert signs == [SIGNS["right"]] * 4 + [SIGNS["wrong"]] * 4
    tab.click(".problem:first-child .squares:nth-child(2) button.square")
    assert tab.text(".response h3") == "B, response 1 of 4: wrong"


def test_rows_are_made_as_the_reader_scrolls(tab, tmp_path):
    asked = items(36)
    groups = [[sample._replace(uid=uid) for sample in group(0, "r")] for uid in asked]
    tasks = {name: (asked, groups) for name in ("a", "b", "c", "d", "e")}
    runs = [PasskRun("", tmp_path, write_results(tmp_path, "m", tasks))]
    assert samples.write(runs, passk.scores(runs[0].results), tmp_path / "p.html")
    tab.open(tmp_path / "p.html", 1280)
    rows = "document.querySelectorAll('.problem').length"
    assert tab.text("#count") == "180 of 180 problems"
    assert tab.evaluate(rows) == 50
    tab.evaluate("document.getElementById('more').scrollIntoView()")
    tab.until(f"{rows} >= 100")


def test_long_texts_lose_their_middle(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "LONGEST_PAGE", 2 * 8 * 900)
    asked = items(1)
    text = "begins " + "x" * 2_000_000 + " ends"
    groups = [texts_of(group(0, "rrrrrrrr"), text)]
    runs = [PasskRun("", tmp_path, write_results(tmp_path, "m", {"toy": (asked, groups)}))]
    page = samples.page(runs, passk.scores(runs[0].results))
    assert len(page) < 40_000
    assert page.count("begins xxx") == page.count("xxx ends") == 8
    assert page.count("[1,999,112 characters are left out here]") == 8


def test_without_samples_there_is_no_page(page, tmp_path):
    results = json.loads((page.parent / "results.json").read_bytes())
    assert not samples.write([PasskRun("", tmp_path, results)], [], tmp_path / "p.html")
    assert not (tmp_path / "p.html").exists()
