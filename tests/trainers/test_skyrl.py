"""SkyRL's own trainer and batch, on the CPU: `bash scripts/trainers.sh skyrl`."""

import asyncio
import importlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kit import pasted

skyrl = pytest.importorskip("skyrl", reason="bash scripts/trainers.sh skyrl")

import skyrl_gym  # noqa: E402
from skyrl.backends.skyrl_train.training_batch import (  # noqa: E402
    TrainingInputBatch,
    pad_training_input_batch,
)
from skyrl.backends.skyrl_train.utils import ppo_utils  # noqa: E402
from skyrl.train.config import SkyRLTrainConfig  # noqa: E402
from skyrl.train.entrypoints import main_base  # noqa: E402
from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer  # noqa: E402
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator  # noqa: E402
from skyrl.train.trainer import RayPPOTrainer  # noqa: E402

import openrlhf_js.trainers.skyrl as ours  # noqa: E402
from answer_graders.record import STATUSES  # noqa: E402
from answer_graders.trainers import skyrl_environment  # noqa: E402
from openrlhf_js.estimators import LiveEstimator, key_of, squared_score_norms  # noqa: E402

FLAGS = [
    "trainer.algorithm.advantage_estimator=js_grad",
    "trainer.logger=console",
    "trainer.placement.colocate_all=false",
    "generator.inference_engine.enable_ray_prometheus_stats=false",
]


def make(*flags: str, kind: type = ours.ShrinkageTrainer) -> Any:
    """A trainer without models and data."""
    cfg = SkyRLTrainConfig.from_cli_overrides([*FLAGS, *flags])
    return kind(cfg, *[None] * 5)


def make_batch(
    uids: list[str],
    rewards: list[float],
    lengths: list[int],
    last: list[bool] | None = None,
    padding: int = 0,
    seed: int = 0,
) -> Any:
    """A batch as SkyRL's trainer makes it: the reward on the last token, padded by SkyRL."""
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    tokens = torch.zeros(mask.shape)
    tokens[torch.arange(len(uids)), torch.tensor(lengths) - 1] = torch.tensor(rewards)
    data = TrainingInputBatch(
        {
            "rewards": tokens,
            "response_mask": mask,
            "loss_mask": mask.float(),
            "action_log_probs": -torch.rand(mask.shape, generator=torch.manual_seed(seed)),
            "rollout_logprobs": None,
            "values": None,
        }
    )
    data.metadata = {"uids": uids, "avg_response_length": 1.0}
    if last is not None:
        data.metadata["is_last_step"] = last
    return pad_training_input_batch(data, padding)


@pytest.mark.parametrize(("reduction", "means"), [("token_mean", False), ("sequence_mean", True)])
@pytest.mark.parametrize("padding", [0, 3])
def test_advantages_are_those_of_a_live_estimator(
    reduction: str, means: bool, padding: int
) -> None:
    """Led by hand over two steps; the second knows what a prompt did in the first."""
    trainer = make(f"trainer.algorithm.loss_reduction={reduction}")
    live = LiveEstimator("js_grad")
    lengths = [3, 1, 4, 2, 2, 3]
    for step, rewards in enumerate([[1.0, 0, 0, 0, 1, 1], [0.0, 1, 1, 0, 0, 1]], 1):
        trainer.global_step = step
        uids = ["7", "8", "7", "9", "8", "9"]
        data = make_batch(uids, rewards, lengths, padding=padding, seed=step)
        order = [0, 2, 1, 4, 3, 5]
        mask = data["loss_mask"][:6]
        norms = squared_score_norms(data["action_log_probs"][:6], mask, mean_over_tokens=means)
        assert norms.std() > 0.01
        batch = live.batch(
            torch.tensor(rewards)[order].view(3, 2),
            squared_score_norms=norms[order].view(3, 2),
            keys=torch.tensor([key_of("7"), key_of("8"), key_of("9")]),
            step=step,
        )
        expected = live.estimate(batch).advantages.flatten()[torch.tensor(order).argsort()]
        found = trainer.compute_advantages_and_returns(data)
        torch.testing.assert_close(found["advantages"][:6], expected.float()[:, None] * mask)
        assert torch.equal(found["advantages"], found["returns"])
        figures = live.describe(batch, live.estimate(batch))
        live.learn(batch)
        noise = figures["js/gradient_noise_vs_rloo"]
        assert trainer.all_metrics["js/gradient_noise_vs_rloo"] == pytest.approx(noise)
        mean_advantage = found["advantages"][:6].sum() / mask.sum()
        logged = trainer.all_metrics["loss/avg_raw_advantages"]
        assert logged == pytest.approx(float(mean_advantage), rel=1e-4, abs=1e-6)


