"""A taskset of verifiers trains in TRL and in OpenRLHF: `bash scripts/trainers.sh verifiers`."""

import asyncio
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verifiers.v1", reason="bash scripts/trainers.sh verifiers")

from renderers.client import OverlongPromptError
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from verifiers.v1.env import Env

import openrlhf_js.trainers.verifiers as ours

MARKS = ["<pad>", "<unk>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>"]
TOOLS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ENV = {"taskset": {"id": "sevens_taskset"}, "agent": {"runtime": {"type": "subprocess"}}}
RENDERER = {"name": "qwen3", "enable_thinking": False}


def make_tokenizer(folder: Path) -> Any:
    """A token for each character and for each mark of Qwen's template, saved and loaded."""
    tokens = [*MARKS, *TOOLS, *map(chr, range(32, 127)), "\n"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    words.decoder = decoders.Fuse()
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<|im_end|>"}
    special = [*MARKS[2:3], *MARKS[4:5], *TOOLS, *MARKS[5:]]
    PreTrainedTokenizerFast(
        tokenizer_object=words,
        additional_special_tokens=special,
        chat_template=CHAT,
        padding_side="left",
        **names,
    ).save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_tokenizer(tmp_path_factory.mktemp("policy"))


@pytest.fixture(autouse=True)
def taskset_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)


def make_tasks(**renderer: Any) -> ours.Tasks:
    return ours.Tasks(ENV, renderer=RENDERER | renderer)


def with_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts uv on the path, which the `null` harness calls."""
    programs = Path(__file__).parents[2] / ".venv" / "bin"
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A few words in place of those that NLTK would download."""
    nltk = pytest.importorskip("nltk")
    folder = tmp_path_factory.mktemp("nltk")
    corpus = folder / "corpora" / "words"
    corpus.mkdir(parents=True)
    for name in ("en", "en-basic", "README"):
        (corpus / name).write_text("river stone cloud bread chair plant".replace(" ", "\n"))
    nltk.data.path.insert(0, str(folder))  # which its reader reads once


@pytest.fixture
def word_search(words: None, monkeypatch: pytest.MonkeyPatch) -> ours.Tasks:
    """A taskset of verifiers' own, in which a game answers each move; two moves, each in a process
    of verifiers' `null` harness."""
    monkeypatch.setattr("nltk.download", lambda *_, **__: True)
    with_uv(monkeypatch)
    player = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}, "max_turns": 2}
    taskset = {"id": "textarena", "game": "WordSearch-v0"}
    return ours.Tasks({"taskset": taskset, "player": player}, renderer=RENDERER)


class Script:
    """An engine that answers with given replies, and keeps the contexts that it was asked for."""

    def __init__(self, tokenizer: Any, *replies: str):
        self.tokenizer = tokenizer
        self.replies = iter(replies)
        self.contexts: list[str] = []

    async def sample(self, context: list[int], stop: list[int]) -> ours.Sampled:
        self.contexts.append(self.tokenizer.decode(context))
        ids = self.tokenizer(next(self.replies), add_special_tokens=False)["input_ids"]
        ids.append(self.tokenizer.eos_token_id)
        assert ids[-1] in stop
        return ours.Sampled(ids, [-place / 8 for place in range(1, len(ids) + 1)], False)


def run(tasks: ours.Tasks, label: str, tokenizer: Any, sample: ours.Sample) -> ours.Scored:
    async def once() -> ours.Scored:
        try:
            return await tasks.run(label, tokenizer.name_or_path, sample)
        finally:
            await tasks.close()

    return asyncio.run(once())


def sampled_text(tokenizer: Any, row: ours.Scored) -> str:
    pairs = zip(row.token_ids, row.mask, strict=True)
    return str(tokenizer.decode([token for token, sampled in pairs if sampled]))


# --- without a model -----------------------------------------------------------------------------


