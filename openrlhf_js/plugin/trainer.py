"""Upstream's trainer actors with our experience maker, put where upstream looks for them.

The trainers live in Ray workers of their own. A name replaced in the driver alone would change
nothing there, and the run would silently train another estimator. So each trainer replaces the
name in its own process, and confirms which estimator is live before the first step.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import math
import re
from collections.abc import Collection
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import ray
import torch
from openrlhf.cli import train_ppo_ray
from openrlhf.trainer import ppo_trainer, ppo_trainer_async
from openrlhf.trainer.ppo_trainer import compute_eval_metrics
from openrlhf.trainer.ray import launcher, ppo_critic, vllm_engine

from openrlhf_js.plugin import rewards, watch
from openrlhf_js.plugin.checks.batch_sizes import too_few_prompts
from openrlhf_js.plugin.data_files import blend
from openrlhf_js.plugin.experience import ShrinkageExperienceMaker, SourcedPrompts
from openrlhf_js.plugin.learner import actors
from openrlhf_js.plugin.memory import keep_memory, resume_memory
from openrlhf_js.plugin.rollout import OrderedSamples, checked_rollout
from openrlhf_js.plugin.schedule import FLAGS, Schedule
from openrlhf_js.plugin.selection import keep_selection, resume_selection, start_selection
from openrlhf_js.plugin.upstream import BadInput, UpstreamMismatch, plain_class

STEP = "js_global_step"  # in the place in the data, which a checkpoint keeps
PROMPTS = "js_prompts"  # there, too: the hash of the prompts that it is a place in
KL_COEFFICIENT = "js_kl_coefficient"  # in the states that upstream saves with the actor
EVALUATED_WITH = ("temperature", "n_samples_per_prompt")


def shrinkage_trainer(actor_class: Any) -> Any:
    """Upstream's trainer actor with our experience maker, and `js/...` in its status.

    The class is defined here so that Ray sends it by value, as it sends upstream's: a base class
    sent by value under a subclass sent by name would arrive twice. Its constructor raises
    UpstreamMismatch if the live estimator is not the one that the flag names.
    """

    class ShrinkageTrainer(plain_class(actor_class)):  # type: ignore[misc]
        wandb_logger: Any

        def __init__(self, pretrain: str, strategy: Any, *args: Any, **kwargs: Any):
            ppo_trainer.RemoteExperienceMaker = ShrinkageExperienceMaker
            ppo_trainer.PromptDataset = SourcedPrompts
            ppo_trainer.blending_datasets = blend
            torch.manual_seed(strategy.args.train.seed)  # the loader draws its order from it
            super().__init__(pretrain, strategy, *args, **kwargs)
            if hasattr(self, "prompts_dataloader"):  # not the asynchronous trainer's other half
                self.max_steps = optimizer_steps(self)
            if strategy.args.js.tracker:  # upstream calls it wherever it logs
                self.wandb_logger = Tracker(strategy.args)
            elif self.wandb_logger:
                draw_over_steps(self.wandb_logger.handle)
            asked = strategy.args.algo.advantage.estimator
            live = getattr(self.experience_maker, "live_estimator", None)
            if live != asked:
                raise UpstreamMismatch(f"asked for estimator {asked!r}, but {live!r} is live")
            actors.confirm(self.actor_model_group)
            print(f"openrlhf_js: the live advantage estimator is {live}", flush=True)

        def get_max_steps(self) -> int:
            refuse_prompts(self)
            hold_place(self.prompts_dataloader, self.args.js.changed or ())
            self.experience_maker.selector = start_selection(self)
            return super().get_max_steps()

        def fit(self, *args: Any, **kwargs: Any) -> None:
            super().fit(*args, **kwargs)
            if self.experience_maker.step == 0:  # upstream would save the model as it was
                raise BadInput(nothing_trained(self.args))

        def train_step(self, rollout_samples: list[Any], global_step: int) -> tuple[dict, int]:
            self.experience_maker.step = global_step + 1
            status, step = super().train_step(rollout_samples, global_step)
            self.say_rollout(step, status)
            return {**status, **self.experience_maker.metrics}, step

        def say_rollout(self, step: int, status: dict) -> None:
            """One line on a rollout, which the run's screen reads."""
            of_all = ""
            if hasattr(self, "prompts_dataloader"):
                of_all = f" of {schedule_of(self).rollouts:,}"
            reward = status["rollout/reward_mean"]
            length = status["rollout/response_length_mean"]
            print(
                f"openrlhf_js: rollout {step:,}{of_all}: reward {reward:.3f}, "
                f"{length:,.0f} tokens a response",
                flush=True,
            )

        def save_logs_and_checkpoints(
            self, global_step: int, logs_dict: dict, client_states: dict
        ) -> None:
            self.keep(client_states)
            super().save_logs_and_checkpoints(global_step, logs_dict, client_states)
            if global_step == self.args.js.max_steps and global_step % self.args.eval.steps:
                metrics = self.evaluate_now(global_step)
                self.save_best_checkpoint(metrics, global_step, client_states)
            if self.tensorboard_logger:  # which keeps two minutes to itself
                self.tensorboard_logger.writer.flush()

        def keep(self, client_states: dict) -> None:
            """Adds what upstream leaves out to the states of a checkpoint."""
            keep_memory(client_states, self.experience_maker)
            keep_selection(client_states, self.experience_maker.selector)
            client_states[KL_COEFFICIENT] = float(self.kl_ctl.value)

        def evaluate_now(self, global_step: int) -> dict:
            """An evaluation besides upstream's; the asynchronous trainer's other half has them."""
            if not evaluates(self):
                return {}
            settings = {name: getattr(self.args.eval, name) for name in EVALUATED_WITH}
            metrics = self.evaluate(global_step, **self.generate_kwargs | settings)
            if not global_step:
                say_evaluation(0, metrics)
            return metrics

        def save_best_checkpoint(
            self, eval_metrics: dict, global_step: int, client_states: dict
        ) -> None:
            say_evaluation(global_step, eval_metrics)
            self.keep(client_states)
            super().save_best_checkpoint(eval_metrics, global_step, client_states)

        def init_checkpoint_states(self) -> dict:
            states = super().init_checkpoint_states()
            self.experience_maker.step = states["global_step"]
            resume_memory(states, self.experience_maker)
            resume_selection(states, self.experience_maker.selector)
            if self.args.algo.kl.target:  # else it is what the flag says
                self.kl_ctl.value = states.get(KL_COEFFICIENT, self.kl_ctl.value)
            if self.tensorboard_logger:  # what was logged of later steps was undone
                writer = self.tensorboard_logger.writer
                writer.close()
                writer.purge_step = states["global_step"] + 1
            if hasattr(self, "samples_generator"):
                self.samples_generator.drawn = states.get("total_consumed_prompts", 0)
                self.samples_generator.steps_left -= states["global_step"]
            else:  # the asynchronous trainer's other half gets only the place in the data
                place = states["data_loader_state_dict"]
                place[STEP] = states["global_step"]
            if not states["global_step"]:
                self.evaluate_now(0)
            return states

    return ray.remote(watch.announce_phases(ShrinkageTrainer))


