"""Prompt groups, dynamic batches and the normalisation of reward models in upstream's actors."""

import copy
import inspect
import itertools
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from kit import noisy, qwen, save_scorer, save_seeing_policy, upstream_args
from openrlhf.models import PolicyLoss
from openrlhf.models.loss import aggregate_loss
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ray import ppo_actor
from openrlhf.utils.deepspeed import DeepspeedStrategy
from openrlhf.utils.loss_utils import get_loss_batch_info
from torch.utils.data import DataLoader
from transformers import get_scheduler

from openrlhf_js.trainers.openrlhf.flags import LOSSES
from openrlhf_js.trainers.openrlhf.flags.parser import upstream_parser
from openrlhf_js.trainers.openrlhf.learner import actors
from openrlhf_js.trainers.openrlhf.learner.actors import PromptGroups, load_with_scale
from openrlhf_js.trainers.openrlhf.learner.lora import refuse_tied
from openrlhf_js.trainers.openrlhf.upstream import UpstreamMismatch

PROMPTS = 6
RESPONSES = 4


def buffer_of(prompts: list[str], micro_batch_size: int) -> PromptGroups:
    buffer = PromptGroups(micro_batch_size, RESPONSES, packing_samples=False)
    count = len(prompts)
    buffer.append(
        Experience(
            sequences=torch.arange(3 * count).reshape(count, 3),
            attention_mask=torch.ones(count, 3, dtype=torch.long),
            action_mask=torch.ones(count, 2, dtype=torch.bool),
            prompts=prompts,
            labels=["label"] * count,
        )
    )
    return buffer


@pytest.mark.parametrize("groups_each", [1, 2])
def test_micro_batches_are_whole_prompt_groups_in_any_order(groups_each):
    prompts = [f"prompt {i // RESPONSES}" for i in range(PROMPTS * RESPONSES)]
    buffer = buffer_of(prompts, groups_each * RESPONSES)
    # as upstream's ActorPPOTrainer.ppo_train makes it
    loader = DataLoader(
        buffer,
        batch_size=buffer.sample_batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=buffer.collate_fn,
    )
    orders = set()
    seen = []
    for _ in range(20):
        batches = list(loader)
        assert [len(batch.sequences) for batch in batches] == [groups_each * RESPONSES] * (
            PROMPTS // groups_each
        )
        for batch in batches:
            assert all(batch.prompts.count(prompt) == RESPONSES for prompt in batch.prompts)
        orders.add(tuple(batch.prompts[0] for batch in batches))
        seen = sorted(row for batch in batches for row in batch.sequences[:, 0].tolist())
        assert seen == list(range(0, 3 * len(prompts), 3))  # every response once
    assert len(orders) > 1


def test_responses_out_of_prompt_order_stop_the_run():
    buffer = buffer_of(["one", "two"] * RESPONSES, RESPONSES)
    with pytest.raises(UpstreamMismatch, match="in another order"):
        buffer[0]


@pytest.fixture(autouse=True)
def no_other_rank_to_wait_for(monkeypatch):
    monkeypatch.setattr(ppo_actor, "torch_dist_barrier_and_cuda_sync", lambda: None)


def policy_trainer(**settings) -> actors.OurPolicyTrainer:
    """Our trainer of a policy whose engine remembers what it is told."""
    engine = SimpleNamespace(told=[])
    engine.set_gradient_accumulation_boundary = engine.told.append
    clips = {"actor__eps_clip_low_high": (0.2, 0.2)}  # as upstream's validation sets them
    strategy = SimpleNamespace(args=upstream_args(**clips, **settings))
    return actors.OurPolicyTrainer(strategy, SimpleNamespace(model=engine), None, None, None)


