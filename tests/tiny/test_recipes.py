"""A recipe made small keeps what it is about."""

import json
from pathlib import Path

import pytest
from transformers import AutoConfig, AutoTokenizer

from openrlhf_js.reward_model.checkpoint import checkpoint_problems
from openrlhf_js.tasks import TASKS
from openrlhf_js.tiny.recipes import tiny_reward_training, tiny_training, with_data

GENERATED = ("knights_knaves", "countdown", "maze")

FLAGS = [
    *("--actor.model_name_or_path", "meta-llama/Llama-3.2-3B-Instruct"),
    *("--reward.model_name_or_path", "OpenRLHF/Llama-3-8b-rm-700k"),
    *("--data.prompt_dataset", "OpenRLHF/prompt-collection-v0.1"),
    *("--data.input_key", "context_messages", "--data.apply_chat_template"),
    *("--rollout.batch_size", "64", "--rollout.n_samples_per_prompt", "4"),
    *("--train.batch_size", "128", "--actor.adam.lr", "1e-6"),
    *("--reward.clip_range", "-5", "5", "--actor.num_gpus_per_node=4"),
    *("--algo.advantage.estimator", "rloo", "--logger.wandb.key", "secret"),
    *("--algo.advantage.estimator", "js"),  # the last one wins
]


def value(argv: list[str], flag: str) -> str:
    assert argv.count(f"--{flag}") == 1
    return argv[argv.index(f"--{flag}") + 1]


def test_models_data_and_machines_are_small_and_the_rest_stays(tmp_path):
    argv = tiny_training(FLAGS, tmp_path)
    assert value(argv, "algo.advantage.estimator") == "js"
    assert value(argv, "actor.adam.lr") == "1e-6"
    assert value(argv, "rollout.n_samples_per_prompt") == "4"
    assert argv[argv.index("--reward.clip_range") :][:3] == ["--reward.clip_range", "-5", "5"]
    assert "--data.apply_chat_template" in argv
    assert value(argv, "actor.num_gpus_per_node") == value(argv, "vllm.num_engines") == "1"
    assert value(argv, "js.device") == "cpu"
    assert not any("wandb" in word or "secret" in word for word in argv)
    prompts, batch = (int(value(argv, f"{name}.batch_size")) for name in ("rollout", "train"))
    assert prompts * 4 / batch == 64 * 4 / 128  # updates of a step
    policy, scorer = (value(argv, f"{role}.model_name_or_path") for role in ("actor", "reward"))
    assert AutoConfig.from_pretrained(policy).architectures == ["Qwen2ForCausalLM"]
    assert checkpoint_problems(scorer, normalize=True, messages=True) == []
    vocabularies = [AutoTokenizer.from_pretrained(each).get_vocab() for each in (policy, scorer)]
    assert vocabularies[0] == vocabularies[1]


@pytest.mark.parametrize("task", ["gsm8k", "math", "geometry3k", *GENERATED])
def test_a_task_has_its_own_labels_and_right_responses_of_one_token(tmp_path, task):
    flags = ["--reward.remote_url", f"/graders/{task}.py", "--eval.dataset", "a.jsonl,b.jsonl"]
    sees = task == "geometry3k"
    flags += [
        "--data.max_images_per_prompt",
        str(int(sees)),
        "--ds.lora.rank",
        "256",
        "--js.max_steps",
        "600",
    ]
    argv = tiny_training([*FLAGS, *flags], tmp_path)
    assert value(argv, "reward.remote_url") == f"/graders/{task}.py"
    assert [value(argv, name) for name in ("ds.lora.rank", "js.max_steps")] == ["8", "3"]
    assert "--ds.lora.alpha" not in argv
    tokenizer = AutoTokenizer.from_pretrained(value(argv, "actor.model_name_or_path"))
    responses = [each for each in tokenizer.get_vocab() if len(each) > 3 and each[0] != "<"]
    responses += [each for each in tokenizer.get_vocab() if each.startswith("<answer>")]
    rows = [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    figures = {image for row in rows for image in row.get("images", [])}
    assert len(figures) == 64 * sees and all(Path(figure).is_file() for figure in figures)
    labels = {row["label"] for row in rows}
    assert len(rows) == 64 and len(labels) == 8
    for label in labels:
        assert any(TASKS[task].score(each, label).value == 1 for each in responses), label
    assert len(Path(value(argv, "eval.dataset")).read_text().splitlines()) == 16


def test_a_dry_run_has_rows_for_files_that_are_not_built(tmp_path, capsys):
    there = tmp_path / "there.jsonl"
    there.write_text("{}\n")
    missing = ["--data.prompt_dataset", "x/train.jsonl", "--data.max_samples", "128"]
    argv = with_data([*FLAGS, *missing, "--eval.dataset", f"{there},x/test.jsonl"], tmp_path)
    assert len(Path(value(argv, "data.prompt_dataset")).read_text().splitlines()) == 128
    assert json.loads(Path(value(argv, "eval.dataset")).read_text())["context_messages"]
    assert "x/train.jsonl: not built yet, checked as 128 rows" in capsys.readouterr().out
    known = [*FLAGS, "--eval.dataset", str(there)]
    assert value(with_data(known, tmp_path), "eval.dataset") == str(there)
    assert value(with_data(known, tmp_path), "data.prompt_dataset").startswith("OpenRLHF/")


@pytest.mark.parametrize("messages", [True, False])
def test_prompts_are_messages_where_a_template_is_applied(tmp_path, messages):
    argv = [word for word in FLAGS if messages or word != "--data.apply_chat_template"]
    with open(value(tiny_training(argv, tmp_path), "data.prompt_dataset")) as file:
        row = json.loads(file.readline())
    prompt = row["context_messages"]
    text = prompt[0]["content"] if messages else prompt
    assert isinstance(text, str) and text.endswith("=")


def test_pairs_are_conversations_with_other_prompts_held_out(tmp_path):
    argv = tiny_reward_training(["--data.apply_chat_template", "--adam.lr", "9e-6"], tmp_path)
    assert value(argv, "adam.lr") == "9e-6"
    prompts = {}
    for flag in ("data.dataset", "eval.dataset"):
        with open(value(argv, flag)) as file:
            rows = [json.loads(line) for line in file]
        for row in rows:
            assert [message["role"] for message in row["chosen"]] == ["user", "assistant"]
            assert row["chosen"][0] == row["rejected"][0]
            assert row["chosen"][1] != row["rejected"][1]
        prompts[flag] = {row["chosen"][0]["content"] for row in rows}
    assert not prompts["data.dataset"] & prompts["eval.dataset"]
