"""Our trainers on a base that stands in for upstream's: seeds, evaluations, logs, checkpoints."""

import importlib
import inspect
import math
import sys
from types import ModuleType, SimpleNamespace

import pytest
import ray
import ray.cloudpickle
import torch
from kit import upstream_args
from openrlhf.trainer import ppo_trainer, ppo_trainer_async
from openrlhf.utils.logging_utils import WandbLogger
from ray.cloudpickle import cloudpickle

from openrlhf_js.estimators import LiveEstimator, make_batch
from openrlhf_js.trainers.openrlhf import trainer, upstream
from openrlhf_js.trainers.openrlhf.data_files import blend
from openrlhf_js.trainers.openrlhf.memory import keep_memory
from openrlhf_js.trainers.openrlhf.prompts import CheckedPrompts
from openrlhf_js.trainers.openrlhf.rollout import OrderedSamples
from openrlhf_js.trainers.openrlhf.trainer import (
    DRAWN,
    AsyncGenerator,
    AsyncTrainer,
    ShrinkageTrainer,
    hold_place,
)
from openrlhf_js.trainers.openrlhf.upstream import DRIVER, LEARNER, REPLACED, TRAINER, BadInput


class Maker:
    """An experience maker that remembers, for checkpoints."""

    live_estimator = "js_grad"

    def __init__(self):
        self.estimator = LiveEstimator("js_grad")
        self.metrics = {}
        self.step = 0
        self.batch = make_batch([[1.0, 0.0], [1.0, 1.0]], keys=torch.tensor([7, 5]))

    def keep(self, states):
        keep_memory(states, self.estimator, self.args)

    resume = trainer.ShrinkageExperienceMaker.resume


class Upstream:
    """What of upstream's trainers matters here; `disk` is what was saved last."""

    rollouts = 0  # that `fit` trains on

    def __init__(self, pretrain, strategy):
        self.args = strategy.args
        self.parts = [ppo_trainer.PromptDataset, ppo_trainer.blending_datasets]
        self.experience_maker = Maker()
        self.experience_maker.args = strategy.args
        self.actor_model_group = SimpleNamespace(_actor_handlers=[])
        self.critic_model_group = self.reward_model_group = self.reference_model_group = None
        self.vllm_engines = None
        self.kl_ctl = SimpleNamespace(value=0.1)
        self.disk = {
            "global_step": 0,
            "total_consumed_prompts": 0,
            "data_loader_state_dict": {},
        }
        self.order = torch.randperm(50).tolist()  # as the loader draws it
        self.samples_generator = OrderedSamples.__new__(OrderedSamples)
        vars(self.samples_generator).update(steps_left=10, _drawn=0)
        self.tensorboard_logger = None
        self.wandb_logger = WandbLogger(strategy.args) if strategy.args.logger.wandb.key else None
        self.generate_kwargs = {"max_len": 9, "temperature": 1.0}
        self.eval_dataloader = ["prompts"]
        self.evaluated = []
        self._last_eval_step = -1
        self.prompts_dataloader = SimpleNamespace(dataset=range(1000))

    def save_logs_and_checkpoints(self, global_step, logs_dict=None, client_states=None):
        self.disk |= {**client_states, "global_step": global_step}

    def save_best_checkpoint(self, eval_metrics, global_step, client_states=None):
        self.disk |= {**client_states, "global_step": global_step}

    def init_checkpoint_states(self):
        return self.disk

    def fit(self, global_step=0):
        self.init_checkpoint_states()
        for step in range(self.rollouts):
            self.experience_maker.step += 1
            self.train_step([], global_step + step)

    def train_step(self, rollout_samples, global_step):
        means = {"rollout/reward_mean": 0.5, "rollout/response_length_mean": 3.0}
        return means, global_step + 1

    def evaluate(self, global_step, **generate_kwargs):
        self.evaluated.append((global_step, generate_kwargs))
        return {"eval_default_pass1": 1.0}


class UpstreamGenerator(Upstream):
    """The half of upstream's asynchronous trainer that generates."""

    def fit(self, episode, total_consumed_prompts):
        self.fitted = (episode, total_consumed_prompts)

    def load_state_dict(self, state_dict):
        self.loaded = state_dict

    def _should_eval(self, global_step):
        return False


