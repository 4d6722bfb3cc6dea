"""A run on one screen, and prompts that a run could not be given: both before anything starts."""

from pathlib import Path

import pytest
from kit import save_policy, write_lines

from baseline_research.tiny.tasks import sort
from openrlhf_js.cli import train

RUN = """
algo.advantage.estimator: js_grad
actor: {model_name_or_path: policy, num_gpus_per_node: 1}
data: {prompt_dataset: prompts.jsonl, label_key: label, max_len: 32}
reward.remote_url: grader.py
rollout: {batch_size: 8, n_samples_per_prompt: 4, max_new_tokens: 8, micro_batch_size: 8}
train: {batch_size: 16, micro_batch_size: 4, max_epochs: 1}
vllm.num_engines: 1
ckpt: {output_dir: out, path: out/checkpoints, save_steps: 2}
logger.tensorboard_dir: curves
logger.wandb.run_name: one
"""
TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'system' %}"
    "{{ raise_exception('no system prompt') }}{% endif %}{{ message.content }}{% endfor %}"
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A run whose file has nothing wrong, of twenty prompts of nine tokens."""
    monkeypatch.chdir(tmp_path)
    save_policy(Path("policy"))
    rows = [{"input": sort.prompt(str(n)), "label": sort.label(str(n))} for n in range(10, 30)]
    write_lines("prompts.jsonl", rows)
    Path("grader.py").write_text("def reward_func(*lists): return {'rewards': [1.0]}\n")
    Path("run.yaml").write_text(RUN)


def dry_run(*flags: str) -> int:
    return train.main(["run.yaml", "--js.dry_run", *flags])


def test_a_dry_run_is_one_screen(capsys):
    assert dry_run("--js.device", "gpu") == 0  # which is not here
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert len(lines) < 30 and max(map(len, lines)) <= 100
    text = " ".join(shown.split())
    for said in (
        "model policy: Qwen2ForCausalLM, 645,888 parameters",
        "prompts.jsonl: 20 prompts, the longest of 9 tokens; --data.max_len leaves room for 24,",
        "grader.py: its reward_func gets prompts, responses and the row's 'label'",
        "8 prompts x 4 responses = 32 a step, of up to 8 tokens each; 2 updates a step",
        "a response gets up to 1 update old",
        "steps 2 in 1 episode, 4 updates; 4 of 20 prompts are left out of each episode",
        "is given rewards; squared score norms,",
        "GPU memory computed, not measured: on each GPU 3.7 GiB to train micro-batches of 128 tok",
        "without --train.colocate_all, --vllm.enable_sleep, --ds.enable_sleep,",
        "saved model out, at the end checkpoints out/checkpoints, every 2 steps",
        "settings curves/one/openrlhf_js.yaml, which starts this run again",
    ):
        assert said in text
    assert not Path("out").exists() and not Path("curves").exists()
    assert dry_run("--verbose") == 0
    shown = capsys.readouterr().out
    assert "GPU memory" not in shown and "on GPUs" not in shown
    assert "computes on  this machine's CPU" in shown
    assert "\nactor.adam.lr: 1.0e-06\n" in shown.partition("# defaults")[2]


def test_a_prompt_that_cannot_be_given_ends_a_run_before_it_starts(capsys, monkeypatch):
    monkeypatch.setattr(train, "train", lambda *_: pytest.fail("it has started"))
    Path("policy/chat_template.jinja").unlink()
    chat = [{"input": [{"role": "user", "content": "sort"}], "label": "1"}] * 9
    write_lines("chat.jsonl", chat)
    chat.append({"input": [{"role": "system", "content": "sort"}], "label": "1"})
    write_lines("system.jsonl", chat)
    with_template = ("--data.apply_chat_template", "--data.prompt_dataset")

    def refused(*flags: str) -> str:
        assert train.main(["run.yaml", *flags]) == 2
        return capsys.readouterr().err.splitlines()[-1]

    assert "the tokenizer of policy has no chat template" in refused(*with_template, "chat.jsonl")
    Path("policy/chat_template.jinja").write_text(TEMPLATE)
    assert dry_run(*with_template, "chat.jsonl") == 0
    assert "tokens with the chat template" in " ".join(capsys.readouterr().out.split())
    assert refused(*with_template, "system.jsonl") == (
        "openrlhf_js: --data.prompt_dataset system.jsonl: row 10 is refused by the chat template "
        "of policy: no system prompt"
    )
    assert "20 of 20, up to 9 in row 1; raise --data.max_len" in refused("--data.max_len", "16")
    dropping = ("--js.on_long_prompt", "drop")
    assert "no prompt is left" in refused("--data.max_len", "16", *dropping)
    write_lines("mixed.jsonl", [{"input": "1" * n, "label": "1"} for n in (*range(1, 12), 30)])
    mixed = ("--data.prompt_dataset", "mixed.jsonl", *dropping)
    assert dry_run(*mixed) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "12 prompts, the longest of 30 tokens" in text
    assert "1 are longer and left out" in text and "3 of 11 prompts are left out" in text
    assert "there are 11 prompts, fewer than one rollout" in refused(
        *mixed, "--rollout.batch_size", "12", "--train.batch_size", "48"
    )
    Path("policy/tokenizer.json").write_text("{")
    assert "--actor.model_name_or_path policy: no tokenizer (" in refused()
