"""Upstream's trainer actors with our parts.

Each trainer runs in its own Ray worker. A name replaced only in the driver would change nothing
there, and the run would silently train another estimator. So each trainer replaces the names in its
own process (`upstream.replace_names`), and confirms which estimator is live before the first step.

Ray sends our classes by name. But it sends by value the methods that they inherit from upstream's
decorated classes: with the driver's globals, where the names are replaced, too, and with a copy of
upstream's class, on which `super()` fails.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import math
import re
from collections.abc import Collection
from operator import attrgetter
from typing import Any

import torch
from openrlhf.trainer import ppo_trainer, ppo_trainer_async
from openrlhf.trainer.ppo_trainer import compute_eval_metrics

from openrlhf_js.common.intervals import mean_interval, share_interval
from openrlhf_js.trainers.openrlhf import watch
from openrlhf_js.trainers.openrlhf.checks.batch_sizes import too_few_prompts
from openrlhf_js.trainers.openrlhf.experience import ShrinkageExperienceMaker
from openrlhf_js.trainers.openrlhf.learner import actors
from openrlhf_js.trainers.openrlhf.rollout import OrderedSamples
from openrlhf_js.trainers.openrlhf.schedule import Schedule
from openrlhf_js.trainers.openrlhf.upstream import TRAINER, BadInput, plain_class, replace_names

STEP = "js_global_step"  # key in the data loader's state, which a checkpoint keeps
PROMPTS = "js_prompts"  # key there, too: the hash of the prompts that the loader reads
DRAWN = "_iterator_finished"  # torchdata's key there: nothing is left to draw in the episode
KL_COEFFICIENT = "js_kl_coefficient"  # key in the states that upstream saves with the actor
EVALUATED = "js_eval_dataset"  # and the data set of the evaluations
EVALUATED_WITH = ("temperature", "n_samples_per_prompt")


# --- the trainers ------------------------------------------------------------------------------


class Training(ppo_trainer.BasePPOTrainer):  # type: ignore[misc]
    """Adds our experience maker, its logs and its checkpoints to both of upstream's trainers.

    The constructor prints which estimator is live, and raises UpstreamMismatch if the policy's
    actors are not `OurPolicy`.
    """

    experience_maker: Any

    def __init__(self, pretrain: str, strategy: Any, *args: Any, **kwargs: Any):
        replace_names(TRAINER)
        torch.manual_seed(strategy.args.train.seed)  # it determines the loader's order
        super().__init__(pretrain, strategy, *args, **kwargs)
        watch.note_names(
            {
                "policy rank": self.actor_model_group,
                "critic rank": self.critic_model_group,
                "reward rank": self.reward_model_group,
                "reference rank": self.reference_model_group,
            },
            self.vllm_engines,
        )
        self.experience_maker = ShrinkageExperienceMaker.like(self.experience_maker)
        if self.wandb_logger:
            draw_over_steps(self.wandb_logger.handle)
        live = self.experience_maker.live_estimator
        actors.confirm(self.actor_model_group)
        print(f"openrlhf_js: the live advantage estimator is {live}", flush=True)

    def fit(self, *args: Any, **kwargs: Any) -> None:
        super().fit(*args, **kwargs)
        if self.experience_maker.step == 0:  # upstream would save the untrained model
            raise BadInput(nothing_trained(self.args))

    def train_step(self, rollout_samples: list[Any], global_step: int) -> tuple[dict, int]:
        status, step = super().train_step(rollout_samples, global_step)
        reward = status["rollout/reward_mean"]
        length = status["rollout/response_length_mean"]
        print(  # the run's screen reads it
            f"openrlhf_js: rollout {step:,}{self.of_all_rollouts()}: reward {reward:.3f}, "
            f"{length:,.0f} tokens a response",
            flush=True,
        )
        return {**status, **self.experience_maker.metrics}, step

    def of_all_rollouts(self) -> str:
        """ " of 30", if the number is known, else ""."""
        return ""

    def keep(self, client_states: dict) -> None:
        """Adds to a checkpoint's states what upstream leaves out."""
        self.experience_maker.keep(client_states)
        client_states[KL_COEFFICIENT] = float(self.kl_ctl.value)
        client_states[EVALUATED] = self.args.eval.dataset

    def save_logs_and_checkpoints(
        self, global_step: int, logs_dict: dict, client_states: dict
    ) -> None:
        self.keep(client_states)
        ours = {name: logs_dict.pop(name) for name in list(logs_dict) if name.startswith("js/")}
        if global_step % self.args.logger.logging_steps == 0:
            self.log_panel(global_step, ours)
        super().save_logs_and_checkpoints(global_step, logs_dict, client_states)
        if self.tensorboard_logger:  # it would buffer two minutes
            self.tensorboard_logger.writer.flush()

    def log_panel(self, global_step: int, curves: dict[str, float]) -> None:
        """Logs curves under their own names, which gives them a panel of their own.

        Upstream would put them among its forty under `train/`.
        """
        if self.wandb_logger:
            self.wandb_logger.handle.log({"train/global_step": global_step, **curves})
        if self.tensorboard_logger:
            for name, value in curves.items():
                self.tensorboard_logger.writer.add_scalar(name, value, global_step)

    def save_best_checkpoint(
        self, eval_metrics: dict, global_step: int, client_states: dict
    ) -> None:
        say_evaluation(global_step, eval_metrics)
        if global_step == 0:  # the asynchronous trainer has no place in the data yet
            return
        self.keep(client_states)
        super().save_best_checkpoint(eval_metrics, global_step, client_states)

    def restore_best_checkpoint_state(self, checkpoint_states: dict) -> None:
        """Upstream's, unless this run evaluates something else than the checkpoint's.

        Upstream would go on by the checkpoint's metric and its best value, whatever this run says.
        """
        saved = checkpoint_states.get("best_eval_metric_key")
        same_metric = saved != "none" and self.args.ckpt.best_metric_key in ("", saved)
        data_set = self.args.eval.dataset
        if same_metric and checkpoint_states.get(EVALUATED, data_set) == data_set:
            super().restore_best_checkpoint_state(checkpoint_states)

    def init_checkpoint_states(self) -> dict[str, Any]:
        states: dict[str, Any] = super().init_checkpoint_states()
        if states["data_loader_state_dict"].get(DRAWN):  # only what was sampled ahead was left
            states["episode"] += 1
        self.experience_maker.resume(states)
        if self.args.algo.kl.target:  # else the flag sets it
            self.kl_ctl.value = states.get(KL_COEFFICIENT, self.kl_ctl.value)
        if self.tensorboard_logger:  # drop what was logged of later steps, now undone
            writer = self.tensorboard_logger.writer
            writer.close()
            writer.purge_step = states["global_step"] + 1
        return states