BASES = {
    ShrinkageTrainer: (ppo_trainer.BasePPOTrainer, Upstream),
    AsyncTrainer: (ppo_trainer.BasePPOTrainer, Upstream),
    AsyncGenerator: (AsyncGenerator.__base__, UpstreamGenerator),
}


def put_back_at_the_end(monkeypatch, *processes):
    """Puts upstream's names back when the test has ended."""
    for row in REPLACED:
        if row.read_by in processes:
            module = importlib.import_module(row.module)
            monkeypatch.setattr(module, row.name, getattr(module, row.name))


@pytest.fixture
def start(monkeypatch, tmp_path):
    """Starts one of our actors, whose base has the methods of a stand-in; by default js_grad."""
    monkeypatch.chdir(tmp_path)  # where a model and its evaluations go by default
    put_back_at_the_end(monkeypatch, TRAINER)
    for part in (OrderedSamples, trainer.ShrinkageExperienceMaker):  # the stand-in has them already
        monkeypatch.setattr(part, "like", lambda made: made)

    def start(ours=ShrinkageTrainer, **settings):
        upstreams, stand_in = BASES[ours]
        for cls in reversed(stand_in.__mro__[:-1]):
            for name, value in vars(cls).items():
                if not name.startswith("__") or name == "__init__":
                    for owner in {upstreams, ours.__bases__[-1]}:
                        monkeypatch.setattr(owner, name, value, raising=False)
        sizes = {
            "rollout__batch_size": 8,
            "rollout__n_samples_per_prompt": 4,
            "train__batch_size": 32,
            "eval__steps": 4,
            "eval__temperature": 0.5,
            "eval__n_samples_per_prompt": 2,
            "algo__advantage__estimator": "js_grad",
            "js__max_steps": 10,
        }
        return ours("model", SimpleNamespace(args=upstream_args(**{**sizes, **settings})))

    return start


@pytest.mark.parametrize("ours", [ShrinkageTrainer, AsyncGenerator])
def test_the_parts_are_ours_and_the_seed_of_the_run_decides_the_order_of_prompts(start, ours):
    first = start(ours, train__seed=1)
    assert first.parts == [CheckedPrompts, blend]
    assert ppo_trainer_async.compute_eval_metrics is trainer.metrics_by_datasource
    # both of upstream's trainers read the data by this function, which looks the parts up
    assert ppo_trainer_async.prepare_datasets is ppo_trainer.prepare_datasets
    names = ppo_trainer.prepare_datasets.__code__.co_names
    assert {"PromptDataset", "blending_datasets"} <= set(names)
    torch.rand(3)  # whatever else the process has drawn
    assert start(ours, train__seed=1).order == first.order != start(ours, train__seed=2).order


def actors_as_ray_sends_them():
    """Our actors' classes, which Ray sends with wrapped copies of the methods they inherit."""
    upstream.replace_names(DRIVER, TRAINER, LEARNER, args=upstream_args())
    for row in REPLACED:
        if row.ray_options is not None:
            actor = getattr(importlib.import_module(row.module), row.name)
            sent = ray.cloudpickle.dumps(actor.__ray_metadata__.modified_class)
            cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.clear()  # as in another process
            yield row.name, ray.cloudpickle.loads(sent)


def test_what_ray_sends_by_value_has_our_parts_and_no_second_copy_of_a_class(start, monkeypatch):
    put_back_at_the_end(monkeypatch, DRIVER, LEARNER)
    measured_by = []
    for name, sent in actors_as_ray_sends_them():
        for method_name, method in inspect.getmembers(sent, inspect.isfunction):
            function = inspect.unwrap(method)
            cells = inspect.getclosurevars(function).nonlocals
            assert cells.get("__class__", sent) in sent.__mro__, f"{name}: {method_name}"
            metrics = function.__globals__.get("compute_eval_metrics")
            if "compute_eval_metrics" in function.__code__.co_names and metrics:
                measured_by.append(metrics)
    ours = trainer.metrics_by_datasource
    assert [metrics for metrics in measured_by if metrics is not ours] == []
    assert len(measured_by) >= 2  # of both trainers


