from pathlib import Path

import pytest

from openrlhf_js.cli.eval_passk_flags import definitions
from openrlhf_js.evaluation.passk.definitions import Drawing, read_benchmark

PAPER = {  # temperature, max_new_tokens, samples: the tables of the paper's appendix
    "math500": (0.8, 2048, 16),
    "amc23": (0.8, 2048, 16),
    "olympiadbench": (0.8, 2048, 16),
    "gsm8k": (0.5, 2048, 10),
    "geometry3k": (0.7, 1024, 16),
    "knk": (0.7, 2048, 16),
    "knk_hard": (0.7, 2048, 16),
    "knk_2_3": (0.7, 2048, 16),
    "countdown": (0.7, 1024, 16),
    "maze": (0.7, 2048, 16),
}
COUNTS = {"knk": 300, "knk_hard": 300, "knk_2_3": 300, "countdown": 200, "maze": 200}


@pytest.fixture
def definition(tmp_path):
    def written(text):
        (tmp_path / "own.yaml").write_text(text, encoding="utf-8")
        return tmp_path / "own.yaml"

    return written


def test_the_papers_benchmarks():
    named = definitions()
    assert named.keys() == PAPER.keys()
    for name, (temperature, length, samples) in PAPER.items():
        found = read_benchmark(named[name])
        assert found.name == name
        assert found.drawing == Drawing(samples, temperature, 1.0, length)
        assert found.split == "test"
        assert found.count == COUNTS.get(name)


def test_definitions_of_ones_own(definition):
    found = read_benchmark(definition("\ufefffile: data/x.jsonl\ntemperature: 1\n"))
    assert found.file == definition("task: maze").parent / "data/x.jsonl"
    assert found.drawing == Drawing(temperature=1)
    assert read_benchmark(definition("task: maze\ncount: 5")).count == 5


def test_definitions_here_come_before_those_of_the_package(tmp_path, monkeypatch):
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval/maze.yaml").write_text("task: maze\ncount: 3")
    (tmp_path / "eval/arena_x.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert definitions()["maze"] == Path("eval/maze.yaml")
    assert "arena_x" not in definitions()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task: [", "is no YAML"),
        ("maze", "must hold keys and values"),
        ("task: maze\ntemprature: 1", "has the key 'temprature'; there are task, split"),
        ("task: labyrinth", "no task 'labyrinth'; there are countdown"),
        ("task: maze\nfile: x", "either a task or a file"),
        ("samples: 4", "either a task or a file"),
        ("task: maze\nsamples: many", "samples is 'many'; it must be a whole number"),
        ("task: maze\nsamples: true", "samples is True"),
        ("task: maze\nsamples: 0", "samples is 0; give 1 or more"),
        ("task: maze\ntemperature: 0", "temperature is 0; give a number above 0"),
        ("task: maze\ntop_p: 1.5", "top_p is 1.5; give a number above 0, up to 1"),
        ("task: maze\noptions: 3", "options is 3; it must be keys and values"),
    ],
)
def test_wrong_definitions(definition, text, message):
    with pytest.raises(ValueError, match=message):
        read_benchmark(definition(text))