@watch.announce_phases
class ShrinkageTrainer(Training, plain_class(ppo_trainer.PPOTrainer)):  # type: ignore[misc]
    """Upstream's trainer, which draws prompts, trains and evaluates in turn."""

    samples_generator: OrderedSamples

    def __init__(self, pretrain: str, strategy: Any, *args: Any, **kwargs: Any):
        super().__init__(pretrain, strategy, *args, **kwargs)
        self.samples_generator = OrderedSamples.like(self.samples_generator)
        self.max_steps = optimizer_steps(self)

    def get_max_steps(self) -> int:
        refuse_prompts(self)
        hold_place(self.prompts_dataloader, self.args.js.changed or ())
        return self.max_steps

    def of_all_rollouts(self) -> str:
        return f" of {schedule_of(self).rollouts:,}"

    def save_logs_and_checkpoints(
        self, global_step: int, logs_dict: dict, client_states: dict
    ) -> None:
        super().save_logs_and_checkpoints(global_step, logs_dict, client_states)
        if global_step == self.args.js.max_steps and global_step % self.args.eval.steps:
            metrics = self.evaluate_now(global_step)
            self.save_best_checkpoint(metrics, global_step, client_states)

    def init_checkpoint_states(self) -> dict[str, Any]:
        states = super().init_checkpoint_states()
        step = states["global_step"]
        self.samples_generator.resume(steps=step, drawn=states["total_consumed_prompts"])
        if step == 0:
            say_evaluation(0, self.evaluate_now(0))
        return states

    def evaluate_now(self, global_step: int) -> dict[str, Any]:
        """An evaluation in addition to upstream's; {} if nothing is evaluated."""
        if not evaluates(self):
            return {}
        settings = {name: getattr(self.args.eval, name) for name in EVALUATED_WITH}
        return self.evaluate(global_step, **self.generate_kwargs | settings)


@watch.announce_phases
class AsyncTrainer(Training, plain_class(ppo_trainer_async.TrainingActor)):  # type: ignore[misc]
    """The half of upstream's asynchronous trainer that trains."""

    def broadcast_to_vllm(self) -> None:
        super().broadcast_to_vllm()  # upstream's calls `super()`, so it must not be sent by value

    def init_checkpoint_states(self) -> dict[str, Any]:
        states = super().init_checkpoint_states()
        # the other half gets only the data loader's state
        states["data_loader_state_dict"][STEP] = states["global_step"]
        return states


