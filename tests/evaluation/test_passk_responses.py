"""Responses that exist already: what rows of a log become, and which rows are refused."""

import json

import pytest
from kit import write_lines

from openrlhf_js.evaluation.passk.benchmarks import uid_of
from openrlhf_js.evaluation.passk.responses import Keys, read_responses
from openrlhf_js.sampling.engines import Parameters
from openrlhf_js.sampling.sampler import Request
from openrlhf_js.tasks.prompt_files import example

ROW = {"prompt": "2 + 2?", "response": r"\boxed{4}", "label": "4"}
OTHER = {"prompt": "1 + 2?", "response": r"\boxed{3}", "label": "3"}
KEYS = Keys()
PARAMETERS = Parameters(temperature=1.0, top_p=1.0, max_new_tokens=8, seed=0)


def read(path, rows, keys=KEYS, task="math", limit=None):
    """By prompt, the label and the responses, as the sampler gives them."""
    asked, sampler = read_responses(write_lines(path, rows), task, keys, limit)
    found = {}
    for uid, item in asked.items.items():
        requests = [Request(uid, 0, draw, item.messages) for draw in asked.draws(uid)]
        results = []
        sampler.run(requests, PARAMETERS, results.extend)
        texts = [sampled.text for _, sampled in results]
        found[item.messages[-1]["content"]] = (item.label, texts)
    return found


def test_rows_of_one_prompt_are_one_item(tmp_path):
    """Whether they have a response each or a list, and in whatever order they come."""
    message = [{"role": "user", "content": "2 + 2?"}]
    chat = [{"role": "assistant", "content": "d"}]
    found = read(
        tmp_path / "log.jsonl",
        [
            {"prompt": "2 + 2?", "response": "a", "label": "4", "step": 1},
            OTHER,
            {"prompt": message, "responses": ["b", "", "c"], "label": 4},
            {"prompt": "2 + 2?", "response": chat, "label": "4", "responses": None},
            {"prompt": "2 + 2?", "responses": [chat, "e"], "label": "4"},
        ],
    )
    assert found == {
        "2 + 2?": ("4", ["a", "b", "", "c", "d", "d", "e"]),
        "1 + 2?": ("3", [OTHER["response"]]),
    }


def test_fields_have_the_names_that_flags_give(tmp_path):
    row = {"query": "q", "prompt": "no", "output": ["a"], "response": "no", "gold": "7", "label": 8}
    keys = Keys(input="query", response="output", label="gold")
    assert read(tmp_path / "log.jsonl", [row], keys) == {"q": ("7", ["a"])}


@pytest.mark.parametrize(
    ("task", "name", "datasource"),
    [
        ("math", "math", "math"),
        ("math500", "math500", "math/math500"),
        ("gsm8k", "gsm8k", "gsm8k"),
        ("math/own", "math_own", "math/own"),
    ],
)
def test_items_are_those_of_a_prompt_file(tmp_path, task, name, datasource):
    """So that responses from elsewhere pair with sampled ones."""
    asked, _ = read_responses(write_lines(tmp_path / "log.jsonl", [ROW]), task, KEYS)
    assert asked.benchmark.name == name
    row = {"input": ROW["prompt"], "label": "4", "datasource": datasource}
    assert list(asked.items) == [uid_of(example(row))]


def without(name):
    return {key: value for key, value in ROW.items() if key != name}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            without("prompt"),
            "no value under 'prompt'; the row has 'response', 'label': .*--input_key",
        ),
        (without("response"), "no value under 'response'; the row has .*--response_key"),
        (without("label"), "no value under 'label'; the row has .*--label_key"),
        ({**ROW, "label": None}, "no value under 'label'"),
        ({}, "no value under 'prompt'; the row has no fields"),
        (
            {**ROW, "responses": ["a"]},
            "both 'response' and 'responses': choose with --response_key",
        ),
        ({**ROW, "response": 4}, "'response' must hold a response as text, or a list"),
        ({**ROW, "response": []}, "'response' must hold a response as text, or a list"),
        ({**ROW, "response": ["a", None]}, "'response' must hold a response as text, or a list"),
        ({**ROW, "response": {"text": "a"}}, "'response' must hold a response as text, or a list"),
        ({**ROW, "prompt": 4}, "'prompt' must hold text, or messages"),
        ({**ROW, "label": "5"}, "the label is '5', and '4' in line 1, which has the same prompt"),
        ({**ROW, "label": "four", "prompt": "new"}, "the label must be a number"),
        ({**ROW, "label": 4.5, "prompt": "new"}, "a label must be text"),
        ([ROW], "not a JSON object, but list"),
    ],
)
def test_rows_that_are_refused(tmp_path, row, message):
    with pytest.raises(ValueError, match=r"log\.jsonl, line 2: .*" + message):
        read(tmp_path / "log.jsonl", [ROW, row], task="gsm8k")


def test_files_that_are_refused(tmp_path):
    path = tmp_path / "log.jsonl"
    for content in ("", "\n\n"):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"log\.jsonl holds no response: it is empty"):
            read_responses(path, "math", KEYS)
    path.write_text(json.dumps(ROW) + "\n" + json.dumps(OTHER)[:-9])  # killed while it wrote
    with pytest.raises(ValueError, match=r"log\.jsonl, line 2: not JSON"):
        read_responses(path, "math", KEYS)
    for name in ("none.jsonl", "none.parquet"):
        with pytest.raises(FileNotFoundError) as caught:
            read_responses(tmp_path / name, "math", KEYS)
        assert caught.value.filename == str(tmp_path / name)
    with pytest.raises(ValueError, match="no task 'poetry' grades responses; choose from aime24"):
        read_responses(path, "poetry", KEYS)