def draw_over_steps(wandb: Any) -> None:
    """Gives W&B's evaluations the axis that upstream logs; the one it defines it never does."""
    wandb.define_metric("eval/global_step")
    wandb.define_metric("eval/*", step_metric="eval/global_step", step_sync=True)


class Tracker:
    """A run in MLflow or trackio; stands in for upstream's `WandbLogger`."""

    def __init__(self, args: argparse.Namespace):
        tracker = import_module(args.js.tracker)
        project = args.logger.wandb.project
        run_name = args.logger.wandb.run_name
        if args.js.tracker == "mlflow":
            tracker.set_experiment(project)
            tracker.start_run(run_name=run_name)
            self.log = tracker.log_metrics
            self.close = tracker.end_run
        else:
            tracker.init(project=project, name=run_name)
            self.log = tracker.log
            self.close = tracker.finish
        self.log_train = partial(self._log, "train")
        self.log_eval = partial(self._log, "eval")

    def _log(self, phase: str, global_step: int, logs_dict: dict[str, Any]) -> None:
        numbers = {
            f"{phase}/{name}": float(value)
            for name, value in logs_dict.items()
            if value is not None and name != "generated_samples"
        }
        self.log(numbers, step=global_step)


def say_evaluation(step: int, metrics: dict[str, Any]) -> None:
    """One line on an evaluation: the shares of right answers, by data set."""
    shares = []
    for name, value in metrics.items():
        if re.search(r"_pass\d+$", name):
            shares.append(f"{name.removeprefix('eval_')} {value:.3f}")
    if shares:
        print(f"openrlhf_js: evaluation after rollout {step:,}: {', '.join(shares)}", flush=True)


