"""Training on a mixed file through the real stack: rewards, logs and the way to the grader.

The policy is a tiny model that has learned by heart a right answer, a wrong one, a malformed one
and none at all to each of a few prompts, so that every status comes up and rewards differ.
"""

import math
import os
import re
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from kit import read_lines, write_lines

from answer_graders import prompt_files as writing
from answer_graders.programs.files import read_yaml
from answer_graders.tasks import STATUSES, Score, countdown, knights_knaves, maze, task_of
from answer_graders.tasks import math as mathematics
from baseline_research.tiny import model
from openrlhf_js.trainers.openrlhf.run.record import SETTINGS

pytestmark = pytest.mark.integration

MIXED = Path(__file__).parents[2] / "reward_models" / "mixed.py"
GRADEES = Path(__file__).parents[2] / "reward_models/tests"
PROMPTS = 8
RESPONSES = 4
STEPS = 3
MAX_LENGTH = 64
MAX_NEW_TOKENS = 8
LEARNING_STEPS = 100
END = "<|im_end|>"
NO_ANSWER = "I do not know."
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# Grades as `mixed.py` does, and writes down what it was given and what it made of it. At first an
# answer that hangs in an actor's pool costs itself alone.
GRADER = f"""
import json, runpy, sys
from pathlib import Path
from answer_graders.pool import GradingPool

sys.path.append({str(GRADEES)!r})
mixed = runpy.run_path({str(MIXED)!r})["reward_func"]

done = Path(__file__).with_name("graded.jsonl")

def reward_func(queries, prompts, labels, datasources):
    if not done.is_file():
        with GradingPool(1, timeout_seconds=2) as pool:
            calls = (("hostile", "in C", ""), ("compare", "1", "1"))
            found = [pool.grade("gradees:" + name, *call).status for name, *call in calls]
        assert found == ["timeout", "correct"], found
    if done.is_file() and len(done.read_text().splitlines()) >= {PROMPTS * RESPONSES * STEPS + 16}:
        raise ValueError("a label is JSON like 1, not " + repr(prompts[0]))
    result = mixed(queries, prompts, labels, datasources)
    row = [queries[0], prompts[0], labels[0], datasources[0], result["rewards"].item()]
    with done.open("a") as file:
        file.write(json.dumps(row) + "\\n")
    return result
"""


class Problem(NamedTuple):
    """A row of the data set, and what the policy has learned to say to it."""

    row: dict
    responses: list[str]


def problems() -> list[Problem]:
    couples = knights_knaves.generate(2, seed=1, people=(2,))
    generated = [
        (countdown.TASK, countdown.generate(2, seed=1), "<answer> 1 + </answer>"),
        (maze.TASK, maze.generate(2, seed=1), "<answer> onwards </answer>"),
        (knights_knaves.TASK, couples, "\\boxed{nobody knows}"),
    ]
    found = []
    for task, items, malformed in generated:
        for row in (writing.row(task, item) for item in items):
            right = task.right_response(row["label"])
            wrong = task.wrong_response(row["label"])
            found.append(Problem(row, [right, wrong, malformed, NO_ANSWER]))
    for gold, equal in (("2\\sqrt{3}", "\\sqrt{12}"), ("x^2-1", "(x+1)(x-1)")):  # not plain to see
        problem = f"Name another form of ${equal}$."
        row = writing.row(mathematics.TASK, {"problem": problem, "answer": gold, "source": "forms"})
        wrong = mathematics.wrong_response(gold)
        found.append(Problem(row, [f"\\boxed{{{equal}}}", wrong, wrong, NO_ANSWER]))
    return found