def critic_trainer(**settings) -> actors.OurCriticTrainer:
    engine = SimpleNamespace(told=[])
    engine.set_gradient_accumulation_boundary = engine.told.append
    strategy = SimpleNamespace(args=upstream_args(**settings))
    return actors.OurCriticTrainer(strategy, engine, None, None)


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize(
    ("make", "before"), [(policy_trainer, [0.1]), (critic_trainer, [])], ids=["policy", "critic"]
)
def test_dynamic_batches_tell_the_engine_which_micro_batch_is_the_last(
    monkeypatch, make, before, dynamic
):
    trained = []
    trainer = make(train__dynamic_batch_enable=dynamic)
    engine = trainer.actor.model if make is policy_trainer else trainer.critic
    trainer.replay_buffer.dynamic_optimizer_step = [0, 0, 1, 1]

    def training_step(self, experience, *rest):
        trained.append((list(rest[: len(before)]), rest[len(before)], engine.told[-1:]))
        return {"metrics": {}}

    monkeypatch.setattr(type(trainer).__base__, "training_step", training_step)
    experience = SimpleNamespace(action_mask=torch.ones(1, 2))
    info = {"global_batch_size": torch.ones(()), "batch_num_tokens": torch.ones(())}
    for step in range(4):
        trainer.training_step(experience, *before, step, info)
    assert engine.told == ([False, False, True, True] if dynamic else [])
    assert trained == [(before, step, [step >= 2] if dynamic else []) for step in range(4)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, 0), ({"js__group_micro_batches": True, "rollout__n_samples_per_prompt": 4}, 2)],
)
def test_micro_batches_are_prompt_groups_where_the_flag_says_so(settings, expected):
    buffer = policy_trainer(train__micro_batch_size=8, **settings).replay_buffer
    assert (buffer.sample_batch_size if isinstance(buffer, PromptGroups) else 0) == expected


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("make", [policy_trainer, critic_trainer])
def test_dynamic_batches_are_cut_from_responses_in_random_order(make, dynamic):
    trainer = make(train__dynamic_batch_enable=dynamic)
    trainer.replay_buffer.items = list(range(100))  # upstream's order
    actors.shuffle_responses(trainer)
    assert (trainer.replay_buffer.items == list(range(100))) is not dynamic
    assert sorted(trainer.replay_buffer.items) == list(range(100))


def test_a_trainer_that_is_not_ours_stops_the_run():
    actors.refuse_other_trainer(policy_trainer(), actors.OurPolicyTrainer)
    with pytest.raises(UpstreamMismatch, match="is OurCriticTrainer, not OurPolicyTrainer"):
        actors.refuse_other_trainer(critic_trainer(), actors.OurPolicyTrainer)


# --- the denominator of the loss -------------------------------------------------------------

LONGEST = 3
WORTH = {"end": 1.0, "go, end": 0.2, "go, go, end": 0.6}  # reward of the responses of 1 to 3 tokens


@pytest.fixture
def trainer_of(monkeypatch):
    """Makes our trainer of a policy, which adds the gradient of upstream's loss.

    The policy goes on with probability sigmoid(policy[t]) at token t.
    """

    def make(policy: torch.Tensor, loss: str) -> actors.OurPolicyTrainer:
        loss_fn = PolicyLoss(token_level_loss=LOSSES[loss] == "token-mean")

        def training_step(self, experience, kl_ctl, step, info):
            go = torch.nn.functional.logsigmoid(policy)
            ends = torch.nn.functional.logsigmoid(-policy)
            lengths = experience.action_mask.sum(1, keepdim=True)
            last = torch.arange(LONGEST) == lengths - 1
            ends = torch.cat([ends, torch.zeros(1)])  # nothing else is left at the last token
            log_probs = torch.where(last, ends, torch.cat([go, torch.zeros(1)]))
            old = log_probs.detach()
            mask = experience.action_mask
            loss_fn(log_probs, old, experience.advantages, mask, **info)[0].backward()
            tokens = mask.sum()
            metrics = {"ppo_kl": (0 * log_probs * mask).sum() / tokens, "actor_lr": 1e-3}
            metrics["entropy_loss"] = aggregate_loss(torch.ones(mask.shape), mask, **info)
            metrics["kl"] = torch.ones(len(mask))  # of the rollout, for each response
            return {"metrics": metrics, "num_action_tokens": float(tokens)}

        monkeypatch.setattr(actors.OurPolicyTrainer.__base__, "training_step", training_step)
        # without --rollout.max_new_tokens, as with most agents
        return policy_trainer(js__loss=loss, data__max_len=LONGEST)

    return make