def test_rows_hold_the_messages_and_find_the_task(tmp_path: Path) -> None:
    tasks = make_tasks()
    tasks.write(tmp_path / "tasks.jsonl", count=5)
    rows = [json.loads(line) for line in (tmp_path / "tasks.jsonl").read_text().splitlines()]
    assert rows == tasks.rows(5) and len(tasks.rows()) == 8
    assert len({row["label"] for row in rows}) == 5
    system, user = rows[3]["prompt"]
    assert system == {"role": "system", "content": "Be brief", "task": rows[3]["label"]}
    assert user == {"role": "user", "content": "Write 3", "task": rows[3]["label"]}
    for row in (rows[4], rows[1]):
        assert make_tasks().task(row["label"]).data.prompt == row["prompt"][1]["content"]


def test_sampled_tokens_train_and_rewards_have_their_weights(tokenizer: Any) -> None:
    """Two turns: the engine reads exactly the tokens before its own, and these alone train."""
    tasks, script = make_tasks(), Script(tokenizer, "77", "7 1")
    row = run(tasks, tasks.rows()[3]["label"], tokenizer, script.sample)
    first, second = script.contexts
    text = tokenizer.decode(row.token_ids)
    assert first == (
        "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nWrite 3<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    assert second.startswith(f"{first}77<|im_end|>\n<|im_start|>user\nAgain<|im_end|>\n")
    assert text == f"{second}7 1<|im_end|>"
    assert sampled_text(tokenizer, row) == "77<|im_end|>7 1<|im_end|>"
    log_probs = [value for value, sampled in zip(row.log_probs, row.mask, strict=True) if sampled]
    assert log_probs == [-1 / 8, -2 / 8, -3 / 8, -1 / 8, -2 / 8, -3 / 8, -4 / 8]
    assert sum(row.log_probs) == sum(log_probs)
    assert row.reward == pytest.approx(2.0 * 0.3 - 0.5 * 1)
    assert row.logs == {
        "rewards/sevens": pytest.approx(0.3),
        "rewards/words": 1.0,
        "metrics/turns": 2.0,
    }


@pytest.mark.parametrize(
    ("replies", "renderer", "message"),
    [
        (["7", "xxx"], {}, "xxx cannot be scored"),
        ([], {}, "HarnessError"),
        # thoughts are left out of the second context, which begins another branch
        (["a</think>7", "7"], {"enable_thinking": True}, "a trace with 2 branches"),
    ],
)
def test_what_was_not_scored_is_no_reward(
    tokenizer: Any, replies: list[str], renderer: dict[str, Any], message: str
) -> None:
    tasks = make_tasks(**renderer)
    with pytest.raises(ours.Unscored, match=message):
        run(tasks, tasks.rows()[0]["label"], tokenizer, Script(tokenizer, *replies).sample)


def episode_of(stop: str | None, agents: int = 1) -> Any:
    """An episode of one turn with a reward, which ended with this condition."""
    branch = SimpleNamespace(sampled_mask=[False, True])
    trace = SimpleNamespace(
        agent=SimpleNamespace(trainable=True),
        branches=[branch],
        rewards={"right": SimpleNamespace(score=1.0)},
        stop_condition=stop,
    )
    return SimpleNamespace(ok=True, errors=[], traces=[trace] * agents)


@pytest.mark.parametrize("stop", ["finalize_timeout", "scoring_timeout"])
def test_a_reward_of_unfinished_work_is_none(stop: str) -> None:
    with pytest.raises(ours.Unscored, match=f"not scored: {stop}"):
        ours.scored(episode_of(stop))


def test_two_trainable_agents_stop_the_run() -> None:
    with pytest.raises(ValueError, match="2 traces are trainable: leave one trainable agent"):
        ours.scored(episode_of(None, agents=2))


def test_a_cancelled_turn_does_not_hold_up_the_others() -> None:
    """verifiers cancels a request at a deadline."""

    def generate(contexts: list[list[int]], *_: Any) -> Any:
        return [[context[0] + 5] for context in contexts], None

    async def play() -> ours.Sampled:
        turns = ours.Turns(SimpleNamespace(_generate_single_turn=generate))
        async with turns:
            async with turns:
                late = asyncio.ensure_future(turns.sample([1], [7]))
                await asyncio.sleep(0)
                late.cancel()
                await asyncio.gather(late, return_exceptions=True)
            return await asyncio.wait_for(turns.sample([2], [7]), timeout=5)

    assert asyncio.run(play()) == ([7], [0.0], False)


def test_a_renderer_that_keeps_thoughts_keeps_one_branch(tokenizer: Any) -> None:
    tasks = make_tasks(enable_thinking=True, thinking_retention="all")
    script = Script(tokenizer, "a</think>7", "7")
    assert run(tasks, tasks.rows()[0]["label"], tokenizer, script.sample).logs["metrics/turns"] == 2
    assert "a</think>7<|im_end|>" in script.contexts[1]


def test_a_taskset_of_verifiers_itself(tokenizer: Any, word_search: ours.Tasks) -> None:
    """The task of a row has the board of the row, and the game's tokens are masked."""
    with pytest.raises(ValueError, match=r"no end: give rows\(\) a count"):
        word_search.rows()
    label, board = word_search.rows(3)[2]["label"], word_search.rows(3)[2]["prompt"][1]["content"]
    script = Script(tokenizer, "[0 0 0 5]", "hm")
    row = run(word_search, label, tokenizer, script.sample)
    assert len(script.contexts) == 2 and board in script.contexts[0]
    assert sampled_text(tokenizer, row) == "[0 0 0 5]<|im_end|>hm<|im_end|>"
    assert "Incorrect" in script.contexts[1].removeprefix(script.contexts[0])
    assert row.logs == {"rewards/game_reward": row.reward}


def test_a_context_without_room_ends_a_rollout_that_is_scored(
    tokenizer: Any, word_search: ours.Tasks
) -> None:
    """In the `null` harness."""
    script = Script(tokenizer, "hm")

    async def sample(context: list[int], stop: list[int]) -> ours.Sampled:
        if script.contexts:
            raise OverlongPromptError(prompt_len=9, max_prompt_len=8)
        return await script.sample(context, stop)

    row = run(word_search, word_search.rows(1)[0]["label"], tokenizer, sample)
    assert row.logs == {"rewards/game_reward": 0.0} and sum(row.mask) == 3


def test_the_tokens_of_a_tool_are_masked(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verifiers' `null` harness calls the tool, which a server of verifiers runs."""
    with_uv(monkeypatch)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    tasks = ours.Tasks({"taskset": {"id": "adding_taskset"}, "agent": agent}, renderer=RENDERER)
    call = json.dumps({"name": "sum_add", "arguments": {"a": 2, "b": 3}})
    script = Script(tokenizer, f"<tool_call>\n{call}\n</tool_call>", "5")
    row = run(tasks, tasks.rows()[0]["label"], tokenizer, script.sample)
    first, second = script.contexts
    assert "sum_add" in first and "The sum is 5" in second.removeprefix(first)
    assert sampled_text(tokenizer, row) == (
        f"<tool_call>\n{call}\n</tool_call><|im_end|>5<|im_end|>"
    )
    assert row.reward == 1


def test_a_row_of_another_taskset_is_refused() -> None:
    tasks = make_tasks()
    for label in ("3/another", "8/missing"):
        with pytest.raises(ValueError, match=f"has no task {label}: write the rows again"):
            tasks.task(label)


def test_prompts_that_a_row_cannot_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = make_tasks()
    (task, *_) = tasks.env.taskset
    parts = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a.png"}}]}]
    image = type(task.data).model_validate({"prompt": parts})
    for data, message in (
        (task.data.model_copy(update={"prompt": None}), "its user opens, and a row needs one"),
        (image, "more than text in its prompt"),
    ):
        odd = type(task)(data, task.config)
        monkeypatch.setattr(type(tasks.env.taskset), "load", lambda _, odd=odd: [odd])
        with pytest.raises(ValueError, match=f"task 0 has .*{message}"):
            tasks.rows()


def test_a_changed_method_stops_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Env, "serving")
    with pytest.raises(RuntimeError, match=r"verifiers 0.4.0 has no .*; pip install verifiers=="):
        importlib.reload(ours)


# --- in OpenRLHF ---------------------------------------------------------------------------------


class Engine:
    """OpenRLHF's engine, as far as an executor calls it."""

    def __init__(self, script: Script):
        self.script = script
        self.params: list[Any] = []

    async def generate(self, context: list[int], params: Any) -> Any:
        self.params.append(params)
        ids, log_probs, _ = await self.script.sample(context, params.stop_token_ids)
        known = [
            {token: SimpleNamespace(logprob=value)}
            for token, value in zip(ids, log_probs, strict=True)
        ]
        output = SimpleNamespace(token_ids=ids, logprobs=known, finish_reason="stop")
        return SimpleNamespace(outputs=[output])


def execute(tokenizer: Any, *replies: str, max_length: int = 256, **params: Any) -> Any:
    """What the executor returns for the fourth task, its engine, and the script."""
    from openrlhf_js.trainers.openrlhf.tasksets import executor

    tasks, engine = make_tasks(), Engine(Script(tokenizer, *replies))
    given = {"max_tokens": 20, "stop_token_ids": None, "logprobs": 1, **params}

    async def once() -> dict[str, Any]:
        try:
            return await executor(tasks)().execute(
                prompt="Write 3",
                label=tasks.rows()[3]["label"],
                sampling_params=SimpleNamespace(**given),
                max_length=max_length,
                hf_tokenizer=tokenizer,
                llm_engine=engine,
            )
        finally:
            await tasks.close()

    return asyncio.run(once()), engine


def test_the_executor_returns_ranges_log_probs_and_rewards(tokenizer: Any) -> None:
    pytest.importorskip("openrlhf")
    response, engine = execute(tokenizer, "77", "7 1")
    tokens = response["observation_tokens"]
    written = [tokenizer.decode(tokens[start:end]) for start, end in response["action_ranges"]]
    assert written == ["77<|im_end|>", "7 1<|im_end|>"]
    assert response["reward"] == response["scores"] == pytest.approx(0.1)
    assert response["extra_logs"]["rewards/words"] == 1.0 and not response["truncated"]
    log_probs = response["rollout_log_probs"]
    assert len(log_probs) == len(tokens) and sum(map(bool, log_probs)) == 7
    (start, end), _ = response["action_ranges"]
    assert log_probs[start:end] == [-1 / 8, -2 / 8, -3 / 8]
    assert [params.max_tokens for params in engine.params] == [20, 20]
    assert execute(tokenizer, "77", "7 1", logprobs=None)[0]["rollout_log_probs"] is None


def test_a_context_without_room_ends_the_rollout(tokenizer: Any) -> None:
    """Turns share --data.max_len; here the second has no room, and its harness fails."""
    pytest.importorskip("openrlhf")
    from openrlhf_js.trainers.openrlhf.graders import settle
    from openrlhf_js.trainers.openrlhf.upstream import BadReward

    response, engine = execute(tokenizer, "77", max_length=60)
    assert [params.max_tokens for params in engine.params] == [10]
    assert isinstance(response["reward"], ours.Unscored)
    assert "exceeds maximum context length (59)" in str(response["reward"])
    ((start, end),) = response["action_ranges"]
    assert end - start == 1 and end == len(response["observation_tokens"]) <= 60
    assert "Unscored" in settle(dict(response), "mask")
    with pytest.raises(BadReward, match="the grader failed: Unscored"):
        settle(response, "stop")


AGENT = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from openrlhf_js.trainers.openrlhf.tasksets import executor
from openrlhf_js.trainers.verifiers import Tasks

TASKS = Tasks({ENV!r}, renderer={RENDERER!r})
AgentExecutor = executor(TASKS)
if __name__ == "__main__":
    TASKS.write("tasks.jsonl")
"""


@pytest.mark.integration
def test_openrlhf_takes_two_steps(tokenizer: Any, tmp_path: Path) -> None:
    """The program on the real stack, its file of prompts, and what is logged."""
    pytest.importorskip("openrlhf")
    np = pytest.importorskip("numpy")
    from kit import scalars

    from baseline_research.tiny import model

    policy = tmp_path / "policy"
    model.save(model.make_model(tokenizer, seed=0), tokenizer, policy)
    (tmp_path / "agent.py").write_text(AGENT)
    subprocess.run([sys.executable, "agent.py"], cwd=tmp_path, check=True)
    flags = {
        "--actor.model_name_or_path": policy,
        "--train.agent_func_path": "agent.py",
        "--data.prompt_dataset": "tasks.jsonl",
        "--data.input_key": "prompt",
        "--data.label_key": "label",
        "--data.max_len": 160,
        "--rollout.max_new_tokens": 8,
        "--actor.num_gpus_per_node": 1,
        "--ref.num_gpus_per_node": 1,
        "--vllm.num_engines": 1,
        "--rollout.batch_size": 4,
        "--rollout.n_samples_per_prompt": 4,
        "--rollout.micro_batch_size": 8,
        "--train.batch_size": 16,
        "--train.micro_batch_size": 8,
        "--algo.advantage.estimator": "js_grad",
        "--algo.advantage.is_correction_level": "token",
        "--algo.kl.init_coef": 0,
        "--actor.adam.lr": 1e-3,
        "--actor.lr_warmup_ratio": 0,
        "--js.device": "cpu",
        "--ckpt.output_dir": "model",
        "--logger.tensorboard_dir": "tensorboard",
        "--js.save_batches": "batches",
    }
    command = [sys.executable, "-m", "openrlhf_js.cli.train", "--data.apply_chat_template"]
    command += ["--js.verbose"]
    command += [text for flag, value in flags.items() for text in (flag, str(value))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    batches = [dict(np.load(file)) for file in sorted((tmp_path / "batches").glob("*.npz"))]
    (run_folder,) = (tmp_path / "tensorboard").iterdir()
    logged = scalars(run_folder)
    assert len(batches) == len(logged["train/rewards/words"]) == 2
    for batch, (_, sevens), (_, words) in zip(
        batches, logged["train/rewards/sevens"], logged["train/rewards/words"], strict=True
    ):
        assert batch["rewards"].mean() == pytest.approx(2.0 * sevens - 0.5 * words, abs=1e-5)
        assert batch["rewards"].std() > 0
    assert [value for _, value in logged["train/metrics/turns"]] == [2, 2]
    assert all(2 < value <= 2 * 8 for _, value in logged["train/response_length"])
    # the policy gives the sampled tokens the log-probabilities that vLLM gave them
    assert all(abs(value) < 0.05 for _, value in logged["train/vllm_kl"])


# --- in TRL --------------------------------------------------------------------------------------


def make_trainer(
    folder: Path, tasks: ours.Tasks, tokenizer: Any, count: int | None = None, **settings: Any
) -> Any:
    trl = pytest.importorskip("trl")
    import trl.import_utils as available

    available.is_vllm_available = lambda *_, **__: False  # an import of many seconds
    from datasets import Dataset

    from baseline_research.tiny import model
    from openrlhf_js.trainers.trl import ShrinkageGRPOTrainer

    policy = model.make_model(tokenizer, 0, width=32, layers=1)
    policy.generation_config.eos_token_id = tokenizer.eos_token_id
    given = {
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "max_completion_length": 6,
        "max_steps": 2,
        "learning_rate": 1e-2,
        "scale_rewards": "none",
        "loss_type": "dr_grpo",
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_steps": 1,
    }
    return ShrinkageGRPOTrainer(
        policy,
        tasks.reward,
        trl.GRPOConfig(str(folder), **given | settings),
        Dataset.from_list(tasks.rows(count)),
        processing_class=tokenizer,
        rollout_func=tasks.rollout,
    )


def test_trl_takes_two_steps(tokenizer: Any, tmp_path: Path) -> None:
    """Only sampled tokens train; a rollout that fails is left out, and the others are not."""
    tasks = make_tasks()
    trainer = make_trainer(tmp_path, tasks, tokenizer)
    outputs, batches, contexts = [], [], []
    score, batch, generate = (
        trainer._generate_and_score_completions,
        trainer._batch,
        trainer._generate_single_turn,
    )

    def keep_outputs(inputs: Any) -> Any:
        outputs.append(score(inputs))
        return outputs[-1]

    def keep_batches(*given: Any) -> Any:
        batches.append(batch(*given))
        return batches[-1]

    def turn(given: Any, *more: Any) -> Any:
        contexts.append(len(given))
        tokens, log_probs = generate(given, *more)
        tokens[0] = tokenizer("xxx", add_special_tokens=False)["input_ids"]  # cannot be scored
        return tokens, log_probs

    trainer._generate_and_score_completions = keep_outputs
    trainer._batch = keep_batches
    trainer._generate_single_turn = turn
    before = [parameter.clone() for parameter in trainer.model.parameters()]
    trainer.train()
    assert contexts == [8, 8] * 2  # all rollouts at once, in each of two turns
    for output, seen in zip(outputs, batches, strict=True):
        mask = output["tool_mask"] * output["completion_mask"]
        failed = (mask.sum(1) == 0).cpu()
        assert 1 <= int(failed.sum()) <= 2 and (~seen.mask.flatten() == failed).all()
        assert (output["advantages"][failed] == 0).all()
        for ids, own in zip(output["completion_ids"], mask, strict=True):
            if not own.any():
                continue
            text = tokenizer.decode(ids)
            assert "<|im_start|>user\nAgain<|im_end|>" in text
            unmasked = tokenizer.decode(ids[own.bool()])
            assert "Again" not in unmasked and "<|im_start|>assistant" not in unmasked
        assert 2 <= int(mask.sum(1).max()) <= 12
    assert seen.rewards.std() > 0
    logged = [row for row in trainer.state.log_history if "rewards/words" in row]
    assert len(logged) == 2 and all(row["metrics/turns"] == 2 for row in logged)
    pairs = zip(before, trainer.model.parameters(), strict=True)
    assert any((old != new).any() for old, new in pairs)


@pytest.mark.timeout(500)  # a process for each turn
def test_trl_plays_a_game_of_verifiers(
    tokenizer: Any, tmp_path: Path, word_search: ours.Tasks
) -> None:
    sizes = {"num_generations": 2, "per_device_train_batch_size": 4}
    trainer = make_trainer(tmp_path, word_search, tokenizer, count=4, **sizes)
    trainer.train()
    logged = [row for row in trainer.state.log_history if "rewards/game_reward" in row]
    assert len(logged) == 2
    assert all(row["completions/max_length"] <= 2 * 6 for row in logged)


def test_an_error_of_trl_and_a_batch_without_rewards_end_the_run(
    tokenizer: Any, tmp_path: Path
) -> None:
    tasks = make_tasks()
    trainer = make_trainer(tmp_path, tasks, tokenizer)
    prompts = [row["prompt"] for row in tasks.rows()[:2]]

    def full(*_: Any) -> Any:
        raise MemoryError("no room")

    trainer._generate_single_turn = full
    with pytest.raises(MemoryError, match="no room"):
        tasks.rollout(prompts, trainer)
    xxx = tokenizer("xxx", add_special_tokens=False)["input_ids"]
    trainer._generate_single_turn = lambda contexts, *_: ([xxx for _ in contexts], None)
    with pytest.raises(ours.Unscored, match="xxx cannot be scored"):
        tasks.rollout(prompts, trainer)