def make_tokenizer(made: list[Problem]):
    """A byte-level tokenizer, with one more token for each sentence, line and response."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({byte: i for i, byte in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in ("<pad>", END)])
    texts = [text for row, said in made for text in (*said, *chat(row).split(END))]
    pieces = {piece for text in texts for piece in re.findall(r"[^.\n]+[.\s]*", text)}
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in sorted(pieces)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token=END,
        chat_template=CHAT,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )


def chat(row: dict) -> str:
    """The prompt of a row, as the chat template makes it."""
    turns = "".join(f"<|im_start|>{m['role']}\n{m['content']}{END}\n" for m in row["input"])
    return turns + "<|im_start|>assistant\n"


def learn(policy, tokenizer, pairs: list[tuple[str, str]]) -> float:
    """Teaches the policy to give each response to its prompt; returns the last loss."""
    encoded = [
        (tokenizer.encode(prompt), tokenizer.encode(response + END)) for prompt, response in pairs
    ]
    width = max(len(prompt) + len(response) for prompt, response in encoded)
    tokens = torch.full((len(pairs), width), tokenizer.pad_token_id)
    targets = torch.full((len(pairs), width), -100)
    for row, (prompt, response) in enumerate(encoded):
        length = len(prompt) + len(response)
        tokens[row, :length] = torch.tensor(prompt + response)
        targets[row, len(prompt) - 1 : length - 1] = torch.tensor(response)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3)
    for _ in range(LEARNING_STEPS):
        logits = policy(tokens, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> Path:
    """A folder with `policy/`, `train.jsonl` and `eval.jsonl`."""
    folder = tmp_path_factory.mktemp("mixed")
    made = problems()
    tokenizer = make_tokenizer(made)
    policy = model.make_model(tokenizer, seed=0)
    policy.config.max_position_embeddings = MAX_LENGTH
    pairs = [(chat(row), said) for row, responses in made for said in responses]
    assert learn(policy, tokenizer, pairs) < 0.7  # nats per token; half of them are no choice
    model.save(policy, tokenizer, folder / "policy")
    write_lines(folder / "train.jsonl", [p.row for p in made])
    write_lines(folder / "eval.jsonl", [p.row for p in made[::2]])
    return folder


def flags(mixed: Path, **others) -> list[str]:
    given = {
        "--actor.model_name_or_path": mixed / "policy",
        "--data.prompt_dataset": mixed / "train.jsonl",
        "--data.max_len": MAX_LENGTH,
        "--rollout.max_new_tokens": MAX_NEW_TOKENS,
        "--train.num_episodes": STEPS,
        "--actor.adam.lr": 1e-4,
        "--algo.advantage.estimator": "js",
        **others,
    }
    return [*(str(x) for item in given.items() for x in item), "--data.apply_chat_template"]


class Graded(NamedTuple):
    """What the grader made of a response."""

    datasource: str
    score: Score


def read_graded(run, mixed: Path) -> list[Graded]:
    """All that was graded, each with the reward that its task gives."""
    rows = read_lines(mixed / "train.jsonl")
    datasources = {row["label"]: row["datasource"] for row in rows}
    graded = []
    for query, prompt, label, datasource, reward in read_lines(run.folder / "graded.jsonl"):
        assert query.startswith(prompt)
        assert query.count("<|im_start|>assistant") == 1
        assert datasource == datasources[label]
        score = task_of(datasource).score(query.removeprefix(prompt), label)
        assert reward == score.value
        graded.append(Graded(datasource, score))
    return graded


def check_logs_of_step(logged: dict[str, float], graded: list[Graded]) -> None:
    """The accuracy, over all tasks and of each, and the share of each status."""
    mean = np.mean([response.score.value for response in graded])
    assert logged["train/accuracy"] == pytest.approx(mean)
    assert logged["train/reward"] == pytest.approx(mean, abs=1e-5)
    for status in STATUSES:
        share = np.mean([response.score.status == status for response in graded])
        assert logged[f"train/status/{status}"] == pytest.approx(share), status
    for task in ("countdown", "maze", "knights_knaves", "math"):
        values = [
            response.score.value for response in graded if task == task_of(response.datasource).name
        ]
        assert logged[f"train/accuracy/{task}"] == pytest.approx(np.mean(values)), task
    assert 0 < logged["train/grading_seconds"] < 60


def check_critic(run, scalars: dict[str, list[float]]) -> None:
    """Upstream's own estimator, and the critic that it needs, train in our actors."""
    # our loader reached the process that trains it: upstream's leaves what was in memory there
    assert re.search(r"OurCritic.*mean: tensor\(\[0\.?\].*std tensor\(\[1\.?\]", run.output)
    assert all(map(math.isfinite, scalars["train/critic_loss"]))
    assert all(variance > 0 for variance in scalars["js/gradient_variance"])