def expected_gradient(trainer_of, loss: str, baseline: float, masked: int = 0) -> torch.Tensor:
    """The gradient of a batch of two responses, expected over all pairs that can be sampled;
    `masked` more responses have no action token, and the optimizer step has 8 micro-batches."""
    policy = torch.tensor([0.3, -0.4], requires_grad=True)
    trainer = trainer_of(policy, loss)
    go = policy.detach().sigmoid()
    chance = torch.stack([1 - go[0], go[0] * (1 - go[1]), go[0] * go[1]])
    total = torch.zeros_like(policy)
    for first, second in itertools.product(range(LONGEST), repeat=2):
        lengths = torch.tensor([first + 1, second + 1] + [0] * masked).unsqueeze(1)
        rewards = torch.tensor([list(WORTH.values())[i] for i in (first, second)] + [0.0] * masked)
        mask = torch.arange(LONGEST) < lengths
        advantages = (rewards - baseline).unsqueeze(1).expand(mask.shape)
        policy.grad = None
        info = get_loss_batch_info(trainer.strategy, mask)
        for count in ("batch_num_tokens", "global_batch_size"):
            info[count] = info[count] / 8  # as upstream does, since DeepSpeed averages over them
        trainer.training_step(SimpleNamespace(action_mask=mask, advantages=advantages), 0, 0, info)
        total += chance[first] * chance[second] * policy.grad / 8
    return total


def true_gradient() -> torch.Tensor:
    policy = torch.tensor([0.3, -0.4], requires_grad=True)
    go = policy.sigmoid()
    chance = torch.stack([1 - go[0], go[0] * (1 - go[1]), go[0] * go[1]])
    (chance @ torch.tensor(list(WORTH.values()))).backward()
    return policy.grad


