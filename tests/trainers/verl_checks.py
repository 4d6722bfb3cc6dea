"""verl's own `compute_advantage`, called as its trainer does."""

import importlib.util
import math
import random
import re
import shutil
import subprocess
import uuid
import warnings
from pathlib import Path
from statistics import mean, variance
from types import ModuleType

import numpy as np
import pytest
import torch
import verl
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from tensordict.tensorclass import NonTensorStack
from transfer_queue import KVBatchMeta
from verl import DataProto
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1 import PPOTrainer, get_trainer_cls

from openrlhf_js.estimators import LiveEstimator, advantage, diagnostics, squared_score_norms
from openrlhf_js.estimators.advantages import warn_once
from openrlhf_js.trainers import prompt_key
from openrlhf_js.trainers.verl import OutcomeAdvantage, register

Groups = dict[str, list[float]]
draws = random.Random(1)
EQUAL = {f"uid{i}": [draws.gauss(i, 1 + i) for _ in range(4)] for i in range(5)}
RAGGED = {f"uid{i}": [draws.gauss(i, 1) for _ in range(m)] for i, m in enumerate((4, 2, 1, 3, 4))}


def in_verl(estimator: str, groups: Groups, padding: int = 0) -> Groups:
    """The advantages that verl's tokens get, in the groups' order.

    The responses come shuffled, each with its reward on two tokens and some tokens masked. Padding
    is verl's: responses without a token to train on, under a uid of their own.
    """
    rows = [(uid, j) for uid in groups for j in range(len(groups[uid]))]
    random.Random(0).shuffle(rows)
    rewards = torch.zeros(len(rows) + padding, 4)
    rewards[: len(rows), 0] = 0.25
    rewards[: len(rows), 3] = torch.tensor([groups[uid][j] for uid, j in rows]) - 0.25
    mask = torch.zeros_like(rewards, dtype=torch.int64)
    mask[: len(rows)] = torch.randint(2, (len(rows), 4), generator=torch.manual_seed(0))
    mask[: len(rows), 1] = 1
    uids = np.array([uid for uid, _ in rows] + ["pad"] * padding, dtype=object)
    tensors = {"token_level_rewards": rewards, "response_mask": mask}
    batch = compute_advantage(DataProto.from_dict(tensors, {"uid": uids}), estimator).batch
    found = batch["advantages"]
    assert torch.equal(found, batch["returns"])
    assert torch.equal(found, found[:, 1:2] * mask)
    by_row = dict(zip(rows, found[:, 1].tolist(), strict=False))
    return {uid: [by_row[uid, j] for j in range(len(group))] for uid, group in groups.items()}


def paper(groups: Groups, factor: bool) -> Groups:
    """The paper's formulas as they stand there."""
    n = len(groups)
    found = {}
    for i, rewards in groups.items():
        m = len(rewards)
        others = [each for k, each in groups.items() if k != i]
        mu_others = mean(mean(each) for each in others)
        v = mean(variance(each) / m for each in others)
        s = mean((mean(each) - mu_others) ** 2 for each in others)
        weight = v / (v + s) * ((n - 1) / n if factor else 1)
        own = [mean(rewards[:j] + rewards[j + 1 :]) for j in range(m)]
        found[i] = [rewards[j] - (1 - weight) * own[j] - weight * mu_others for j in range(m)]
    return found


def flat(groups: Groups) -> torch.Tensor:
    return torch.tensor([value for group in groups.values() for value in group])