def test_mixed_tasks_train_a_critic_and_are_logged_and_a_grader_that_raises_stops_the_run(
    start, mixed
):
    """On dynamic batches."""
    run = start(
        *flags(mixed, **{"--train.num_episodes": STEPS + 1, "--algo.advantage.estimator": "gae"}),
        *("--critic.model_name_or_path", str(mixed / "policy"), "--critic.num_gpus_per_node", "1"),
        *("--ds.zero_stage", "2", "--js.gradient_variance"),
        *("--train.dynamic_batch_enable", "--train.max_tokens_per_gpu", str(MAX_LENGTH)),
        *("--eval.dataset", str(mixed / "eval.jsonl"), "--eval.steps", str(STEPS)),
        *("--eval.n_samples_per_prompt", "2"),
        grader=GRADER,
    ).finish()
    assert run.status == 1, run.output[-3000:]
    last_line = run.output.strip().splitlines()[-1]
    assert "ValueError: a label is JSON like" in last_line
    assert "assistant" in last_line

    graded = read_graded(run, mixed)
    evaluated = PROMPTS // 2 * 2  # responses: before the first step, and at the last
    evaluations = (graded[:evaluated], graded[-evaluated:])
    trained = graded[evaluated:-evaluated]
    assert len(trained) == PROMPTS * RESPONSES * STEPS
    statuses = Counter(response.score.status for response in trained)
    assert set(statuses) == {"correct", "wrong", "malformed", "no_answer"}, statuses

    scalars = run.scalars()
    check_critic(run, scalars)
    batches = run.batches()
    assert len(batches) == STEPS
    for step in range(STEPS):  # synchronous training: a step's responses come one step at a time
        first = step * PROMPTS * RESPONSES
        of_step = trained[first : first + PROMPTS * RESPONSES]
        logged = {name: values[step] for name, values in scalars.items() if len(values) == STEPS}
        check_logs_of_step(logged, of_step)
        values = sorted(response.score.value for response in of_step)
        assert sorted(batches[step]["rewards"].flat) == pytest.approx(values)

    for source in ("countdown/3", "maze/6x6", "knights_knaves/2", "math/forms"):
        means = []
        for responses in evaluations:
            values = [
                response.score.value for response in responses if response.datasource == source
            ]
            means.append(np.mean(values))
        assert scalars[f"eval/eval_{source}_pass1"] == pytest.approx(means), source


def test_async_remax_is_interrupted_and_resumes(start, mixed):
    """It ends with a lower learning rate."""
    words = (
        *flags(mixed, **{"--reward.remote_url": MIXED, "--algo.advantage.estimator": "remax"}),
        *("--train.async_enable", "--ds.zero_stage", "1"),
        *("--rollout.batch_size", "2", "--train.batch_size", "8"),
        *("--eval.dataset", str(mixed / "eval.jsonl"), "--eval.steps", "100"),
        *("--train.num_episodes", "1000", "--ckpt.save_steps", "2", "--ckpt.max_num", "9"),
    )
    running = start(*words, "--logger.wandb.run_name", "first", grader=None)
    running.until_batches(6)
    os.kill(running.process.pid, signal.SIGTERM)  # which Ray would take for itself
    first = running.finish(timeout_seconds=60)
    assert first.status == 130, first.output[-3000:]
    assert "openrlhf_js: interrupted" in first.output
    assert "the live advantage estimator is remax\n" in first.output
    settings = read_yaml(first.folder / "tensorboard" / "first" / SETTINGS)
    assert settings["record"]["outcome"] == "interrupted"
    first.check_advantages(steps=None)
    logged = first.scalars()
    logged_steps = len(logged["train/reward"])
    assert logged_steps >= 5
    _check_remax_logs(logged, first.batches()[:logged_steps])
    assert len(logged["eval/eval_knights_knaves/2_pass1"]) == 1  # before the first step
    assert not list((first.folder / "checkpoints").rglob("best*"))  # of which nothing is saved

    _forget_after_step_2(first.folder)
    slower = ("--actor.adam.lr", "1e-5", "--js.changed", "actor.adam.lr")
    resumed = (*words, "--ckpt.load_enable", "--js.max_steps", "5", *slower)
    second = start(*resumed, "--logger.wandb.run_name", "second", grader=None).finish()
    assert second.status == 0, second.output[-3000:]
    assert "the checkpoint's run had --actor.adam.lr 0.0001 (now 1e-05)\n" in second.output
    second.check_advantages(steps=5)  # its responses may be of a newer policy
    logged = second.scalars()
    _check_remax_logs(logged, second.batches()[2:])
    assert 0 < max(logged["train/actor_lr"]) <= 1e-5


def _forget_after_step_2(folder: Path) -> None:
    """Leaves a run's checkpoint of step 2, and its batches until then."""
    checkpoints = folder / "checkpoints" / "_actor"
    for checkpoint in checkpoints.glob("global_step*"):
        if checkpoint.name != "global_step2":
            shutil.rmtree(checkpoint)
    (checkpoints / "latest").write_text("global_step2")
    for batch in sorted((folder / "batches").glob("*"))[2:]:
        batch.unlink()


def _check_remax_logs(logged: dict[str, list[float]], batches: list[dict]) -> None:
    """The rewards of the responses that train, and not of the greedy ones."""
    assert not any("greedy_reward" in tag for tag in logged)
    means = [batch["rewards"].mean() for batch in batches]
    np.testing.assert_allclose(logged["train/accuracy"], means, atol=1e-5)
    shares = [logged[f"train/status/{status}"] for status in STATUSES]
    np.testing.assert_allclose(np.sum(shares, axis=0), 1, atol=1e-5)
    by_task = [values for tag, values in logged.items() if tag.startswith("train/accuracy/")]
    assert by_task
    assert all(0 <= value <= 1 for values in by_task for value in values)
