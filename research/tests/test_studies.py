"""The kept records of studies, and the table that is printed of them."""

import json
import re
import runpy
import sys
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import chain_gradients
import gradients
import online
import pictures
import pytest
import results
import torch
import tried

from answer_graders.record import scored
from baseline_research.study.design import InlineStudy
from baseline_research.study.values import read_runs
from baseline_research.tiny import model
from baseline_research.tiny.tasks import TASKS
from openrlhf_js.estimators import ESTIMATORS, LiveEstimator
from openrlhf_js.estimators.own import load_own

STUDIES = Path(__file__).parents[2] / "research/studies"


@pytest.mark.parametrize("records", STUDIES.glob("*.jsonl.xz"), ids=lambda path: path.name)
def test_the_kept_records_are_of_estimators_that_there_are(records):
    runs = read_runs(records)
    names = {run["estimator"] for run in runs}
    assert {name for name in names if ".py:" not in name} <= set(ESTIMATORS)


SCRIPTS = [  # the others are files of rewards
    path
    for folder in (STUDIES, STUDIES.parent / "benchmarks")
    for path in sorted(folder.glob("*.py"))
    if "\nif __name__ ==" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_script_explains_itself(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [script.name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 0
    first = script.read_text(encoding="utf-8").splitlines()[0].removeprefix("r").strip('"')
    assert first in " ".join(capsys.readouterr().out.split())


def test_a_test_that_does_not_run_with_ours_is_named():
    script = runpy.run_path(str(STUDIES.parent / "benchmarks/upstream_tests.py"))
    passed = script["Outcome"](passed=True, reason="")
    text = script["comparison"]("torch", {"a": passed, "b": passed}, {"a": passed})
    assert "2 pass with theirs, 1 of these" in text and text.endswith("\n  b: did not run")


def run_of(estimator, task, seed, pass1):
    return {
        "task": task,
        "mix": "natural",
        "prompts": 16,
        "responses": 2,
        "estimator": estimator,
        "learning_rate": 1e-5,
        "seed": seed,
        "pass1": pass1,
        "reward": pass1 - 0.1,
        "curve": [0.3, pass1],
        "steps": 30,
    }


def test_a_studys_averages_are_a_table(tmp_path, monkeypatch, capsys):
    finals = {  # by estimator and task, of two seeds
        ("rloo", "sort"): (0.40, 0.44),
        ("rloo", "maze"): (0.40, 0.44),
        ("js", "sort"): (0.4199, 0.4601),
        ("js", "maze"): (0.44, 0.48),
        ("bloo", "sort"): (0.40, 0.44),
        ("bloo", "maze"): (0.42, 0.40),
    }
    lines = ["{}"]
    for (estimator, task), values in finals.items():
        for seed, pass1 in enumerate(values):
            lines.append(json.dumps(run_of(estimator, task, seed, pass1)))
    (tmp_path / "runs-inline.jsonl").write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.setattr(sys, "argv", ["results.py", str(tmp_path)])
    results.main()
    *_, head, _, row = capsys.readouterr().out.splitlines()
    assert head == "| prompts | responses | js | bloo | js low | js high |"
    assert row == "| as drawn | 2 | **+3.0** | -0.5 | +2.9 | +3.1 |"


def score_of_even_lengths(response, label):
    return scored("wrong" if len(response) % 2 else "correct", "")


@pytest.mark.usefixtures("undrawn")
def test_gradients_are_measured_and_drawn(tmp_path, monkeypatch, capsys):
    even = replace(TASKS["sort"], warm_start_steps=2, score=score_of_even_lengths)
    monkeypatch.setitem(TASKS, "sort", even)
    smaller = {"TINY": ["sort"], "MIXES": ["mixed"], "PROMPTS": 32, "RESPONSES": 8, "BATCHES": 10}
    smaller |= {"BATCH_PROMPTS": [16], "BATCH_RESPONSES": [2, 4]}
    smaller |= {"InlineStudy": partial(InlineStudy, width=16, layers=1)}
    smaller |= {"measure_pretrained": lambda out, policy: [], "WORDS": "a b c d"}
    smaller |= {"STORY_BATCH_PROMPTS": [16], "PRETRAINED_BATCH_RESPONSES": [2]}
    smaller |= {"STORY_RESPONSES": 8, "STORY_TOKENS": 30}
    for name, value in smaller.items():
        monkeypatch.setattr(gradients, name, value)
    tokenizer = model.make_tokenizer([*"abcd.,;"])
    policy = tmp_path / "policy"
    model.save(model.make_model(tokenizer, 0, width=16, layers=1), tokenizer, policy)
    monkeypatch.setattr(sys, "argv", ["gradients.py", str(tmp_path), "--model", str(policy)])
    gradients.main()
    capsys.readouterr()
    monkeypatch.setattr(pictures, "GRADIENTS", tmp_path / "gradients.csv.xz")
    monkeypatch.setattr(sys, "argv", ["pictures.py", str(tmp_path)])
    pictures.main()
    tables = [row.split(" | ") for row in capsys.readouterr().out.splitlines()]
    assert [row[1] for row in tables if row[0] == "| sort, mix"] == ["2", "4"] * 2
    stories = [row for row in tables if row[0] == "| SmolLM2, stories"]
    assert [row[1] for row in stories] == ["2"] * 2
    page = (STUDIES.parents[1] / "docs/results.md").read_text()
    _, _, page = page.partition("| gradient's variance during training |")
    claimed = re.findall(r"^\| four small tasks, (.*) \|$", page.partition("\n\n")[0], re.M)
    assert len(claimed) == 4
    for row in claimed:
        assert f"| {row} |".split(" | ") in tables
    assert (tmp_path / "results_gradients.png").exists()


@pytest.mark.usefixtures("undrawn")
def test_gradients_of_chains_are_measured(tmp_path, monkeypatch, capsys):
    even = replace(TASKS["walk_20"], warm_start_steps=2, score=score_of_even_lengths)
    monkeypatch.setitem(TASKS, "walk_20", even)
    monkeypatch.setattr(chain_gradients, "WRITTEN_PROMPTS", 32)
    monkeypatch.setattr(chain_gradients, "SAME_M", [2])
    monkeypatch.setattr(chain_gradients, "InlineStudy", partial(InlineStudy, start_seed=1))
    for name, value in {"BATCHES": 10, "PROMPTS": 32, "RESPONSES": 8}.items():
        monkeypatch.setattr(gradients, name, value)
    words = ["chain_gradients.py", str(tmp_path), "walk_20", "--mixes", "natural", "--after", "2"]
    monkeypatch.setattr(sys, "argv", words)
    chain_gradients.main()
    printed = capsys.readouterr().out
    rows = [row.split(" | ") for row in printed.splitlines() if row.startswith("| walk_20")]
    pool, normalized, direction, raw = rows
    assert pool[0] == "| walk_20, natural, after 2 steps"
    assert 0 < float(pool[1]) < 1 and float(pool[2]) > 0
    assert normalized[1] == direction[1] == raw[1] == "16 x 2"


FORMS = {
    "tried.py": ["Wider", "LongMemory", "OwnKappa"],
    "parts.py": ["NoWeights", "NoMemory", "NoPrompts", "NoGroup"],
}


@pytest.mark.parametrize("form", [f"{file}:{name}" for file in FORMS for name in FORMS[file]])
def test_the_forms_that_were_tried_are_unbiased(form):
    assert load_own(f"{STUDIES / form}").unbiased


PARTS = {  # the form, and what js_grad must be given for the two to differ
    "NoWeights": {"weights"},
    "NoMemory": {"past"},
    "NoPrompts": {"past", "prompts that come again"},
}
GIVEN = ["weights", "past", "prompts that come again"]


@pytest.mark.filterwarnings("ignore:js_grad weighs all responses alike")
@pytest.mark.parametrize("left_out", [None, *GIVEN])
@pytest.mark.parametrize("form", PARTS)
def test_a_form_without_a_part_is_js_grad_where_the_part_has_nothing_to_do(form, left_out):
    given = set(GIVEN) - {left_out}
    same = torch.allclose(last_baselines(form_of(form), given), last_baselines("js_grad", given))
    assert same == (not PARTS[form] <= given)


def test_the_form_without_the_group_is_the_mean_of_all_others():
    first = last_baselines(form_of("NoGroup"), {"weights"})
    assert torch.equal(first, first[:, :1].expand_as(first))
    constant = last_baselines(form_of("NoGroup"), set(GIVEN), reward=0.25)
    assert torch.allclose(constant, torch.full_like(constant, 0.25))


@pytest.mark.parametrize(
    ("script", "heading"),
    [
        ("parts", "## What is each part worth?"),
        ("words", "### SmolLM2 on word problems"),
        ("rlhf_smollm2", "### SmolLM2 with a reward model of its own"),
    ],
)
def test_the_tables_of_a_section_are_those_that_its_script_prints(
    monkeypatch, capsys, script, heading
):
    monkeypatch.setattr(sys, "argv", [f"{script}.py"])
    import_module(script).main()
    printed = [row for row in capsys.readouterr().out.splitlines() if row.startswith("|")]
    page = (STUDIES.parents[1] / "docs/results.md").read_text(encoding="utf-8")
    section = page.partition(f"{heading}\n")[2].partition("\n##")[0]
    assert [row for row in section.splitlines() if row.startswith("|")] == printed


def form_of(name):
    return f"{STUDIES / 'parts.py'}:{name}"


def last_baselines(estimator, given, reward=None):
    """The baselines of the last of three batches of random rewards, or of the first alone."""
    live = LiveEstimator(estimator)
    generator = torch.Generator().manual_seed(0)
    for step in range(3 if "past" in given else 1):
        rewards = torch.rand(5, 3, generator=generator, dtype=torch.float64)
        if reward is not None:
            rewards = torch.full_like(rewards, reward)
        weights = torch.rand(5, 3, generator=generator) + 0.1
        keys = (
            torch.arange(5) if "prompts that come again" in given else torch.arange(5) + 10 * step
        )
        batch = live.batch(
            rewards,
            squared_score_norms=weights if "weights" in given else None,
            keys=keys,
            step=step,
        )
        baselines = rewards - live.estimate(batch).advantages
        live.learn(batch)
    return baselines


def test_the_errors_of_the_forms_that_were_tried(tmp_path, monkeypatch, capsys):
    even = replace(TASKS["walk_20"], warm_start_steps=2, score=score_of_even_lengths)
    monkeypatch.setitem(TASKS, "walk_20", even)
    smaller = {"STEPS": 6, "FIRST_STEPS": 2, "PROMPTS": 12, "RESPONSES": (2,)}
    for name, value in smaller.items():
        monkeypatch.setattr(tried, name, value)
    monkeypatch.setattr(sys, "argv", ["tried.py", str(tmp_path), "walk_20"])
    tried.main()
    printed = capsys.readouterr().out.splitlines()
    rows = [row.strip("| ").split(" | ") for row in printed if row.startswith("| walk")]
    assert [row[0] for row in rows] == ["walk_20, natural", "walk_20, mixed"]
    assert rows[0][2] == "0"  # weighted_rloo, which is rloo with two responses
    assert all(abs(float(cell)) < 1000 for row in rows for cell in row[1:])


def test_groups_that_come_late_train_too(tmp_path, monkeypatch, capsys):
    even = replace(TASKS["sort"], warm_start_steps=2, score=score_of_even_lengths)
    monkeypatch.setitem(TASKS, "sort", even)
    smaller = {"STEPS": 6, "FIRST_STEPS": 2, "SEEDS": (0, 1)}
    smaller |= {"InlineStudy": partial(InlineStudy, width=16, layers=1, held_out=20, samples=1)}
    for name, value in smaller.items():
        monkeypatch.setattr(online, name, value)
    monkeypatch.setattr(sys, "argv", ["online.py", str(tmp_path)])
    online.main()
    printed = capsys.readouterr().out
    rows = [row.split(" | ") for row in printed.splitlines() if row.startswith("| up to 8")]
    assert [row[1] for row in rows] == list(online.FORMS)
    assert rows[0][-2:] == ["100", "100 |"]


def test_the_results_page_has_the_kept_gradients_of_chains(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["chain_gradients.py", "--images", str(tmp_path)])
    chain_gradients.main()
    printed = capsys.readouterr().out.splitlines()
    page = (STUDIES.parents[1] / "docs/results.md").read_text(encoding="utf-8")
    for heading, least in (("### Chains\n", 15), ("## Up to which length?\n", 5)):
        section = page.partition(heading)[2].partition("\n##")[0]
        rows = [row for row in section.splitlines() if row.startswith("|")]
        assert len(rows) > least
        assert set(rows) <= set(printed)
    assert (tmp_path / "results_lengths.png").is_file()
