"""AReaL's own actor and loss on the CPU, in one process and in two: `bash scripts/trainers.sh
areal`."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

pytest.importorskip("areal", reason="bash scripts/trainers.sh areal")

from areal.api.alloc_mode import ModelAllocation
from areal.api.cli_args import NormConfig, PPOActorConfig
from areal.trainer.ppo.actor import PPOActor, PPOActorController
from areal.utils import stats_tracker
from areal.utils.dynamic_import import import_from_string

import openrlhf_js.trainers.areal as ours
from openrlhf_js.estimators import LiveEstimator, key_of, squared_score_norms

PROMPT = 2  # tokens
BASE = {"kl_ctl": 0.0, "backend": "fsdp:d1", "experiment_name": "e", "trial_name": "t"}


@pytest.fixture(autouse=True)
def one_process() -> Any:
    """AReaL always has a process group."""
    from kit import free_port

    if not dist.is_initialized():
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1
        )
    yield
    stats_tracker.export_all()


def make_actor(engine: Any = None, **settings: Any) -> Any:
    config = PPOActorConfig(**BASE | settings)
    return ours.ShrinkageActor(config, engine or SimpleNamespace(data_parallel_group=None))


def make_group(prompt: int, rewards: list[float], lengths: list[int], seed: int) -> dict[str, Any]:
    """An item of AReaL's data: the responses to one prompt, padded on the right."""
    total = PROMPT + max(lengths)
    places, rows = torch.arange(total), torch.tensor(lengths)[:, None] + PROMPT
    within = (places < rows).expand(len(rewards), -1)
    generator = torch.manual_seed(seed)
    ids = torch.randint(10, 99, within.shape, generator=generator)
    ids[:, :PROMPT] = torch.tensor([1, prompt])
    mask = (within & (places >= PROMPT)).long()
    return {
        "input_ids": ids * within,
        "attention_mask": within.long(),
        "loss_mask": mask,
        "logprobs": -torch.rand(mask.shape, generator=generator) * mask,
        "versions": torch.zeros_like(ids),
        "rewards": torch.tensor(rewards),
    }


STEPS = [
    [(7, [1.0, 0, 0], [3, 1, 4]), (8, [0.0, 1, 1], [2, 2, 5]), (9, [1.0, 0], [1, 3])],
    [(8, [1.0, 1, 0], [2, 1, 4]), (5, [0.0, 1, 0], [2, 2, 5]), (7, [1.0, 0], [1, 3])],
]


def groups_of(step: int) -> list[dict[str, Any]]:
    return [make_group(*group, seed=10 * step + i) for i, group in enumerate(STEPS[step])]


def advantages_by_hand(proximal: bool = False) -> list[list[list[float]]]:
    """The advantages of each group in each step, of a live estimator led by hand."""
    live = LiveEstimator("js_grad")
    found = []
    for step, groups in enumerate(STEPS):
        data = groups_of(step)
        rewards, mask, norms = torch.zeros(3, 3), torch.zeros(3, 3).bool(), torch.zeros(3, 3)
        for i, (item, group) in enumerate(zip(data, groups, strict=True)):
            size = len(group[1])
            log_probs = item["logprobs"] * (2 if proximal else 1)
            norms[i, :size] = squared_score_norms(log_probs, item["loss_mask"]).float()
            rewards[i, :size], mask[i, :size] = torch.tensor(group[1]), True
        keys = torch.tensor([key_of(str([1, group[0]])) for group in groups])
        known = live.batch(rewards, mask=mask, squared_score_norms=norms, keys=keys, step=step)
        advantages = live.estimate(known).advantages
        live.learn(known)
        found.append([advantages[i, : len(groups[i][1])].tolist() for i in range(3)])
    return found