def test_all_steps_of_a_trajectory_get_its_advantage() -> None:
    """Two prompts with two trajectories of 1 to 3 steps; the last step's reward counts. As the
    same trajectories in one row each, whose tokens are those of all steps."""
    last = [False, True, True, False, False, True, True]
    rewards = [9.0, 1.0, 0.0, 9.0, 9.0, 1.0, 0.0]
    uids = ["a", "a", "a", "b", "b", "b", "b"]
    trainer = make("generator.step_wise_trajectories=true")
    data = make_batch(uids, rewards, [2, 3, 1, 1, 2, 1, 3], last, padding=1)
    steps = squared_score_norms(data["action_log_probs"], data["loss_mask"])[:7]
    found = trainer.compute_advantages_and_returns(data)["advantages"][:7, 0]
    norms = torch.stack([steps[:2].sum(), steps[2], steps[3:6].sum(), steps[6]])
    live = LiveEstimator("js_grad")
    batch = live.batch([[1.0, 0], [1, 0]], squared_score_norms=norms.view(2, 2))
    expected = live.estimate(batch).advantages.flatten()[torch.tensor([0, 0, 1, 2, 2, 2, 3])]
    torch.testing.assert_close(found, expected.float())


def test_rollout_log_probs_stand_in_and_untrained_responses_count_for_nothing() -> None:
    """As where the loss needs no log-probabilities of the policy, and overlong responses are
    dropped."""
    data = make_batch(["a", "a", "b", "b", "b"], [1.0, 0, 1, 0, 5], [2, 3, 1, 2, 3])
    data["rollout_logprobs"], data["action_log_probs"] = data["action_log_probs"], None
    data["loss_mask"][4] = 0
    norms = squared_score_norms(data["rollout_logprobs"], data["loss_mask"])[:4]
    live = LiveEstimator("js_grad")
    batch = live.batch([[1.0, 0], [1, 0]], squared_score_norms=norms.view(2, 2))
    expected = live.estimate(batch).advantages.flatten().tolist()
    found = make().compute_advantages_and_returns(data)["advantages"][:, 0]
    assert found.tolist() == pytest.approx([*expected, 0])


def test_padding_counts_for_nothing() -> None:
    """Under `js`, which weighs all responses alike: SkyRL pads with copies of the first row."""
    found = []
    for padding in (0, 5):
        data = make_batch(["a", "a", "b", "b"], [1.0, 0, 1, 1], [1, 2, 1, 2], padding=padding)
        trainer = make("trainer.algorithm.advantage_estimator=js")
        found.append(trainer.compute_advantages_and_returns(data)["advantages"][:4, 0].tolist())
    # lambda is 0 for "a", as "b" does not vary; and (n-1)/n = 1/2 for "b", as the means agree
    assert found[0] == found[1] == [1.0, -1.0, 0.25, 0.25]


