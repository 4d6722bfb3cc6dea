import copy
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from openrlhf_js.report import reward_model
from openrlhf_js.report.reward_model_pictures import pictures


def shares(value, low=None, high=None):
    return {"value": value, "low": low, "high": high}


@pytest.fixture
def found():
    part = {
        "pairs": 300,
        "prompts": 60,
        "accuracy": shares(0.75, 0.7, 0.79),
        "margin": shares(1.25, 1.0, 1.5),
        "ties": 0.02,
    }
    return {
        "model": "ckpt/rm",
        "file": "held_out.jsonl",
        "identity": {"texts": "abc", "model": "def", "max_len": 2048},
        "description": {"model": "ckpt/rm", "architecture": "Qwen2Model", "normalized": False},
        **part,
        "subsets": {"chat": part, "code": {**part, "accuracy": shares(0.5, 0.0, 1.0)}},
        "reward": {"mean": 0.5, "std": 2.25},
        "calibration": {
            "error": 0.02,
            "error_by_chance": 0.018,
            "log_loss": 0.51,
            "temperature": 1.5,
            "bins": [
                {"confidence": 0.6, "accuracy": 0.58, "pairs": 150},
                {"confidence": 0.9, "accuracy": 0.92, "pairs": 150},
            ],
        },
        "length": {
            "unit": "tokens",
            "correlation": shares(0.25, 0.2, 0.3),
            "correlation_within_pairs": -0.125,
            "share_chosen_longer": 0.5,
            "share_chosen_shorter": 0.4,
            "share_of_matched_length": 0.1,
            "accuracy_of_length_alone": shares(0.55, 0.5, 0.6),
            "accuracy_balanced": shares(0.74, 0.69, 0.78),
            "accuracy_where_chosen_is_longer": shares(0.8, 0.7, 0.9),
            "accuracy_where_chosen_is_shorter": shares(0.68, 0.6, 0.75),
            "accuracy_at_matched_length": None,
            "accuracy_without_linear_part": shares(0.73, 0.68, 0.77),
            "regression": {
                "margin": {"value": 0.6, "standard_error": 0.1},
                "length": {"value": -0.01, "standard_error": 0.001},
            },
        },
        "pictures": {
            "margins": {"counts": [1, 4, 6], "edges": [-1.0, 0.0, 1.0, 2.0]},
            "points": {
                "chosen_lengths": [3.0, 4.0],
                "chosen": [1.0, 2.0],
                "rejected_lengths": [5.0, 2.0],
                "rejected": [0.0, 2.5],
            },
        },
    }


class Page(HTMLParser):
    """Collects the tags, attributes and text of a page, and sees whether all tags are closed."""

    def __init__(self, page):
        super().__init__()
        self.open, self.attributes, self.text = [], [], ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.attributes += [(tag, *each) for each in attributes]
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data + "\n"


def test_rows_say_what_was_found(found):
    rows = {name: figure for name, figure, _ in reward_model.rows(found)}
    assert rows["accuracy"] == "75.0 % (70.0 to 79.0)"
    assert rows["mean margin"] == "1.25 (1 to 1.5)"
    assert rows["ties"] == "2.0 %"
    assert rows["length and reward"] == "0.25 (0.2 to 0.3)"
    assert rows["reward"] == "0.5 ± 2.25"
    assert rows["temperature"] == "1.50"
    assert rows["lengths alike"] == "-"
    assert rows["weight of length"] == "-1 ± 0.2"
    subsets = reward_model.subset_rows(found)
    assert [row[0] for row in subsets] == ["chat", "code"]
    assert all(len(row) == len(reward_model.SUBSET_COLUMNS) for row in subsets)


def test_what_is_not_determined_is_a_dash(found):
    found["accuracy"] = shares(0.75)
    found["calibration"]["temperature"] = found["length"]["regression"] = None
    found["length"]["correlation"] = found["length"]["correlation_within_pairs"] = None
    rows = {name: figure for name, figure, _ in reward_model.rows(found)}
    assert rows["accuracy"] == "75.0 %"
    assert rows["temperature"] == rows["weight of length"] == rows["length and reward"] == "-"
    assert reward_model.page(found)


def test_a_good_model_needs_one_sentence(found):
    assert reward_model.in_words(found) == [
        "The model prefers the chosen response in 75.0 % (70.0 to 79.0) of 300 pairs."
    ]