def check(item: dict[str, Any], expected: list[float], lengths: list[int]) -> None:
    """Each token of a response has its advantage, at the token before it."""
    for row, (advantage, length) in enumerate(zip(expected, lengths, strict=True)):
        tokens = item["advantages"][row]
        within = torch.zeros_like(tokens)
        within[PROMPT - 1 : PROMPT - 1 + length] = advantage
        torch.testing.assert_close(tokens, within, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("proximal", [False, True])
def test_advantages_are_those_of_a_live_estimator(proximal: bool) -> None:
    """Of groups of different sizes, over two steps; with and without the log-probabilities that
    AReaL recomputes, which are at the token before."""
    actor = make_actor(use_decoupled_loss=proximal)
    for step, expected in enumerate(advantages_by_hand(proximal)):
        data = groups_of(step)
        if proximal:
            for item in data:
                item["prox_logp"] = torch.roll(2 * item["logprobs"], -1, -1)
        found = actor.compute_advantages(data)
        for item, advantages, group in zip(found, expected, STEPS[step], strict=True):
            check(item, advantages, group[2])
    assert 0 < stats_tracker.export_all()["js/gradient_noise_vs_rloo"] < 2


def test_the_kl_penalty_and_the_scale_are_part_of_the_reward() -> None:
    """As AReaL adds them; an estimator that centers rewards sees their sum."""
    data = [make_group(7, [1.0, 0], [2, 1], 0), make_group(8, [1.0, 0], [2, 1], 1)]
    for item in data:
        item["ref_logp"] = torch.roll(item["logprobs"] + 0.5, -1, -1)  # k1: -0.5 a token
    actor = make_actor(kl_ctl=0.1, reward_scaling=3.0, reward_bias=-0.5)
    actor.live = LiveEstimator("rloo")
    found = actor.compute_advantages(data)
    # (1 - 0.5) 3 + 2 (0.05) = 1.6 and (0 - 0.5) 3 + 0.05 = -1.45
    check(found[0], [3.05, -3.05], [2, 1])


def test_two_turns_are_one_response() -> None:
    """The tokens of a tool between them have no advantage and no weight."""
    data = [make_group(7, [1.0, 0], [5, 3], 0), make_group(8, [1.0, 0], [5, 3], 1)]
    for item in data:
        item["loss_mask"][0, PROMPT + 2] = 0
        item["loss_mask"][0, -1] = 0  # nor do those after the last turn
    actor = make_actor()
    actor.live = LiveEstimator("rloo")
    tokens = actor.compute_advantages(data)[0]["advantages"][0].tolist()
    assert tokens == [0, 1, 1, 0, 1, 0, 0]


def save_rank(folder: str) -> None:
    """One of two processes: the first has two groups, the second one."""
    dist.init_process_group("gloo")
    actor = make_actor(SimpleNamespace(data_parallel_group=dist.group.WORLD))
    parts = [slice(0, 2), slice(2, 3)][dist.get_rank()]
    found = [actor.compute_advantages(groups_of(step)[parts]) for step in range(2)]
    torch.save(found, Path(folder) / f"{dist.get_rank()}.pt")


@pytest.mark.timeout(500)  # two imports of AReaL
def test_two_ranks_are_one_batch(tmp_path: Path) -> None:
    from kit import free_port

    program = "import sys, test_areal; test_areal.save_rank(sys.argv[1])"
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--no-python"]
    run += [f"--master_port={free_port()}", sys.executable, "-c", program, tmp_path]
    world = {"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(run, env=os.environ | world, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in "01")
    for step, expected in enumerate(advantages_by_hand()):
        items = [*first[step], *second[step]]
        for item, advantages, group in zip(items, expected, STEPS[step], strict=True):
            check(item, advantages, group[2])


class TinyEngine:
    """What AReaL's actor asks of an engine; the policy's logits depend on nothing."""

    data_parallel_group = None

    def __init__(self) -> None:
        self.logits = torch.zeros(4, requires_grad=True)
        self.optimizer = torch.optim.SGD([self.logits], lr=2.0)

    def train(self) -> None: ...

    def get_version(self) -> int:
        return 0

    def train_batch(self, data: Any, loss_fn: Any, loss_weight_fn: Any) -> dict[str, float]:
        """One step with AReaL's own loss."""
        ids = torch.roll(data["input_ids"], -1, -1)
        log_probs = self.logits.log_softmax(0)[ids]
        self.optimizer.zero_grad()
        loss_fn(log_probs, torch.zeros_like(log_probs), data).backward()
        self.optimizer.step()
        return {}


def test_a_policy_learns_with_areals_own_update() -> None:
    """`compute_advantages` and `ppo_update`; one token a response, of which the last is right."""
    engine = TinyEngine()
    actor = make_actor(engine, use_decoupled_loss=False, ppo_n_minibatches=1)
    shares = []
    for step in range(20):
        tokens = engine.logits.softmax(0).multinomial(16, True, generator=torch.manual_seed(step))
        shares.append(float((tokens == 3).float().mean()))
        data = []
        for part in tokens.view(4, 4):
            item = make_group(0, (part == 3).float().tolist(), [2] * 4, 0)
            item["loss_mask"][:, -1] = 0
            item["input_ids"][:, PROMPT], item["input_ids"][:, -1] = part, 0
            item["logprobs"][:, PROMPT] = engine.logits.detach().log_softmax(0)[part]
            data.append(item)
        actor.ppo_update(actor.compute_advantages(data))
        stats_tracker.export_all()
    assert sum(shares[-5:]) > sum(shares[:5]) + 1


def make_trainer(actor_config: Any, **config: Any) -> Any:
    """Without the rest of AReaL's configuration and its servers."""
    trainer = ours.ShrinkageTrainer.__new__(ours.ShrinkageTrainer)
    agent = SimpleNamespace(export_style="individual")
    own = {"actor": actor_config, "critic": None, "rollout": SimpleNamespace(agent=agent)}
    trainer.config = SimpleNamespace(**own | config)
    trainer.scheduler = None
    return trainer


def test_the_trainer_starts_our_actor_in_its_workers(tmp_path: Path) -> None:
    """AReaL's controller names an engine's class to its workers."""
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    config = PPOActorConfig(path=str(tmp_path), **BASE)
    trainer = make_trainer(config)
    controller = trainer._create_train_engine(config, ModelAllocation.from_str("fsdp:d1"))
    assert type(controller) is PPOActorController
    kind = controller.train_engine
    assert import_from_string(f"{kind.__module__}.{kind.__name__}") is ours.FSDPActor
    assert type(ours.FSDPActor(config).actor) is ours.ShrinkageActor
    reference = PPOActorConfig(**BASE)
    other = trainer._create_train_engine(reference, ModelAllocation.from_str("fsdp:d1"))
    assert other.train_engine is ours.FSDPPPOActor


def test_what_cannot_work_raises() -> None:
    for name in ("reward_norm", "adv_norm"):
        with pytest.raises(ValueError, match=f"set {name}=None"):
            make_actor(**{name: NormConfig(group_size=4)})
    config = PPOActorConfig(**BASE)
    trainer = make_trainer(config, critic="a critic")
    with pytest.raises(ValueError, match="set critic=None"):
        trainer._create_train_engine(config, ModelAllocation.from_str("fsdp:d1"))
    with pytest.raises(ValueError, match="set backend='fsdp'"):
        trainer._create_train_engine(config, ModelAllocation.from_str("megatron:d1"))
    with pytest.raises(ValueError, match="set export_style='concat'"):
        trainer.train(workflow=print)
    trainer.config.rollout.agent.export_style = "concat"
    with pytest.raises(ValueError, match="dynamic_filter_fn leaves out groups by reward"):
        trainer.train(workflow=print, dynamic_filter_fn=len)


def test_a_renamed_method_stops_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(PPOActor, "_compute_advantages")
    with pytest.raises(RuntimeError, match=r"areal 1.0.4 has no .*; pip install areal==1.0.4."):
        importlib.reload(ours)
    monkeypatch.setitem(sys.modules, "areal.trainer.ppo.actor", ModuleType("without"))
    with pytest.raises(ImportError, match=r"cannot import .*; pip install areal==1.0.4."):
        importlib.reload(ours)
