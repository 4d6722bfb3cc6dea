"""A run on one screen, and prompts that a run could not be given: both before anything starts."""

from pathlib import Path

import pytest
from kit import save_policy, write_lines

from baseline_research.tiny.tasks import sort
from openrlhf_js.cli import train

RUN = """
algo.advantage.estimator: js_grad
actor: {model_name_or_path: policy, num_gpus_per_node: 1}
ref.num_gpus_per_node: 1
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
    for figure in (
        "645,888 parameters",
        "20 prompts, the longest of 9 tokens",
        "8 prompts x 4 responses = 32 a step",
        "steps 2 in 1 episode, 4 updates; 4 of 20 prompts",
        "on each GPU 3.7 GiB",
    ):
        assert figure in text
    assert not Path("out").exists() and not Path("curves").exists()
    assert dry_run("--verbose") == 0
    shown = capsys.readouterr().out
    assert "GPU memory" not in shown and "on GPUs" not in shown
    assert "\nactor.adam.lr: 1.0e-06\n" in shown.partition("# defaults")[2]


def test_the_screen_says_where_engines_are_and_which_checkpoints_are_saved(capsys):
    def shown(*flags: str) -> str:
        assert dry_run("--js.device", "gpu", *flags) == 0
        return " ".join(capsys.readouterr().out.split())

    together = ("--train.colocate_all", "--algo.kl.init_coef", "0")
    assert "1 vLLM engine on the same" in shown(*together)
    evaluated = ("--eval.dataset", "prompts.jsonl", "--eval.steps", "1", "--ckpt.save_steps", "-1")
    text = shown(*together, "--train.async_enable", *evaluated)
    assert "1 vLLM engine on others (--train.async_enable)" in text
    assert "out/checkpoints, at each best evaluation" in text
    assert "none on the way" in shown(*evaluated, "--ckpt.best_metric_key", "none")
    text = shown("--ckpt.disable_ds", "--ckpt.save_hf", "--ckpt.save_steps", "2")
    assert (
        "none to resume from (--ckpt.disable_ds); out/checkpoints has models every 2 steps" in text
    )


def test_the_screen_counts_the_prompts_that_are_used(capsys):
    def shown(*flags: str) -> str:
        assert dry_run(*flags) == 0
        return " ".join(capsys.readouterr().out.split())

    two = ("--data.prompt_dataset", "prompts.jsonl,prompts.jsonl", "--data.max_samples", "30")
    assert "30 prompts, the longest" in shown(*two)
    Path("agent.py").write_text("class AgentExecutor: ...")
    agent = ("--reward.remote_url", "", "--train.agent_func_path", "agent.py")
    long = ("--data.max_len", "16", "--js.on_long_prompt", "drop")  # an agent's prompts stay
    text = shown(*agent, *long)
    assert "an agent writes the prompts" in text and "steps 2 in 1 episode" in text


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

    assert "chat template" in refused(*with_template, "chat.jsonl")
    Path("policy/chat_template.jinja").write_text(TEMPLATE)
    assert dry_run(*with_template, "chat.jsonl") == 0
    capsys.readouterr()
    assert "row 10" in refused(*with_template, "system.jsonl")
    assert "--data.max_len" in refused("--data.max_len", "16")
    assert "no prompt" in refused("--data.max_len", "16", "--js.on_long_prompt", "drop")
    Path("policy/tokenizer.json").write_text("{")
    assert "--actor.model_name_or_path" in refused()