def evaluates(trainer: Any) -> bool:
    """Whether this trainer, or half of one, evaluates."""
    return bool(getattr(trainer, "eval_dataloader", None)) and trainer.args.eval.steps != math.inf


def refuse_prompts(trainer: Any) -> None:
    """Raises BadInput for prompts that cannot be trained on, which the data sets have found.

    It is upstream's first call: of what a constructor raises, Ray keeps the text alone.
    """
    loaders = {
        "data.prompt_dataset": trainer.prompts_dataloader,
        "eval.dataset": trainer.eval_dataloader,
    }
    for flag, loader in loaders.items():
        if loader is not None and loader.dataset.problem:
            raise BadInput(f"--{flag}: {loader.dataset.problem}")
    prompts = len(trainer.prompts_dataloader.dataset)
    batch = trainer.args.rollout.batch_size
    for problem in too_few_prompts(prompts, batch):
        raise BadInput(f"--data.prompt_dataset: {problem}")
    if prompts % batch and not trainer.args.algo.dynamic_filtering_enable:
        print(
            f"openrlhf_js: {prompts % batch:,} of {prompts:,} prompts, other ones in each episode, "
            f"are left out: too few for a rollout of {batch:,}",
            flush=True,
        )


def schedule_of(trainer: Any) -> Schedule:
    """How long the run of a trainer with prompts is."""
    values = {}
    for flag in FLAGS:
        section, _, name = flag.partition(".")
        values[flag] = getattr(getattr(trainer.args, section), name)
    return Schedule.of(len(trainer.prompts_dataloader.dataset), values)