@pytest.mark.parametrize("ours", [ShrinkageTrainer, AsyncTrainer])
def test_a_trainer_saves_and_restores_what_it_knows(start, ours):
    actor = start(ours, algo__kl__target=0.05)
    maker = actor.experience_maker
    maker.estimator.learn(maker.batch)
    kept = maker.estimator.state_dict()
    for save in (
        lambda: actor.save_logs_and_checkpoints(7, {}, {"episode": 0}),
        lambda: actor.save_best_checkpoint({}, 7, {"episode": 0}),
    ):
        actor.kl_ctl.value = 0.3
        save()
        maker.estimator = LiveEstimator("js_grad")
        actor.kl_ctl.value = 0.1
        assert actor.init_checkpoint_states()["episode"] == 0
        assert str(maker.estimator.state_dict()) == str(kept)
        assert (maker.step, actor.kl_ctl.value) == (7, 0.3)
    actor.kl_ctl.value = 0.2
    actor.args.algo.kl.target = None
    actor.init_checkpoint_states()
    assert actor.kl_ctl.value == 0.2  # a fixed coefficient is what the flag says


PASS1 = "eval_default_pass1"


@pytest.mark.parametrize(
    ("flag", "saved", "data_set", "expected"),
    [
        ("", PASS1, "a.jsonl", (PASS1, 0.3)),
        (PASS1, PASS1, "a.jsonl", (PASS1, 0.3)),
        ("none", PASS1, "a.jsonl", ("none", -math.inf)),
        ("", "none", "a.jsonl", ("", -math.inf)),
        ("", PASS1, "b.jsonl", ("", -math.inf)),
    ],
)
def test_a_resumed_run_looks_for_the_best_as_its_own_flags_say(
    start, flag, saved, data_set, expected
):
    actor = start(ckpt__best_metric_key=flag, eval__dataset=data_set)
    actor.best_eval_metric_key, actor.best_eval_metric_value = flag, -math.inf
    states = {"best_eval_metric_key": saved, "best_eval_metric_value": 0.3}
    actor.restore_best_checkpoint_state({**states, "js_eval_dataset": "a.jsonl"})
    assert (actor.best_eval_metric_key, actor.best_eval_metric_value) == expected


def test_a_resumed_run_counts_its_prompts_on(start):
    place = {"total_consumed_prompts": 24, "data_loader_state_dict": {"place": 24}}
    generators = []
    for ours in (ShrinkageTrainer, AsyncTrainer):
        actor = start(ours)
        actor.disk = {"global_step": 3, **place, "js_estimator": None}
        actor.experience_maker.estimator = LiveEstimator("js")
        states = actor.init_checkpoint_states()
        generators.append(actor.samples_generator)
    half = start(AsyncGenerator)
    half.load_state_dict(states["data_loader_state_dict"])
    half.fit(episode=1, total_consumed_prompts=24)
    assert half.loaded == {"place": 24}
    assert not half._should_eval(0)
    for generator in (generators[0], half.samples_generator):
        assert (generator._drawn, generator.steps_left) == (24, 7)
    actor.disk |= {"episode": 1, "data_loader_state_dict": {DRAWN: False}}
    assert actor.init_checkpoint_states()["episode"] == 1
    actor.disk["data_loader_state_dict"] = {DRAWN: True}
    assert actor.init_checkpoint_states()["episode"] == 2  # not the drawn one once more


def test_a_run_is_evaluated_before_its_first_step_and_at_its_last(start):
    actor = start()
    actor.experience_maker.estimator = LiveEstimator("js")
    assert actor.max_steps == 10 * 8 * 4 // 32
    for step in (0, 4, 5):
        actor.disk["global_step"] = step
        actor.init_checkpoint_states()
        actor.save_logs_and_checkpoints(step, {}, {})
    actor.save_logs_and_checkpoints(10, {}, {})
    as_asked = {"max_len": 9, "temperature": 0.5, "n_samples_per_prompt": 2}
    assert actor.evaluated == [(0, as_asked), (10, as_asked)]
    actor.args.js.max_steps = 0
    actor.save_logs_and_checkpoints(10, {}, {})
    actor.args.eval.steps = math.inf
    actor.disk["global_step"] = 0
    actor.init_checkpoint_states()
    assert len(actor.evaluated) == 2