class AsyncGenerator(plain_class(ppo_trainer_async.GenerateSamplesActor)):  # type: ignore[misc]
    """The half of upstream's asynchronous trainer that draws prompts and evaluates."""

    samples_generator: OrderedSamples

    def __init__(self, pretrain: str, strategy: Any, *args: Any, **kwargs: Any):
        replace_names(TRAINER)
        torch.manual_seed(strategy.args.train.seed)
        super().__init__(pretrain, strategy, *args, **kwargs)
        self.samples_generator = OrderedSamples.like(self.samples_generator)
        self.max_steps = optimizer_steps(self)

    def get_max_steps(self) -> int:
        refuse_prompts(self)
        hold_place(self.prompts_dataloader, self.args.js.changed or ())
        return self.max_steps

    def load_state_dict(self, state_dict: dict) -> None:
        self.samples_generator.resume(steps=state_dict.pop(STEP))
        self._last_eval_step = 0  # a resumed run does not evaluate before its first step
        super().load_state_dict(state_dict)

    def _should_eval(self, global_step: int) -> bool:
        first = self._last_eval_step < 0 and evaluates(self)
        return first or super()._should_eval(global_step)

    def fit(self, episode: int, total_consumed_prompts: int) -> None:
        self.samples_generator.resume(drawn=total_consumed_prompts)
        super().fit(episode, total_consumed_prompts)


# --- their functions ---------------------------------------------------------------------------


def draw_over_steps(wandb: Any) -> None:
    """Sets the x-axes in W&B: for our curves, and the one upstream logs for evaluations."""
    wandb.define_metric("js/*", step_metric="train/global_step", step_sync=True)
    wandb.define_metric("eval/global_step")
    wandb.define_metric("eval/*", step_metric="eval/global_step", step_sync=True)


def say_evaluation(step: int, metrics: dict[str, Any]) -> None:
    """Prints one line on an evaluation: the shares of right answers, by data set."""
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
    """Raises BadInput for prompts that cannot be trained on, as the data sets have found.

    Upstream's first call runs it: if a constructor raised the error, Ray would keep only its text.
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
    """How long a run is, from a trainer that has the prompts."""
    prompts = len(trainer.prompts_dataloader.dataset)
    return Schedule.of(prompts, lambda flag: attrgetter(flag)(trainer.args))


def metrics_by_datasource(loader: Any, samples: list[Any], responses: int) -> dict[str, float]:
    """Upstream's metrics of an evaluation, with every prompt under its own datasource.

    `samples` are in the order of the data set. Upstream looks the datasource up by the prompt's
    text, so a prompt in two data sets would count only for the second. Rows without a datasource
    are "default", even beside rows with one.
    """
    numbered = [
        ([datasource or "default"], [str(number)], None, None)
        for number, datasource in enumerate(loader.dataset.datasources)
    ]
    samples = [copy.copy(sample) for sample in samples]
    for place, sample in enumerate(samples):
        sample.prompts = [str(place // responses)]
    metrics: dict[str, float] = compute_eval_metrics(numbered, samples, responses)
    rewards = torch.tensor([sample.rewards for sample in samples]).double()
    of_prompts = rewards.reshape(-1, responses).mean(1).tolist()
    for source in {datasource for (datasource,), *_ in numbered}:
        means = [
            mean
            for mean, (datasources, *_) in zip(of_prompts, numbered, strict=True)
            if datasources == [source]
        ]
        metrics |= pass1_interval(source, means)
    return metrics


def pass1_interval(datasource: str, of_prompts: list[float]) -> dict[str, float]:
    """The 95 % interval of the mean of prompts' mean rewards; {} if a prompt's mean is missing."""
    if not all(map(math.isfinite, of_prompts)):
        return {}
    in_range = min(of_prompts) >= 0 and max(of_prompts) <= 1
    interval = share_interval(of_prompts) if in_range else mean_interval(of_prompts)
    ends = {"low": interval.low, "high": interval.high}
    return {
        f"eval_{datasource}_pass1_{end}": value for end, value in ends.items() if value is not None
    }


def nothing_trained(args: argparse.Namespace) -> str:
    """The error message of a run whose filter left nothing to train on."""
    low, high = args.algo.dynamic_filtering_range
    return (
        f"no step was trained, and no model is saved: in an episode fewer than "
        f"--rollout.batch_size {args.rollout.batch_size} prompts have rewards that differ, with a "
        f"mean inside --algo.dynamic_filtering_range {low:g} {high:g}"
    )


def hold_place(loader: Any, changed: Collection[str]) -> None:
    """Ties the loader's place in the data to these prompts, which a resumed run must have.

    If the prompts differ and `changed` (`--js.changed`) names a flag of the data, they begin at the
    first. Otherwise `load_state_dict` raises BadInput: their first rows would be skipped.
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
    """The most optimizer steps that the run can have; the learning rate schedule needs it."""
    schedule = schedule_of(trainer)
    return schedule.rollouts * schedule.updates
