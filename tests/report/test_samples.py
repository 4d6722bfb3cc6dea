"""The page of pass@k's samples in a real browser: squares, filters, search, and hostile texts."""

import json
from pathlib import Path

import pytest
from chromium import opened
from passk_kit import group, items, write_results

from openrlhf_js.report import passk, samples
from openrlhf_js.report.passk import PasskRun
from openrlhf_js.report.samples import KINDS
from openrlhf_js.sampling.complete import REFUSED, Sample

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


@pytest.fixture
def page(tmp_path):
    """The page about one run."""
    runs = single(tmp_path)
    path = tmp_path / "samples.html"
    assert samples.write(runs, passk.scores(runs[0].results), path)
    return path


@pytest.fixture
def compared(tmp_path):
    """The page about two runs on 64 problems of two tasks; A alone is right in the first."""
    asked = items(32)
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
            PasskRun(label, tmp_path / label, write_results(tmp_path / label, f"m/{label}", tasks))
        )
    path = tmp_path / "samples.html"
    assert samples.write(runs, [{"benchmark": "toy", "A %": "50.0"}], path)
    return path


def test_samples_that_lack_what_the_results_count_are_refused(tmp_path):
    runs = single(tmp_path)
    file = runs[0].samples_file("toy")
    file.write_bytes(file.read_bytes()[:-20])  # a kill cut the last line short
    with pytest.raises(ValueError, match=r"toy\.jsonl lacks responses that .*results\.json counts"):
        samples.write(runs, [], tmp_path / "samples.html")


def test_a_browser_shows_the_page_of_a_run(page):
    with opened(page) as tab:
        squares_have_signs_and_labels(tab)
        a_click_shows_the_graded_part_and_the_answer(tab)
        the_keyboard_goes_through_squares(tab)
        hostile_text_is_shown_and_does_nothing(tab)
        filters_and_search_leave_what_matches(tab)
        tab.check()


def squares_have_signs_and_labels(tab):
    kinds = ["right", "wrong", "none", "none", "cut", "ungraded", "masked", "wrong"]
    second = ".problem:nth-child(2) button.square"
    assert tab.texts(second) == [SIGNS[kind] for kind in kinds]  # not by colour alone
    labels = tab.evaluate(f"[...document.querySelectorAll('{second}')].map(n => n.ariaLabel)")
    assert labels[6] == "response 7: masked: refused, in no figure"
    assert tab.texts(".legend li")[:2] == [
        f"{SIGNS['right']} right: 9",
        f"{SIGNS['wrong']} wrong: 10",
    ]


def a_click_shows_the_graded_part_and_the_answer(tab):
    tab.click(".problem:nth-child(2) button.square:nth-of-type(8)")
    assert tab.text(".response h3") == "response 8 of 8: wrong"
    assert tab.texts(".response .text")[1:] == ["2", "7", "so 7, that is 7"]
    assert tab.evaluate("document.querySelector('mark').previousSibling.data") == "so 7, that is "
    tab.evaluate("document.querySelector('.response details').open = true")
    assert tab.texts(".response details .text") == ["hm<think>first 1</think>"]
    tab.click(".problem:nth-child(2) button.square:nth-of-type(5)")
    assert "nothing: the text ends within its thinking" in tab.text(".response")
    tab.click(".problem:nth-child(2) button.square:nth-of-type(7)")
    assert "400: flagged" in tab.text(".response")
    assert len(tab.texts(".response")) == 1


def the_keyboard_goes_through_squares(tab):
    tab.evaluate("document.querySelector('button.square').focus()")
    for key in ("ArrowRight", "ArrowDown", "ArrowRight"):  # where a text is open, it follows
        tab.press(key)
    assert tab.text(".response h3") == "response 3 of 8: no readable answer"
    tab.press("Escape")
    assert tab.texts(".response") == []
    focused = "document.activeElement.ariaLabel"
    assert tab.evaluate(focused) == "response 3: no readable answer"


def hostile_text_is_shown_and_does_nothing(tab):
    tab.click(".problem:nth-child(3) button.square")
    shown = tab.texts(".response .text")[-1]
    assert shown.startswith("</script><script>top.ran = 1</script><img src=http://h/x.png")
    for text in ("\\u202edesrever", "\\u0000", "{{7*7}}"):
        assert text in shown
    assert tab.evaluate("[window.ran ?? null, document.images.length]") == [None, 0]
    tab.choose("#search", "</SCRIPT><script>top", "input")
    tab.until("document.getElementById('count').textContent === '1 of 3 problems'")


def filters_and_search_leave_what_matches(tab):
    tab.choose("#search", "PLAIN prose", "input")
    tab.until("document.querySelector('#chips button').textContent === 'all 1'")
    tab.choose("#search", "responses", "input")  # no text has it
    tab.until("document.getElementById('count').textContent === '0 of 3 problems'")
    tab.choose("#search", "", "input")
    tab.until("document.getElementById('count').textContent === '3 of 3 problems'")
    assert tab.texts("#chips button") == [
        *("all 3", "all right 1", "some right 1", "none right 1"),
        *("cut off 1", "not graded 1", "masked 1"),
    ]
    tab.click("#chips button:nth-child(4)")
    assert tab.text("#count") == "1 of 3 problems"
    assert tab.evaluate("document.activeElement.textContent") == "none right 1"


def test_a_browser_shows_two_runs_side_by_side(compared):
    with opened(compared) as tab:
        assert tab.texts("#chips button") == [
            *("all 64", "A right, B wrong 16", "B right, A wrong 16"),
            *("A more often right 32", "B more often right 16", "none right 16"),
        ]
        rows = "document.querySelectorAll('.problem').length"
        assert tab.evaluate(rows) == 50
        tab.evaluate("document.getElementById('more').scrollIntoView()")
        tab.until(f"{rows} === 64")
        tab.click("#chips button:nth-child(2)")
        tab.choose("#task", "1", "change")
        assert tab.text("#count") == "8 of 64 problems"
        signs = tab.texts(".problem:first-child button.square")
        assert signs == [SIGNS["right"]] * 4 + [SIGNS["wrong"]] * 4
        tab.click(".problem:first-child .squares:nth-child(2) button.square")
        assert tab.text(".response h3") == "B, response 1 of 4: wrong"
        tab.check()


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
    assert not samples.write([PasskRun("", tmp_path / "else", results)], [], tmp_path / "p.html")
    assert not (tmp_path / "p.html").exists()