def test_a_policy_learns_with_skyrls_own_loss() -> None:
    """One token a response, of which the last is right; each step is SkyRL's but for its Ray."""
    trainer = make()
    algorithm = trainer.cfg.trainer.algorithm
    logits = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.SGD([logits], lr=2.0)
    shares = []
    for step in range(20):
        trainer.global_step = step
        tokens = logits.softmax(0).multinomial(16, True, generator=torch.manual_seed(step))
        shares.append(float((tokens == 3).float().mean()))
        uids = [str(row // 4) for row in range(16)]
        data = make_batch(uids, (tokens == 3).float().tolist(), [1] * 16)
        log_probs = logits.log_softmax(0)[tokens][:, None]
        data["action_log_probs"] = log_probs.detach()
        data = trainer.compute_advantages_and_returns(data)
        advantages = ppo_utils.apply_loss_reduction_to_advantages_minibatch(
            data["advantages"], data["loss_mask"], algorithm.loss_reduction, 16, 1
        )
        loss_function = ppo_utils.PolicyLossRegistry.get(algorithm.policy_loss_type)
        loss, _ = loss_function(
            log_probs, data["action_log_probs"], advantages, algorithm, data["loss_mask"]
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert sum(shares[-5:]) > sum(shares[:5]) + 1


def test_the_program_takes_two_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    """SkyRL's `main`, but for the start of Ray and of the run."""
    started: list[Any] = []
    entry = f"trainer.override_entrypoint={ours.__name__}"
    monkeypatch.setattr(sys, "argv", ["main_base", entry, *FLAGS])
    monkeypatch.setattr(main_base, "initialize_ray", started.append)
    here = SimpleNamespace(
        remote=lambda **_: lambda function: SimpleNamespace(remote=function), get=started.append
    )
    monkeypatch.setattr(ours, "ray", here)
    monkeypatch.setattr(ours.Experiment, "__init__", lambda self, cfg: setattr(self, "cfg", cfg))
    monkeypatch.setattr(ours.Experiment, "run", lambda self: self)
    main_base.main()
    cfg, experiment, *_ = started
    assert cfg.trainer.algorithm.advantage_estimator == "js_grad"
    given = dict.fromkeys(
        ["tracker", "tokenizer", "train_dataset", "eval_dataset", "inference_engine_client"]
    )
    trainer = experiment.get_trainer(cfg=cfg, generator=None, colocate_pg=None, **given)
    assert type(trainer) is ours.ShrinkageTrainer


def test_it_goes_before_another_trainer() -> None:
    kind = type("Both", (ours.ShrinkageTrainer, FullyAsyncRayPPOTrainer), {})
    method = ours.METHOD
    assert kind.__mro__[1:4] == (ours.ShrinkageTrainer, FullyAsyncRayPPOTrainer, RayPPOTrainer)
    assert method not in vars(FullyAsyncRayPPOTrainer)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("trainer.algorithm.zero_variance_filter=true", "set zero_variance_filter=False"),
        ("trainer.algorithm.advantage_batch_normalize=true", "set advantage_batch_normalize=False"),
        ("trainer.algorithm.dynamic_sampling.type=filter", "set dynamic_sampling.type=None"),
        ("trainer.algorithm.advantage_estimator=gae", "unknown estimator 'gae'"),
    ],
)
def test_what_cannot_work_raises(flag: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(flag)


def test_a_renamed_method_stops_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(RayPPOTrainer, ours.METHOD)
    with pytest.raises(RuntimeError, match=r"skyrl 0.4.0 has no .*; pip install skyrl==0.4.0."):
        importlib.reload(ours)
    monkeypatch.delattr("skyrl.train.trainer.RayPPOTrainer")
    with pytest.raises(ImportError, match=r"cannot import .*; pip install skyrl==0.4.0."):
        importlib.reload(ours)


def test_an_environment_grades_what_skyrls_generator_samples() -> None:
    """By the line of the page of rewards, with an engine and a tokenizer that stand in. SkyRL
    averages the environment's metrics."""
    exec(pasted("reward_models/README.md", "skyrl_environment"))
    texts = [r"\boxed{\frac{1}{2}}", r"\boxed{2}", "I give up", r"\boxed{0.5}<|im_end|>"]
    output = sample(texts, ["graded"] * 4, [{"reward_spec": {"ground_truth": "0.5"}}] * 4)
    assert [reward[-1] for reward in output["rewards"]] == [1, 0, 0, 1]
    metrics = output["rollout_metrics"]
    shares = {status: metrics[f"environment/math/{status}"] for status in STATUSES}
    expected = {"correct": 0.5, "wrong": 0.25, "no_answer": 0.25}
    assert shares == dict.fromkeys(STATUSES, 0.0) | expected


def test_a_row_may_name_its_task_and_a_template_may_open_a_thought() -> None:
    entry_point = skyrl_environment(prompt_end="<think>")
    skyrl_gym.register(id="graded_by_source", entry_point=entry_point)
    row = {"data_source": "gsm8k/main", "reward_spec": {"ground_truth": "7"}}
    texts = ["She has </think> #### 7", "#### 7"]
    output = sample(texts, ["graded_by_source"] * 2, [row, row])
    assert [reward[-1] for reward in output["rewards"]] == [1, 0]
    for changed, problem in (
        ({"reward_spec": {}}, "a row has no 'ground_truth'"),
        ({"reward_spec": {"ground_truth": None}}, "a label must be text"),
        ({"data_source": "openai/gsm8k"}, "no task grades the datasource 'openai/gsm8k'"),
    ):
        with pytest.raises(ValueError, match=problem):
            sample(texts[:1], ["graded_by_source"], [row | changed])


def sample(texts: list[str], env_classes: list[str], rows: list[dict[str, Any]]) -> Any:
    """The output of SkyRL's generator where the engine says these texts, a token a character."""

    class Characters:
        eos_token, eos_token_id = "<|im_end|>", 0

        def apply_chat_template(self, messages: Any, **_: Any) -> list[int]:
            return [ord(letter) for message in messages for letter in message["content"]]

        def encode(self, text: str, **_: Any) -> list[int]:
            return [ord(letter) for letter in text]

    class Engine:
        async def generate(self, given: Any, **_: Any) -> dict[str, Any]:
            said = texts[given["prompt_token_ids"][0][-1] - ord("0")]
            ids = [ord(letter) for letter in said]
            return {"responses": [said], "response_ids": [ids], "stop_reasons": ["stop"]}

        async def finish_session(self, session: str) -> None:
            pass

    cfg = SkyRLTrainConfig.from_cli_overrides(FLAGS)
    cfg.generator.sampling_params.logprobs = None
    generator = SkyRLGymGenerator(
        generator_cfg=cfg.generator,
        skyrl_gym_cfg=cfg.environment.skyrl_gym,
        inference_engine_client=Engine(),
        tokenizer=Characters(),
    )
    prompts = [[{"role": "user", "content": f"{row}"}] for row in range(len(texts))]
    given = {"prompts": prompts, "env_classes": env_classes, "env_extras": rows}
    unknown = {"sampling_params": None, "trajectory_ids": None, "batch_metadata": None}
    return asyncio.run(generator.generate(given | unknown))