def test_js_is_the_papers_formula() -> None:
    """With (n-1)/n; without it, the distance to rloo's advantage is n/(n-1) times this one."""
    js = flat(in_verl("js", EQUAL))
    rloo = flat(in_verl("rloo", EQUAL))
    torch.testing.assert_close(js, flat(paper(EQUAL, factor=True)))
    torch.testing.assert_close(rloo + 5 / 4 * (js - rloo), flat(paper(EQUAL, factor=False)))


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("name", ["js", "bloo", "mc_grpo"])
def test_ragged_groups_get_the_estimators_advantages(name: str, padding: int) -> None:
    mask = torch.arange(4) < torch.tensor([len(group) for group in RAGGED.values()])[:, None]
    rewards = torch.zeros(5, 4)
    rewards[mask] = flat(RAGGED)
    expected = advantage(name, rewards, mask=mask)[mask]
    torch.testing.assert_close(flat(in_verl(name, RAGGED, padding)), expected)


def test_verls_opo_is_ours() -> None:
    """verl's own, of responses with different numbers of tokens."""
    assert ADV_ESTIMATOR_REGISTRY["opo"].__module__ == "verl.trainer.ppo.core_algos"
    mask = torch.tensor([[1, 0, 0], [1, 1, 1], [1, 1, 0], [1, 1, 1]])
    rewards = torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]])
    uids = np.array(["a", "a", "b", "b"])
    theirs, _ = ADV_ESTIMATOR_REGISTRY["opo"](rewards, mask, uids)
    ours = advantage("opo", rewards.sum(1), groups=uids, lengths=mask.sum(1))
    torch.testing.assert_close(theirs, ours[:, None] * mask)


def step_of(estimator: str, rewards: list[float], **columns: object) -> list[float]:
    """A step of two prompts with two responses each, as verl calls an estimator."""
    tokens = torch.tensor(rewards)[:, None]
    uids = np.array([uuid.uuid4().hex] * 2 + [uuid.uuid4().hex] * 2)
    advantages, _ = ADV_ESTIMATOR_REGISTRY[estimator](
        token_level_rewards=tokens, response_mask=torch.ones_like(tokens), index=uids, **columns
    )
    return [round(value, 4) for value in advantages[:, 0].tolist()]


def test_a_memory_needs_the_prompts() -> None:
    prompts = np.empty(4, dtype=object)
    prompts[:] = [
        [{"content": "1?"}],
        [{"content": "1?"}],
        [{"content": "2?"}],
        [{"content": "2?"}],
    ]
    columns = {"non_tensor_batch": {"raw_prompt": prompts}}
    first = step_of("dbb", [1.0, 1.0, 0.0, 0.0], **columns)
    second = step_of("dbb", [1.0, 1.0, 0.0, 0.0], **columns)
    # alpha and beta of the first prompt: 2.5 and 0.5, then 3.25 and 0.25
    assert first[0] == round((0.5 / 2.5) ** 0.5, 4)
    assert second[0] == round((0.25 / 3.25) ** 0.5, 4)
    with pytest.raises(ValueError, match="dbb remembers prompts, and this trainer's batch has no"):
        in_verl("dbb", EQUAL)


def test_columns_that_cannot_be_found_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where verl's trainer was imported first; one that reads none of them does without."""
    for name in ("js_grad", "dbb"):
        with pytest.raises(RuntimeError, match="name this module in VERL_USE_EXTERNAL_MODULES"):
            step_of(name, [1.0, 1.0, 0.0, 0.0])
    assert step_of("js", [1.0, 0.0, 1.0, 0.0]) == [0.75, -0.75, 0.75, -0.75]
    monkeypatch.setitem(globals(), "compute_advantage", compute_advantage.__wrapped__)
    with pytest.raises(RuntimeError, match="name this module in VERL_USE_EXTERNAL_MODULES"):
        in_verl("js_grad", EQUAL)


@pytest.fixture
def js_grad(monkeypatch: pytest.MonkeyPatch) -> OutcomeAdvantage:
    """Without a past; and nothing has been warned of."""
    warn_once.cache_clear()
    fresh = OutcomeAdvantage("js_grad")
    monkeypatch.setitem(ADV_ESTIMATOR_REGISTRY, "js_grad", fresh)
    return fresh


