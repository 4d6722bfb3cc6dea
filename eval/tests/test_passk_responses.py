"""Responses that exist already: what rows of a log become, and which rows are refused."""

import json

import pytest
from kit import write_lines

from answer_graders.prompt_files import example
from paired_eval.cli import main
from paired_eval.passk.benchmarks import uid_of
from paired_eval.passk.responses import Keys, read_responses
from paired_eval.sampling.parameters import Parameters
from paired_eval.sampling.sampler import Request

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
        (without("prompt"), "--input_key"),
        (without("response"), "--response_key"),
        (without("label"), "--label_key"),
        ({**ROW, "responses": ["a"]}, "--response_key"),
        ({**ROW, "response": ["a", None]}, "'response'"),
        ({**ROW, "prompt": 4}, "'prompt'"),
        ({**ROW, "label": "5"}, "'4' in line 1"),
        ({**ROW, "label": "four", "prompt": "new"}, "label must be a number"),
        ([ROW], "not a JSON object"),
    ],
)
def test_rows_that_are_refused(tmp_path, row, message):
    with pytest.raises(ValueError, match=r"log\.jsonl, line 2: .*" + message):
        read(tmp_path / "log.jsonl", [ROW, row], task="gsm8k")


def test_files_that_are_refused(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("")
    with pytest.raises(ValueError, match=r"log\.jsonl holds no response"):
        read_responses(path, "math", KEYS)
    path.write_text(json.dumps(ROW) + "\n" + json.dumps(OTHER)[:-9])  # killed while it wrote
    with pytest.raises(ValueError, match=r"log\.jsonl, line 2: not JSON"):
        read_responses(path, "math", KEYS)
    with pytest.raises(ValueError, match="'poetry'"):
        read_responses(path, "poetry", KEYS)


def test_the_program_grades_responses_also_without_torch(tmp_path):
    """The tests of this package run in an environment that has none."""
    row = {"prompt": "1 + 1?", "response": "\\boxed{2}", "label": "2"}
    path = write_lines(tmp_path / "log.jsonl", [row])
    assert main(["passk", "--responses", str(path), "--tasks", "math", "--out", str(tmp_path)]) == 0