@pytest.mark.parametrize("baseline", [0.0, 0.25, 0.5])
@pytest.mark.parametrize("masked", [0, 2])
def test_a_constant_denominator_leaves_the_gradient_unbiased(trainer_of, baseline, masked):
    expected = -true_gradient() / LONGEST
    torch.testing.assert_close(
        expected_gradient(trainer_of, "constant", baseline, masked), expected
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_the_logged_entropy_is_per_token_whatever_the_loss_is_divided_by(trainer_of, loss):
    trainer = trainer_of(torch.zeros(2, requires_grad=True), loss)
    mask = torch.tensor([[1, 0, 0], [1, 1, 0]], dtype=torch.bool)
    batch = SimpleNamespace(action_mask=mask, advantages=torch.zeros(mask.shape))
    metrics = trainer.training_step(batch, 0, 0)["metrics"]
    torch.testing.assert_close(metrics["entropy_loss"], torch.ones(()))
    assert metrics["kl"].tolist() == [1, 1]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("others", [6.0, 0.0])  # tokens and responses of the optimizer step
def test_a_micro_batch_of_masked_responses_is_logged_as_zero_and_weighs_nothing(
    trainer_of, loss, others
):
    policy = torch.zeros(2, requires_grad=True)
    mask = torch.zeros(2, LONGEST, dtype=torch.bool)
    nothing = SimpleNamespace(action_mask=mask, advantages=torch.zeros(mask.shape))
    counts = dict.fromkeys(("batch_num_tokens", "global_batch_size"), torch.tensor(others))
    status = trainer_of(policy, loss).training_step(nothing, 0, 0, {"dp_size": 1, **counts})
    assert status["metrics"]["ppo_kl"] == 0
    assert 0 < status["num_action_tokens"] < 1e-3  # upstream divides by it
    assert policy.grad.eq(0).all()


def test_the_trained_policy_has_no_images_or_videos_in_its_vocabulary(tmp_path):
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(save_seeing_policy(tmp_path))
    tokens = torch.tensor([[3, 4, 5]])
    whole = model(tokens).logits.float()
    actors.forbid_media(model)
    logits = model(tokens).logits.float()
    media = [model.config.image_token_id, model.config.video_token_id]
    rest = [token for token in range(whole.shape[-1]) if token not in media]
    found = logits.log_softmax(-1)
    assert found[..., media].exp().max() < 1e-30
    torch.testing.assert_close(found[..., rest], whole[..., rest].log_softmax(-1))
    logits.logsumexp(-1).sum().backward()
    gradient = model.lm_head.weight.grad
    assert (gradient[media] == 0).all()
    assert (gradient[rest] != 0).any(-1).all()


def test_actors_that_are_not_ours_are_not_trained_with():
    ours = SimpleNamespace(is_ours=None)
    other = SimpleNamespace()
    actors.confirm(SimpleNamespace(_actor_handlers=[ours, ours]))
    with pytest.raises(UpstreamMismatch, match="are not those of openrlhf_js"):
        actors.confirm(SimpleNamespace(_actor_handlers=[ours, other]))


# --- reward models and critics in Ray --------------------------------------------------------


def load(folder: Path, kind: str, normalize: bool):
    how = {"normalize_reward": normalize, "attn_implementation": "sdpa"}
    return load_with_scale(str(folder), kind, param_dtype="bf16", **how).eval()


def test_the_reward_is_normalised_with_mean_and_std_of_the_config(tmp_path):
    folder = save_scorer(tmp_path, mean=0.5, std=0.25)
    critic = load(folder, "critic", normalize=True)
    assert (critic.mean.item(), critic.std.item()) == (0.5, 0.25)
    ids = torch.tensor([[2, 3, 4, 1]])
    with torch.no_grad():
        plain = load(folder, "reward", normalize=False)(ids, torch.ones_like(ids))
        scaled = load(folder, "reward", normalize=True)(ids, torch.ones_like(ids))
    torch.testing.assert_close(scaled, (plain - 0.5) / 0.25)


def test_without_them_a_critic_is_left_as_it_is_and_a_reward_model_refused(tmp_path):
    folder = save_scorer(tmp_path)
    loaded = load(folder, "critic", normalize=True)
    assert (loaded.mean.item(), loaded.std.item()) == (0.0, 1.0)
    assert load(folder, "reward", normalize=False).std.item() == 1.0
    with pytest.raises(ValueError, match="has no mean and std"):
        load(folder, "reward", normalize=True)


# --- a resumed run ------------------------------------------------------------------------------


def engine_with(rate: float, steps: int, betas: tuple[float, float] = (0.9, 0.95)):
    """A DeepSpeed engine as far as `load_with_flags` leans on it."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([weight], lr=rate, betas=betas, weight_decay=0.0)
    schedule = get_scheduler(
        "cosine_with_min_lr", optimizer, 0, steps, scheduler_specific_kwargs={"min_lr_rate": 0.1}
    )
    return SimpleNamespace(optimizer=optimizer, lr_scheduler=schedule, weight=weight)


def train_steps(engine, steps: int) -> list[float]:
    """The learning rates of some steps."""
    rates = []
    for _ in range(steps):
        rates.append(engine.optimizer.param_groups[0]["lr"])
        engine.weight.grad = torch.ones(1)
        engine.optimizer.step()
        engine.lr_scheduler.step()
    return rates


def load_from(engine):
    """A checkpoint of the engine, loaded as DeepSpeed loads it."""

    def load(other):
        other.optimizer.load_state_dict(copy.deepcopy(engine.optimizer.state_dict()))
        other.lr_scheduler.load_state_dict(copy.deepcopy(engine.lr_scheduler.state_dict()))
        return "loaded"

    return load


def test_a_resumed_optimizer_has_the_flags_of_the_resumed_run():
    whole = train_steps(engine_with(1e-3, steps=10), 10)
    first = engine_with(1e-3, steps=10)
    train_steps(first, 4)
    load = load_from(first)

    same = engine_with(1e-3, steps=10)
    assert actors.load_with_flags(load, same) == "loaded"
    assert same.optimizer.state_dict() == first.optimizer.state_dict()  # with what Adam remembers
    assert train_steps(same, 6) == whole[4:]

    slower = engine_with(1e-5, steps=10, betas=(0.9, 0.99))
    actors.load_with_flags(load, slower)
    assert slower.optimizer.param_groups[0]["betas"] == (0.9, 0.99)
    assert slower.optimizer.state_dict()["state"] == first.optimizer.state_dict()["state"]
    assert train_steps(slower, 6) == pytest.approx([rate / 100 for rate in whole[4:]])

    longer = engine_with(1e-3, steps=20)
    actors.load_with_flags(load, longer)
    assert train_steps(longer, 16) == train_steps(engine_with(1e-3, steps=20), 20)[4:]


@pytest.mark.parametrize(
    ("saved", "kept"),
    [
        (["global_step2", "global_step4", "global_step6"], ["global_step4", "global_step6"]),
        # saved once more by a run that was resumed at step 1
        (["global_step4", "global_step6", "global_step2"], ["global_step2", "global_step6"]),
        (["best_global_step2", "global_step2", "best_global_step4"],
         ["best_global_step4", "global_step2"]),
    ],
)  # fmt: skip
def test_as_many_models_are_kept_as_checkpoints(tmp_path, monkeypatch, saved, kept):
    def save_checkpoint(self, tag, client_states=None):
        (tmp_path / f"{tag}_hf").mkdir(exist_ok=True)
        os.utime(tmp_path / f"{tag}_hf", (0, next(clock)))

    upstreams = actors.OurPolicy.__base__
    source = inspect.getsource(upstreams.save_checkpoint)
    assert "max_num" not in source.partition("save_hf_ckpt")[2]  # until upstream removes old ones
    monkeypatch.setattr(upstreams, "save_checkpoint", save_checkpoint)
    clock = itertools.count()
    arguments = upstream_args(ckpt__path=str(tmp_path), ckpt__max_num=2)
    actor = actors.OurPolicy.__new__(actors.OurPolicy)
    actor.strategy = SimpleNamespace(args=arguments, is_rank_0=lambda: True)
    for tag in saved:
        actor.save_checkpoint(tag, client_states={})
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{tag}_hf" for tag in kept]


# --- LoRA; what trains and is sent is in lora_cases.py -----------------------------------------


def with_lora(*targets: str, tied: bool = False):
    from peft import LoraConfig, get_peft_model

    how = {"task_type": "CAUSAL_LM", "r": 2, "lora_alpha": 6, "target_modules": list(targets)}
    model = noisy(qwen(vocab_size=30, tie_word_embeddings=tied))
    return get_peft_model(model, LoraConfig(**how))


def test_the_oldest_checkpoint_makes_room_whatever_the_evaluations_say(tmp_path, monkeypatch):
    class Engine:
        def save_checkpoint(self, folder, tag, **_):
            (Path(folder) / tag).mkdir()

    module = sys.modules[DeepspeedStrategy.__module__]
    monkeypatch.setattr(module.deepspeed, "DeepSpeedEngine", Engine)
    monkeypatch.setattr(module, "torch_dist_barrier_and_cuda_sync", lambda: None)
    strategy = DeepspeedStrategy.__new__(DeepspeedStrategy)
    strategy.print = lambda *_: None
    actors.repair_checkpoints(strategy)
    for step, value in enumerate((0.9, 0.5, 0.1, 0.8, 0.2)):
        tag = f"global_step{step}"
        strategy.save_ckpt(Engine(), str(tmp_path), tag, 3, 100, {}, metric_value=value)
        os.utime(tmp_path / tag, (step, step))
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["global_step2", "global_step3", "global_step4"]


def test_an_adapter_on_tied_embeddings_is_refused():
    refuse_tied(with_lora("q_proj", "lm_head"))
    refuse_tied(with_lora("q_proj", tied=True))
    for end in ("embed_tokens", "lm_head"):
        with pytest.raises(ValueError, match="leave out embed_tokens and lm_head"):
            refuse_tied(with_lora("q_proj", end, tied=True))


def test_all_linear_is_no_name_of_a_module():
    parse = upstream_parser().parse_args
    for line, expected in {
        "": "all-linear",
        "--ds.lora.target_modules all-linear": "all-linear",
        "--ds.lora.target_modules q_proj v_proj": ["q_proj", "v_proj"],
    }.items():
        assert vars(parse(line.split()))["ds.lora.target_modules"] == expected