SIX = torch.tensor([2, 4, 1, 3, 0, 5])  # of "aabbcc", as verl's balancing shuffles them


@pytest.mark.parametrize("knows_prompts", [True, False])
@pytest.mark.parametrize(
    ("actor", "means"),
    [
        (None, False),
        ({"loss_agg_mode": "token-mean"}, False),
        ({"loss_agg_mode": "seq-mean-token-sum-norm"}, False),
        ({"loss_agg_mode": "seq-mean-token-mean"}, True),
        ({"loss_agg_mode": "token-mean", "policy_loss": {"loss_mode": "sapo"}}, True),
        ({"loss_agg_mode": "token-mean", "policy_loss": {"loss_mode": "gspo"}}, False),
    ],
)
def test_js_grad_finds_log_probs_and_prompts_in_verls_batch(
    js_grad: OutcomeAdvantage, actor: object, means: bool, knows_prompts: bool
) -> None:
    """As a live estimator led by hand; the second step knows what came in the first."""
    settings = {
        "algorithm": {"adv_estimator": "js_grad", "filter_groups": {"enable": False}},
        "actor_rollout_ref": {"actor": actor},
    }
    algorithm = OmegaConf.create(settings if actor else {"algorithm": {}}).algorithm
    live = LiveEstimator("js_grad")
    seed = torch.manual_seed(0)
    mask = torch.arange(5) < torch.tensor([5, 2, 3, 1, 4, 4])[:, None]
    for step in (1, 2):
        rewards = torch.rand(6, generator=seed)
        log_probs = -torch.rand(6, 5, generator=seed)
        keys = torch.tensor([7, 8, 7 + step])
        prompts = np.empty(6, dtype=object)
        prompts[:] = [[{"content": str(key)}] for key in keys.repeat_interleave(2).tolist()]
        tensors = {
            "token_level_rewards": torch.nn.functional.pad(rewards[:, None], (0, 4)),
            "response_mask": mask.long(),
            "old_log_probs": log_probs,
        }
        columns = {"uid": np.array(list("aabbcc"), dtype=object), "raw_prompt": prompts}
        if not knows_prompts:
            del columns["raw_prompt"]
        data = DataProto.from_dict(tensors, columns)
        data.reorder(SIX)
        found = compute_advantage(data, "js_grad", config=algorithm).batch["advantages"]

        known = torch.tensor([prompt_key([{"content": str(key)}]) for key in keys.tolist()])
        batch = live.batch(
            rewards.view(3, 2),
            squared_score_norms=squared_score_norms(
                log_probs.view(3, 2, 5), mask.view(3, 2, 5), mean_over_tokens=means
            ),
            keys=known if knows_prompts else None,
            step=step,
        )
        expected = live.estimate(batch).advantages.flatten().float()
        live.learn(batch)
        torch.testing.assert_close(found, (expected[:, None] * mask)[SIX])
        assert "js/gradient_noise_vs_rloo" in js_grad.metrics


class Queue:
    """verl's queue, for a v1 trainer without Ray: the rows of one batch under their keys."""

    def __init__(self, rows: dict[str, dict]):
        self.rows = rows

    def batch(self) -> KVBatchMeta:
        """All rows, as the trainer gets them."""
        keys = list(self.rows)
        return KVBatchMeta(keys=keys, tags=[{}] * len(keys), partition_id="train")

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> dict:
        fields = [field for field in select_fields if field in self.rows[keys[0]]]
        columns = {field: [self.rows[key][field] for key in keys] for field in fields}
        for field, values in columns.items():
            if torch.is_tensor(values[0]):
                columns[field] = torch.nested.as_nested_tensor(values, layout=torch.jagged)
            else:
                columns[field] = NonTensorStack(*values)
        return TensorDict(columns, batch_size=len(keys))

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: TensorDict) -> KVBatchMeta:
        for name, column in fields.items():
            for key, value in zip(keys, column.unbind(), strict=True):
                self.rows[key][name] = value
        return KVBatchMeta(keys=keys, tags=[{}] * len(keys), partition_id=partition_id)