def test_the_asynchronous_trainer_is_evaluated_before_its_first_step(start, capsys):
    half = start(AsyncGenerator)
    assert half._should_eval(0)
    assert half.max_steps == 10
    half._last_eval_step = 0
    assert not half._should_eval(0)
    training = start(AsyncTrainer)
    before = dict(training.disk)
    training.save_best_checkpoint({"eval_default_pass1": 0.5}, 0, {"global_step": 0})
    assert "evaluation after rollout 0: default_pass1 0.500" in capsys.readouterr().out
    assert training.disk == before  # a checkpoint without a place in the data could not be resumed


@pytest.mark.parametrize(("rollouts", "resumed_after", "fails"), [(0, 0, 1), (1, 0, 0), (0, 3, 0)])
def test_a_run_that_trains_nothing_fails(start, rollouts, resumed_after, fails):
    actor = start(algo__dynamic_filtering_enable=True, algo__dynamic_filtering_range=(0, 0.5))
    actor.experience_maker.estimator = LiveEstimator("js")
    actor.rollouts = rollouts
    actor.disk["global_step"] = resumed_after
    if not fails:
        return actor.fit()
    with pytest.raises(BadInput, match=r"size 8 prompts have .*_filtering_range 0 0\.5"):
        actor.fit()


@pytest.mark.parametrize("ours", [ShrinkageTrainer, AsyncGenerator])
def test_prompts_with_a_problem_are_refused(start, ours):
    actor = start(ours)
    data = [f"prompt {number}" for number in range(20)]
    dataset = type("Data", (list,), {"problem": "too long", "prompts": data, "labels": data})(data)
    loader = SimpleNamespace(dataset=dataset, state_dict=dict, load_state_dict=id)
    actor.eval_dataloader, actor.prompts_dataloader = None, loader
    with pytest.raises(BadInput, match=r"--data\.prompt_dataset: too long"):
        actor.get_max_steps()
    dataset.problem = None
    actor.samples_generator.args = actor.args
    actor.samples_generator.prompts_dataloader = loader
    assert actor.get_max_steps() == actor.max_steps


def test_our_parts_stand_where_upstream_has_put_its_own(start, monkeypatch, capsys):
    ours = SimpleNamespace(live_estimator="js_grad", generator=None)
    seen = []
    for part in (trainer.ShrinkageExperienceMaker, OrderedSamples):
        monkeypatch.setattr(part, "like", lambda made: seen.append(made) or ours)
    actor = start(ShrinkageTrainer)
    assert (actor.experience_maker, actor.samples_generator) == (ours, ours)
    assert [type(made) for made in seen] == [Maker, OrderedSamples]
    assert "the live advantage estimator is js_grad\n" in capsys.readouterr().out
    assert start(AsyncTrainer).experience_maker is ours
    assert start(AsyncGenerator).samples_generator is ours


def test_our_parts_are_made_of_what_upstreams_were_given(monkeypatch):
    monkeypatch.setattr(ray, "put", lambda tokenizer: [tokenizer])
    strategy = SimpleNamespace(args=upstream_args(algo__advantage__estimator="js"))
    given = {
        "actor_model_group": 1,
        "critic_model_group": 2,
        "reward_model_group": 3,
        "initial_model_group": 4,
        "kl_controller": 5,
        "strategy": strategy,
        "tokenizer": 6,
    }
    made = trainer.ShrinkageExperienceMaker.__base__(**given)
    ours = trainer.ShrinkageExperienceMaker.like(made)
    assert vars(ours).items() >= vars(made).items()
    given = {
        "strategy": strategy,
        "prompts_dataloader": 1,
        "eval_dataloader": 2,
        "tokenizer": 3,
        "vllm_engines": [4],
    }
    made = OrderedSamples.__base__(**given)
    ours = OrderedSamples.like(made)
    assert vars(ours).items() >= {**vars(made), "tokenizer": ours.tokenizer}.items()
    assert ours.tokenizer.reference == [3]


