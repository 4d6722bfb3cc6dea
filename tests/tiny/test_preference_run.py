import json
from dataclasses import replace

import pytest
from transformers import AutoTokenizer, Qwen2ForCausalLM

from openrlhf_js.cli import tiny_preferences
from openrlhf_js.tiny import preference_run
from openrlhf_js.tiny.preferences import TASK, accuracy_of_truth
from openrlhf_js.tiny.tasks import END


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(preference_run, "TASK", replace(TASK, warm_start_steps=2))
    monkeypatch.setattr(tiny_preferences, "PROGRAM", "tiny_preferences")
    return tmp_path / "made"


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_all_that_a_run_needs_is_written(folder, capsys):
    words = ["--out", str(folder), "--pairs", "50", "--held-out", "30", "--seed", "1"]
    assert tiny_preferences.main(words) == 0
    assert len(rows(folder / "train.jsonl")) == 50
    assert len(rows(folder / "held_out.jsonl")) == 30
    trained_on, apart = rows(folder / "prompts.jsonl"), rows(folder / "prompts_held_out.jsonl")
    assert {row["input"] for row in trained_on}.isdisjoint(row["input"] for row in apart)
    assert all(row["input"] == f"{row['label']}=" for row in trained_on + apart)
    # The prompts held out from the reward model are those held out from the policy.
    assert {row["prompt"] for row in rows(folder / "held_out.jsonl")} <= {
        row["input"] for row in apart
    }
    policy = Qwen2ForCausalLM.from_pretrained(folder / "policy")
    tokenizer = AutoTokenizer.from_pretrained(folder / "policy")
    ids = tokenizer(f"hea=hea{END}").input_ids
    assert tokenizer.decode(ids) == f"hea=hea{END}"
    assert max(ids) < policy.config.vocab_size
    share = f"{accuracy_of_truth(folder / 'held_out.jsonl'):.1%}"
    assert share in capsys.readouterr().out


def test_a_folder_that_cannot_be_made_is_one_line(folder, capsys):
    folder.write_text("a file")
    assert tiny_preferences.main(["--out", str(folder), "--pairs", "5", "--held-out", "5"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_no_pairs_are_too_few(folder, capsys):
    with pytest.raises(SystemExit) as left:
        tiny_preferences.main(["--out", str(folder), "--pairs", "0"])
    assert left.value.code == 2
    assert "--pairs is 0; give 1 or more" in capsys.readouterr().err