def metrics_by_datasource(loader: Any, samples: list[Any], responses: int) -> dict[str, float]:
    """Upstream's metrics of an evaluation, with every prompt under its own datasource.

    `samples` are in the order of the data set. Upstream looks the datasource up by the text of the
    prompt, so that the prompts of two data sets would all count for the second. Rows without a
    datasource beside rows with one are "default", as they are by themselves.
    """
    numbered = [
        ([datasource or "default"], [str(number)], None, None)
        for number, datasource in enumerate(loader.dataset.datasources)
    ]
    samples = [copy.copy(sample) for sample in samples]
    for place, sample in enumerate(samples):
        sample.prompts = [str(place // responses)]
    metrics: dict[str, float] = compute_eval_metrics(numbered, samples, responses)
    return metrics


def nothing_trained(args: argparse.Namespace) -> str:
    """What to say of a run whose filter has left nothing to train on."""
    low, high = args.algo.dynamic_filtering_range
    return (
        f"no step was trained, and no model is saved: in an episode fewer than "
        f"--rollout.batch_size {args.rollout.batch_size} prompts have rewards that differ, with a "
        f"mean inside --algo.dynamic_filtering_range {low:g} {high:g}"
    )


def hold_place(loader: Any, changed: Collection[str]) -> None:
    """Makes the loader's place in the data one in these prompts, which a resumed run must have.

    Where `changed`, of `--js.changed`, names a flag of the data, other prompts begin at the first.
    `load_state_dict` raises BadInput for them otherwise: their first rows would be skipped.
    """
    digest = hashlib.sha256()
    for row in zip(loader.dataset.prompts, loader.dataset.labels, strict=True):
        digest.update(repr(row).encode(errors="surrogatepass"))
    prompts = digest.hexdigest()
    state_dict = loader.state_dict
    load_state_dict = loader.load_state_dict

    def resume(state: dict[str, Any]) -> None:
        state = dict(state)
        if state.pop(PROMPTS, prompts) == prompts:
            load_state_dict(state)
        elif any(name.startswith("data.") for name in changed):
            print("openrlhf_js: the prompts are new ones: they begin at the first", flush=True)
        else:
            raise BadInput(
                "--ckpt.load_enable: the prompts are not those of the checkpoint's run: give the "
                "same ones, or begin new ones with --js.changed data.prompt_dataset"
            )

    loader.state_dict = lambda: {**state_dict(), PROMPTS: prompts}
    loader.load_state_dict = resume


def optimizer_steps(trainer: Any) -> int:
    """How many there will be at most, which the schedule of the learning rate wants to know."""
    schedule = schedule_of(trainer)
    return schedule.rollouts * schedule.updates


def sourced_generator(actor_class: Any) -> Any:
    """The asynchronous trainer's half that reads the prompts, with our data set."""

    class SourcedGenerator(plain_class(actor_class)):  # type: ignore[misc]
        rollout_queue: Any

        def __init__(self, pretrain: str, strategy: Any, *args: Any, **kwargs: Any):
            ppo_trainer.PromptDataset = SourcedPrompts
            ppo_trainer.blending_datasets = blend
            torch.manual_seed(strategy.args.train.seed)
            super().__init__(pretrain, strategy, *args, **kwargs)
            self.max_steps = optimizer_steps(self)

        def get_max_steps(self) -> int:
            refuse_prompts(self)
            hold_place(self.prompts_dataloader, self.args.js.changed or ())
            return super().get_max_steps()

        def load_state_dict(self, state_dict: dict) -> None:
            self.samples_generator.steps_left -= state_dict.pop(STEP)
            self._last_eval_step = 0  # there is none before the first step of a resumed run
            super().load_state_dict(state_dict)

        def _should_eval(self, global_step: int) -> bool:
            first = self._last_eval_step < 0 and evaluates(self)
            return first or super()._should_eval(global_step)

        def fit(self, episode: int, total_consumed_prompts: int) -> None:
            self.samples_generator.drawn = total_consumed_prompts
            queue = self.rollout_queue

            def put(payload: Any, block: bool = True) -> None:
                if payload == "done" and self.samples_generator.steps_left < 1 and evaluates(self):
                    self.evaluate_last(queue)
                queue.put(payload, block=block)

            self.rollout_queue = SimpleNamespace(put=put)
            super().fit(episode, total_consumed_prompts)

        def evaluate_last(self, queue: Any) -> None:
            step = self.args.js.max_steps
            queue.put(("eval", step, {}), block=True)  # answered once all steps are trained
            while self.rollout_slots.get(block=True) < step:
                pass
            queue.put(("eval", step, self._run_eval()), block=True)

    return ray.remote(SourcedGenerator)


def put_our_actors(args: argparse.Namespace) -> None:
    """From here on upstream's `train` in this process starts our actors."""
    rollout = checked_rollout(
        vllm_engine.RolloutRayActor,
        seed=args.train.seed,
        on_bad_reward=args.js.on_bad_reward,
        greedy=args.algo.advantage.estimator == "remax",
        remote=rewards.client_of(args),
        limit_seconds=args.js.reward_timeout_seconds,
        trust_remote_code=args.js.trust_remote_code,
        filtering=args.algo.dynamic_filtering_enable,
        stop=args.rollout.stop or (),
    )
    places = {
        (ppo_trainer, "PPOTrainer"): shrinkage_trainer(ppo_trainer.PPOTrainer),
        # the asynchronous trainer takes its two halves with it when Ray sends it
        (ppo_trainer_async, "TrainingActor"): shrinkage_trainer(ppo_trainer_async.TrainingActor),
        (ppo_trainer_async, "GenerateSamplesActor"): sourced_generator(
            ppo_trainer_async.GenerateSamplesActor
        ),
        (vllm_engine, "RolloutRayActor"): rollout,
        (train_ppo_ray, "PolicyModelActor"): actors.our_policy(train_ppo_ray.PolicyModelActor),
        (train_ppo_ray, "CriticModelActor"): actors.our_critic(train_ppo_ray.CriticModelActor),
        # Ray sends an actor's class with the globals of its methods
        (ppo_trainer, "compute_eval_metrics"): metrics_by_datasource,
        (ppo_trainer_async, "compute_eval_metrics"): metrics_by_datasource,
        (ppo_trainer, "SamplesGenerator"): OrderedSamples,
        (ppo_trainer_async, "SamplesGenerator"): OrderedSamples,
        (launcher, "get_llm_for_sequence_regression"): actors.load_with_scale,
        (ppo_critic, "get_llm_for_sequence_regression"): actors.load_with_scale,
    }
    for (module, name), ours in places.items():
        setattr(module, name, ours)
