"""A recipe made small keeps what it is about."""

import json
import shlex
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from answer_graders.tasks import TASKS
from baseline_research.tiny.recipes import tiny_training, with_data

FLAGS = shlex.split("""
    --actor.model_name_or_path meta-llama/Llama-3.2-3B-Instruct
    --reward.model_name_or_path OpenRLHF/Llama-3-8b-rm-700k
    --data.prompt_dataset OpenRLHF/prompt-collection-v0.1
    --data.input_key context_messages
    --data.apply_chat_template
    --rollout.batch_size 64
    --rollout.n_samples_per_prompt 4
    --train.batch_size 128
    --actor.adam.lr 1e-6
    --reward.clip_range -5 5
    --actor.num_gpus_per_node=4
    --algo.advantage.estimator rloo
    --logger.wandb.key secret
    --algo.advantage.estimator js
""")  # of the estimators, the last one wins


def value(argv: list[str], flag: str) -> str:
    assert argv.count(f"--{flag}") == 1
    return argv[argv.index(f"--{flag}") + 1]


def lines(path: str | Path) -> list[str]:
    return Path(path).read_text().splitlines()


@pytest.fixture(scope="module")
def argv(tmp_path_factory):
    flags = ["--eval.dataset", "a.jsonl,b.jsonl", "--ds.lora.rank", "256", "--js.max_steps", "600"]
    return tiny_training([*FLAGS, *flags], tmp_path_factory.mktemp("tiny"))


def test_data_and_machines_are_small_and_the_rest_stays(argv):
    kept = {"algo.advantage.estimator": "js", "actor.adam.lr": "1e-6"}
    kept["rollout.n_samples_per_prompt"] = "4"
    small = {"actor.num_gpus_per_node": "1", "vllm.num_engines": "1", "js.device": "cpu"}
    small |= {"ds.lora.rank": "8", "js.max_steps": "3"}
    for flag, expected in {**kept, **small}.items():
        assert value(argv, flag) == expected
    assert "--ds.lora.alpha" not in argv  # which the recipe lacks
    clip_range = argv.index("--reward.clip_range")
    assert argv[clip_range + 1 : clip_range + 3] == ["-5", "5"]
    assert "--data.apply_chat_template" in argv
    assert not any("wandb" in word or "secret" in word for word in argv)
    assert len(lines(value(argv, "eval.dataset"))) == 16
    prompts = int(value(argv, "rollout.batch_size"))
    batch = int(value(argv, "train.batch_size"))
    assert prompts * 4 / batch == 64 * 4 / 128  # as many updates as the recipe's


@pytest.mark.parametrize("task", ["gsm8k", "geometry3k", "knights_knaves", "maze"])
def test_a_task_has_its_own_labels_and_right_responses_of_one_token(tmp_path, task):
    images = int(task == "geometry3k")
    flags = [*FLAGS, "--reward.remote_url", f"/graders/{task}.py"]
    argv = tiny_training([*flags, "--data.max_images_per_prompt", str(images)], tmp_path)
    assert value(argv, "reward.remote_url") == f"/graders/{task}.py"
    rows = [json.loads(line) for line in lines(tmp_path / "prompts.jsonl")]
    assert len(rows) == 64
    figures = {image for row in rows for image in row.get("images", [])}
    assert len(figures) == 64 * images
    assert all(Path(figure).is_file() for figure in figures)
    tokenizer = AutoTokenizer.from_pretrained(value(argv, "actor.model_name_or_path"))
    tokens = [token for token in tokenizer.get_vocab() if len(token) > 3]
    labels = {row["label"] for row in rows}
    assert len(labels) == 8
    for label in labels:
        assert any(TASKS[task].score(token, label).value == 1 for token in tokens), label


def test_a_dry_run_has_rows_for_files_that_are_not_built(tmp_path, capsys):
    existing = tmp_path / "existing.jsonl"
    existing.write_text("{}\n")
    argv = with_data([*FLAGS, "--eval.dataset", str(existing)], tmp_path)
    assert value(argv, "eval.dataset") == str(existing)
    assert value(argv, "data.prompt_dataset").startswith("OpenRLHF/")
    flags = ["--data.prompt_dataset", "x/train.jsonl", "--data.max_samples", "128"]
    flags += ["--eval.dataset", f"{existing},x/test.jsonl"]
    argv = with_data([*FLAGS, *flags], tmp_path)
    assert len(lines(value(argv, "data.prompt_dataset"))) == 128
    assert json.loads(Path(value(argv, "eval.dataset")).read_text())["context_messages"]
    assert "x/train.jsonl: not built yet, checked as 128 rows" in capsys.readouterr().out