def step_settings(estimator: str, responses: int) -> dict:
    """What a step of the default trainer reads."""
    return {
        "actor_rollout_ref": {
            "rollout": {"n": responses},
            "actor": {"loss_agg_mode": "seq-mean-token-mean"},
        },
        "algorithm": {
            "adv_estimator": estimator,
            "use_kl_in_reward": False,
            "gamma": 1.0,
            "lam": 1.0,
            "filter_groups": {"enable": False},
        },
    }


def rows_of_step(
    step: int, responses: int, seed: torch.Generator
) -> tuple[dict[str, dict], torch.Tensor]:
    """The queue's rows of three prompts, with words of a tool in each response, and rewards."""
    rows = {}
    rewards = torch.rand(3 * responses, generator=seed)
    for place, reward in enumerate(rewards):
        length = 3 + place
        mask = torch.ones(length, dtype=torch.int64)
        mask[1] = 0  # a word of the tool
        scores = torch.zeros(length)
        scores[-1] = reward
        prompt = place // responses
        rows[f"{step}{prompt}_{place % responses}_0"] = {
            "uid": f"{step}{prompt}",
            "raw_prompt": [{"role": "user", "content": str(prompt)}],
            "response_mask": mask,
            "rm_scores": scores,
            "old_log_probs": -torch.rand(length, generator=seed),
        }
    return rows, rewards


def check_rows(
    rows: dict[str, dict],
    rewards: torch.Tensor,
    live: LiveEstimator,
    step: int,
    responses: int,
    means: bool,
) -> None:
    """The advantages in the queue, against a live estimator led by hand."""
    norms = [
        squared_score_norms(
            row["old_log_probs"][None], row["response_mask"][None], mean_over_tokens=means
        )
        for row in rows.values()
    ]
    keys = [prompt_key([{"role": "user", "content": str(prompt)}]) for prompt in range(3)]
    batch = live.batch(
        rewards.view(3, responses),
        squared_score_norms=torch.cat(norms).view(3, responses),
        keys=torch.tensor(keys),
        step=step,
    )
    expected = live.estimate(batch).advantages.flatten().float()
    live.learn(batch)
    for row, by_hand in zip(rows.values(), expected, strict=True):
        torch.testing.assert_close(row["advantages"], by_hand * row["response_mask"])


@pytest.mark.parametrize("responses", [2, 1])
def test_the_default_trainer_has_weights_prompts_and_masks(
    js_grad: OutcomeAdvantage, monkeypatch: pytest.MonkeyPatch, responses: int
) -> None:
    """Its own step from queue to queue, with tool words masked within a response; `rollout.n=1`
    gives one response to each prompt."""
    trainer = object.__new__(get_trainer_cls("sync"))
    assert isinstance(trainer, PPOTrainer)
    trainer.config = OmegaConf.create(step_settings("js_grad", responses))
    live = LiveEstimator("js_grad")
    seed = torch.manual_seed(0)
    for step in (1, 2):
        rows, rewards = rows_of_step(step, responses, seed)
        queue = Queue(rows)
        monkeypatch.setattr("transfer_queue.kv_batch_get", queue.kv_batch_get)
        monkeypatch.setattr("transfer_queue.kv_batch_put", queue.kv_batch_put)
        logged: dict[str, float] = {}
        trainer._compute_advantage(queue.batch(), metrics=logged)
        assert logged == js_grad.metrics and "js/share_of_equal_groups" in logged
        check_rows(rows, rewards, live, step, responses, means=True)
    assert len(js_grad._live.memory.table) == 3