def evaluated(datasources, rewards):
    """Upstream's metrics, and ours, of prompts that are all alike."""
    data = SimpleNamespace(datasources=datasources)
    loader = [([source], ["prompt"], ["label"], [None]) for source in datasources]
    samples = [
        SimpleNamespace(
            prompts=["prompt"],
            rewards=torch.tensor([float(reward)]),
            response_length=torch.tensor([3]),
            truncated=torch.tensor([False]),
        )
        for pair in rewards
        for reward in pair
    ]
    upstreams = ppo_trainer.compute_eval_metrics(loader, samples, 2)
    ours = trainer.metrics_by_datasource(SimpleNamespace(dataset=data), samples, 2)
    assert samples[0].prompts == ["prompt"]
    return upstreams, ours


def test_two_evaluation_sets_with_the_same_prompts_are_two():
    upstreams, ours = evaluated(["a", "b", "a", None], [(1, 1), (0, 1), (1, 1), (0, 0)])
    assert upstreams["eval_None_pass1"] == 0.625  # of all: as long as it is so, ours is needed
    assert {name: ours[f"eval_{name}_pass1"] for name in ("a", "b", "default")} == {
        **{"a": 1.0, "b": 0.5, "default": 0.0},
    }
    assert ours["eval_b_pass2"] == 1.0
    assert ours["eval_num_samples"] == 8


# --- logs ---------------------------------------------------------------------------------------


class Recorder(ModuleType):
    """A module that writes down what is called."""

    api = SimpleNamespace(api_key="key")  # of W&B

    def __init__(self, name):
        super().__init__(name)
        self.calls = []

    def __getattr__(self, name):
        return lambda *args, **named: self.calls.append((name, args, named))


def test_wandb_draws_evaluations_over_the_step_that_upstream_logs(start, monkeypatch):
    wandb = Recorder("wandb")
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    actor = start(logger__wandb__key="key")
    actor.wandb_logger.log_eval(3, {"eval_a_pass1": 0.5})
    upstreams, ours = (
        named["step_metric"]
        for name, args, named in wandb.calls
        if name == "define_metric" and args == ("eval/*",)
    )
    name, (logged,), _ = wandb.calls[-1]
    assert name == "log"
    assert ours in logged
    assert upstreams not in logged  # as long as it is so, ours is needed

    actor.save_logs_and_checkpoints(3, {"js/slope_group": 0.5, "reward": 1.0}, {})
    axes = {args: named["step_metric"] for _, args, named in wandb.calls if "step_metric" in named}
    _, (logged,), _ = wandb.calls[-1]  # not below train/, and without what is upstream's
    assert logged == {axes[("js/*",)]: 3, "js/slope_group": 0.5}


# --- the place in the data ----------------------------------------------------------------------


class _Prompts(list):
    """A data set of prompts, read as upstream's is."""

    def __init__(self, count):
        super().__init__(f"prompt {number}" for number in range(count))
        self.prompts = self.labels = list(self)


@pytest.mark.parametrize("changed", [[], ["train.seed"], ["data.prompt_dataset"]])
def test_a_place_in_the_data_is_one_in_these_prompts(changed, capsys):
    from torchdata.stateful_dataloader import StatefulDataLoader

    def loader_of(count, generator_seed=0):
        generator = torch.Generator().manual_seed(generator_seed)
        loader = StatefulDataLoader(_Prompts(count), None, shuffle=True, generator=generator)
        hold_place(loader, changed)
        return loader

    first = loader_of(9)
    rows = iter(first)
    for _ in range(4):
        next(rows)
    state = first.state_dict()
    resumed = loader_of(9, generator_seed=1)
    resumed.load_state_dict(state)
    assert list(resumed) == list(rows)  # in the checkpoint's order
    assert (state[DRAWN], first.state_dict()[DRAWN]) == (False, True)

    other = loader_of(10)
    if changed == ["data.prompt_dataset"]:
        other.load_state_dict(state)
        assert "the prompts are new ones" in capsys.readouterr().out
        assert sorted(other) == sorted(other.dataset)
    else:
        with pytest.raises(BadInput, match=r"begin new ones with --js\.changed data\.prompt"):
            other.load_state_dict(state)