@pytest.mark.parametrize(
    ("told", "row", "sentence"),
    [
        ({"normalized": False}, ("no", "these are the model's own rewards"), ""),
        (
            {"normalized": True, "mean": 0.5, "std": 2.0},
            ("yes", "the server gives (reward - 0.5) / 2"),
            "The server normalises: reward, margins,",
        ),
        (
            {"normalized": None},
            ("not known", "the server does not say at /health"),
            "If the server normalises (it does not say): reward, margins,",
        ),
    ],
)
def test_served_scores_are_not_taken_for_rewards(found, told, row, sentence):
    found["description"] = {"servers": ["http://a/x", "http://b/x"], "mean": None, **told}
    rows = {name: rest for name, *rest in reward_model.rows(found)}
    assert rows["normalised"] == list(row)
    assert ("to normalise with" in rows["reward"][1]) == (told["normalized"] is False)
    assert sentence in reward_model.in_words(found)[-1]
    assert len(reward_model.in_words(found)) == 1 + bool(sentence)
    page = Page(reward_model.page(found))
    assert row[1] in page.text and sentence in page.text and "http://a/x http://b/x" in page.text


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"accuracy": shares(0.52, 0.48, 0.56)}, "not clearly better than a coin"),
        ({"prompts": 5}, "5 prompts are few"),
        (
            {"length": {"accuracy_of_length_alone": shares(0.76)}},
            "longer response would do as well",
        ),
        ({"length": {"correlation_within_pairs": 0.5}}, "favours longer responses"),
        ({"length": {"correlation_within_pairs": -0.5}}, "favours shorter responses"),
        ({"calibration": {"error": 0.1}}, "too sure; a temperature of 1.50"),
        ({"calibration": {"error": 0.1, "temperature": 0.5}}, "not sure enough"),
        ({"calibration": {"error": 0.1, "temperature": None}}, "ECE 0.100."),
    ],
)
def test_words_warn_where_figures_do(found, change, sentence):
    for name, value in change.items():
        found[name] = {**found[name], **value} if isinstance(value, dict) else value
    assert sentence in " ".join(reward_model.in_words(found))


def test_the_page_needs_nothing_else(found):
    page = Page(reward_model.page(found))
    links = [value for _, name, value in page.attributes if name in ("href", "src", "xlink:href")]
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not re.search(r"@import|url\((?!#)", reward_model.page(found))
    assert not any(tag == "script" for tag, *_ in page.attributes)
    for text in ("75.0 % (70.0 to 79.0)", "ckpt/rm", "held_out.jsonl", "Qwen2Model", "2048"):
        assert text in page.text


def test_pictures_are_drawings_with_words(found):
    drawn = pictures(found)
    assert list(drawn) == ["Reliability", "Margins", "Reward and length", "Accuracy by subset"]
    for svg in drawn.values():
        ET.fromstring(svg)
    assert "confidence, sigmoid of |margin|" in drawn["Reliability"]
    assert "length of the response, tokens" in drawn["Reward and length"]
    assert "chat" in drawn["Accuracy by subset"]
    assert pictures(found) == drawn


def test_a_hash_does_not_take_the_place_of_the_model(found):
    found["description"] |= {"std": 2.0123456789, "mean": None}
    assert reward_model.measured(found) == [
        ("model", "ckpt/rm"),
        ("architecture", "Qwen2Model"),
        ("normalized", "no"),
        ("std", "2.01235"),
        ("mean", "-"),
        ("texts, SHA-256", "abc"),
        ("model, SHA-256", "def"),
        ("max_len", "2048"),
    ]


def test_one_subset_gets_no_picture(found):
    found["subsets"] = {}
    assert "Accuracy by subset" not in pictures(found)
    assert "By subset" not in reward_model.page(found)


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "$\\frac{1", "a" * 300, "", "\x00é"])
def test_names_from_files_are_text(found, name):
    found = copy.deepcopy(found)
    found["subsets"][name] = found["subsets"]["chat"]
    found["model"] = found["file"] = name
    page = reward_model.page(found)
    assert "<script" not in page
    assert "\x00" not in page
    Page(page)


def test_many_subsets_make_a_picture_that_can_be_read(found):
    found["subsets"] = {f"s{i}": {**found["subsets"]["chat"], "pairs": i} for i in range(100)}
    svg = pictures(found)["Accuracy by subset"]
    assert ">s99<" in svg
    assert ">s5<" not in svg
    assert len(reward_model.subset_rows(found)) == 100