def patched(folder: Path, name: str) -> ModuleType:
    """A module of verl as the patch of docs/upstream.md would leave it."""
    docs = Path(__file__).parents[2] / "docs"
    difference = (docs / "verl-0.9.1.patch").read_text()
    package = Path(verl.__file__).parent
    for file in re.findall(r"^--- a/verl/(.*)$", difference, re.M):
        copy = folder / "verl" / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(package / file, copy)
    command = ["patch", "-p1", "--fuzz=0"]
    subprocess.run(command, cwd=folder, input=difference, text=True, check=True)
    spec = importlib.util.spec_from_file_location(
        f"verl.{name}_patched", (folder / "verl" / name.replace(".", "/")).with_suffix(".py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_patch_for_upstream_makes_ten_lines_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default trainer's step with the patch and the page's adapter; verl's own estimators take
    the batch, too."""
    page = (Path(__file__).parents[2] / "docs" / "upstream.md").read_text()
    (first,) = re.findall(r"begin with:\n\n```python\n(.*?)```", page, re.S)
    (code,) = re.findall(r"## verl\n[^#]*?```python\n(.*?)```", page, re.S)
    exec(first + code, {})
    ray_trainer = patched(tmp_path, "trainer.ppo.ray_trainer")
    core_algos = patched(tmp_path, "trainer.ppo.core_algos")
    monkeypatch.setattr(
        "verl.trainer.ppo.v1.utils.compute_advantage", ray_trainer.compute_advantage
    )
    base = patched(tmp_path, "trainer.ppo.v1.trainer_base")
    live = LiveEstimator("js_grad")
    trainer = object.__new__(get_trainer_cls("sync"))
    settings = step_settings("js_grad_in_ten_lines", responses=2)
    trainer.config = OmegaConf.create(settings)
    seed = torch.manual_seed(0)
    for step in (1, 2):
        rows, rewards = rows_of_step(step, responses=2, seed=seed)
        queue = Queue(rows)
        monkeypatch.setattr("transfer_queue.kv_batch_get", queue.kv_batch_get)
        monkeypatch.setattr("transfer_queue.kv_batch_put", queue.kv_batch_put)
        base.PPOTrainer._compute_advantage(trainer, queue.batch(), metrics={})
        check_rows(rows, rewards, live, step, responses=2, means=False)
    for name, estimator in core_algos.ADV_ESTIMATOR_REGISTRY.items():
        if name == "grpo_vectorized":
            ones = torch.ones(4, 1)
            estimator(ones, ones, np.array(list("aabb")), batch={}, non_tensor_batch={})


def test_the_default_trainer_refuses_a_filter_before_it_starts() -> None:
    algorithm = {"adv_estimator": "js_grad", "filter_groups": {"enable": True}}
    with pytest.raises(ValueError, match="but teach under js_grad, so dropping them biases"):
        get_trainer_cls("sync")(OmegaConf.create({"algorithm": algorithm}))


def test_the_figures_are_kept_and_what_lacks_is_a_warning(js_grad: OutcomeAdvantage) -> None:
    with pytest.warns(UserWarning, match="js_grad weighs all responses alike"):
        in_verl("js_grad", EQUAL)
    figures = diagnostics("js_grad", flat(EQUAL).view(5, 4))
    assert js_grad.metrics == pytest.approx(figures)
    assert 0 < js_grad.metrics["js/slope_group"] < 1
    alone = {"alone": [1.0, 0.0]}
    with pytest.warns(UserWarning, match="js needs the other prompts of a batch"):
        in_verl("js", alone, padding=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        in_verl("js", alone)  # it was said once
        in_verl("js_grad", alone)
        in_verl("mc_grpo", alone)


def test_a_baseline_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def tenth(batch):\n    return batch.rewards * 0 + 0.1\n")
    register(f"{file}:tenth")
    assert step_of("tenth", [1.0, 0.0, 0.5, 0.5]) == [0.9, -0.1, 0.4, 0.4]


def test_what_cannot_work_raises() -> None:
    with pytest.raises(ValueError, match="bloo needs at least 2 prompts"):
        in_verl("bloo", {"alone": [1.0, 0.0]})
    with pytest.raises(ValueError, match="is nan; allowed are finite"):
        in_verl("js", {"one": [math.nan, 0.5], "two": [1.0, 0.0]})
    filtered = OmegaConf.create({"filter_groups": {"enable": True, "metric": "reward"}})
    with pytest.raises(ValueError, match="but teach under js, so dropping them biases"):
        step_of("js", [1.0, 0.0, 0.5, 0.5], config=filtered)


PAGE = Path(__file__).parents[2] / "reward_models/README.md"
PATH, TASK = re.findall(r"^    (\+?reward\.\S+)", PAGE.read_text(), re.M)


@pytest.mark.parametrize("manager", ["naive", "dapo"])
def test_verl_loads_and_calls_the_graders(manager: str) -> None:
    """By the flags of the page of rewards."""
    settings = reward_settings(PATH, f"reward.reward_manager.name={manager}")
    assert graded_by_verl(settings, r"\boxed{0.50}", "math/math500", "1/2") == {
        "reward_score": 1.0,
        "reward_extra_info": {"score": 1.0, "acc": 1.0, "status": "correct"},
    }
    wrong = graded_by_verl(settings, r"\boxed{2}", "math/math500", "1/2")
    assert (wrong["reward_score"], wrong["reward_extra_info"]["status"]) == (0.0, "wrong")


def test_verls_reward_kwargs_name_the_task_and_the_end_of_the_prompt() -> None:
    opened = "+reward.custom_reward_function.reward_kwargs.prompt_end='<think>'"
    for flags, values in (([TASK], [1.0, 1.0]), ([TASK, opened], [1.0, 0.0])):
        settings = reward_settings(PATH, *flags)
        texts = [r"</think>\boxed{7}", r"\boxed{7}"]
        graded = [graded_by_verl(settings, text, "lighteval/MATH", "7") for text in texts]
        assert [each["reward_score"] for each in graded] == values


@pytest.mark.parametrize(
    ("source", "label", "problem"),
    [
        ("openai/gsm8k", "7", "no task grades the datasource 'openai/gsm8k'"),
        ("gsm8k", None, "a label must be text"),
        (None, "7", "its datasource must name a task"),
    ],
)
def test_what_cannot_be_graded_stops_verl(source: str, label: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        graded_by_verl(reward_settings(PATH), "#### 7", source, label)


def reward_settings(*flags: str) -> DictConfig:
    """What verl's program makes of its own configuration and these flags."""
    import verl.trainer

    folder = Path(verl.trainer.__file__).parent / "config"
    with initialize_config_dir(str(folder), version_base=None):
        return compose("ppo_trainer", overrides=list(flags))


def graded_by_verl(
    settings: DictConfig, text: str, data_source: str | None, label: str | None
) -> dict[str, object]:
    """What verl's reward manager makes of a response."""
    from verl.trainer.ppo.reward import load_reward_manager

    class Characters:
        eos_token = "<eos>"

        def decode(self, ids: torch.Tensor, skip_special_tokens: bool) -> str:
            return "".join(map(chr, ids))

    ids = torch.tensor([[ord(letter) for letter in text]])
    padded = torch.nn.functional.pad(ids, (0, 3))
    row = {"data_source": data_source, "reward_model": {"ground_truth": label}, "extra_info": {}}
    data = DataProto.from_dict(
        tensors={
            "prompts": torch.zeros(1, 2, dtype=torch.long),
            "responses": padded,
            "attention_mask": torch.nn.functional.pad((padded > 0).long(), (2, 0), value=1),
        },
        non_tensors={name: np.array([value], dtype=object) for name, value in row.items()},
    )
    manager = load_reward_manager(settings, Characters())
    return manager.loop.run_until_complete(manager.run_single(data))
