"""What the plug-in replaces in OpenRLHF (`REPLACED`), and the names that it relies on.

Both are checked before a run. If a release of OpenRLHF changes one of them, the run stops and
reports the missing name, instead of silently training something else. The plug-in was run on CPUs
with vLLM 0.29.0 and transformers 5.15, as OpenRLHF pins them, and on a GPU with 0.26.0 and 5.17.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, NamedTuple

WORKS_WITH = "openrlhf 0.11.2"


class BadInput(ValueError):
    """The user's flags or files cannot be used. One problem per line: what came, what to do."""


class UpstreamMismatch(RuntimeError):
    """The installed OpenRLHF lacks something that the plug-in relies on."""


class BadReward(ValueError):
    """A response came back without a reward that can be trained on."""


class ProcessDied(RuntimeError):
    """A process of the run died. The message says which one, and in which phase."""


ACTOR = "__ray_metadata__.modified_class.__ray_actor_class__"  # what `plain_class` reads


# --- what is replaced ---------------------------------------------------------------------------

# Processes that look the names up
DRIVER = "driver"
TRAINER = "trainer"  # the actor that has the prompts or makes experience
LEARNER = "learner"  # the actors with the weights of policy and critic
REWARD_TRAINING = "reward training"


class Replacement(NamedTuple):
    """A name of OpenRLHF that we replace with a part of ours."""

    module: str
    name: str
    parameters: str
    """The parameters that upstream's must begin with, in this order."""
    ours: str
    """The module and the name of our part."""
    read_by: str
    """The process that looks the name up."""
    why: str
    ends_when: str
    """The change of OpenRLHF that makes this row superfluous."""
    ray_options: Mapping[str, Any] | None = None
    """The options of an actor in Ray; None if it is not an actor."""
    of_run: bool = False
    """Whether `ours` is a function that makes the part for a run's arguments."""

    @property
    def path(self) -> str:
        """The path of what has the parameters: the name or, for an actor, the class inside it."""
        return self.name if self.ray_options is None else f"{self.name}.{ACTOR}"


PROMPTS = "strategy.setup_dataloader, or the trainer, takes the data set as an argument"
ACTORS = "`train` takes the class of the actor as an argument"
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})

REPLACED = (
    # the actors of a run, which `train` starts
    Replacement(
        module="openrlhf.trainer.ppo_trainer",
        name="PPOTrainer",
        parameters="pretrain strategy actor_model_group critic_model_group reward_model_group",
        ours="openrlhf_js.trainers.openrlhf.trainer.ShrinkageTrainer",
        read_by=DRIVER,
        why="makes experience with our estimators, and saves what they remember",
        ends_when=ACTORS,
        ray_options=NO_OPTIONS,
    ),
    Replacement(
        module="openrlhf.trainer.ppo_trainer_async",
        name="TrainingActor",
        parameters="pretrain strategy actor_model_group critic_model_group reward_model_group",
        ours="openrlhf_js.trainers.openrlhf.trainer.AsyncTrainer",
        read_by=DRIVER,
        why="makes experience with our estimators, and saves what they remember",
        ends_when=ACTORS,
        ray_options=NO_OPTIONS,
    ),
    Replacement(
        module="openrlhf.trainer.ppo_trainer_async",
        name="GenerateSamplesActor",
        parameters="pretrain strategy vllm_engines",
        ours="openrlhf_js.trainers.openrlhf.trainer.AsyncGenerator",
        read_by=DRIVER,
        why="numbers the prompts, ends after --js.max_steps, and resumes at its place in them",
        ends_when=ACTORS,
        ray_options=NO_OPTIONS,
    ),
    Replacement(
        module="openrlhf.trainer.ray.vllm_engine",
        name="RolloutRayActor",
        parameters="args bundle_indices agent_func_path remote_rm_url",
        ours="openrlhf_js.trainers.openrlhf.rollout.rollout_class",
        read_by=DRIVER,
        why="seeds responses; no missing or failed reward is trained on; ends with its engine",
        ends_when="create_vllm_engines takes the class of the actor as an argument",
        ray_options=NO_OPTIONS,
        of_run=True,
    ),
    Replacement(
        module="openrlhf.cli.train_ppo_ray",
        name="PolicyModelActor",
        parameters="world_size rank master_addr master_port",
        ours="openrlhf_js.trainers.openrlhf.learner.actors.OurPolicy",
        read_by=DRIVER,
        why="seeds each step, resumes with the flags of this run, keeps --ckpt.max_num models",
        ends_when=ACTORS,
        ray_options=MappingProxyType({"num_gpus": 1}),
    ),
    Replacement(
        module="openrlhf.cli.train_ppo_ray",
        name="CriticModelActor",
        parameters="world_size rank master_addr master_port",
        ours="openrlhf_js.trainers.openrlhf.learner.actors.OurCritic",
        read_by=DRIVER,
        why="seeds each step, and resumes with the flags of this run",
        ends_when=ACTORS,
        ray_options=MappingProxyType({"num_gpus": 1}),
    ),
    Replacement(
        module="openrlhf.trainer.ray.launcher",
        name="get_llm_for_sequence_regression",
        parameters="model_name_or_path model_type",
        ours="openrlhf_js.trainers.openrlhf.learner.actors.load_with_scale",
        read_by=DRIVER,  # Ray sends the reward model's actor with its methods' globals
        why="mean and std of a reward model are uninitialised memory under transformers 5",
        ends_when="mean and std are in the checkpoint, or read after the model is built",
    ),
    # in the trainer
    Replacement(
        module="openrlhf.trainer.ppo_trainer",
        name="PromptDataset",
        parameters="dataset tokenizer strategy input_template",
        ours="openrlhf_js.trainers.openrlhf.prompts.CheckedPrompts",
        read_by=TRAINER,
        why="prompts that are too long are left out, and labels reach the grader unchanged",
        ends_when=PROMPTS,
    ),
    Replacement(
        module="openrlhf.trainer.ppo_trainer",
        name="blending_datasets",
        parameters="datasets probabilities strategy seed max_count",
        ours="openrlhf_js.trainers.openrlhf.data_files.blend",
        read_by=TRAINER,
        why="files are read as the checks before the run have read them",
        ends_when=PROMPTS,
    ),
    Replacement(
        module="openrlhf.trainer.ppo_trainer",
        name="compute_eval_metrics",
        parameters="eval_dataloader samples_list n_samples_per_prompt",
        ours="openrlhf_js.trainers.openrlhf.trainer.metrics_by_datasource",
        read_by=TRAINER,
        why="two data sets with the same prompt count as one; no interval",
        ends_when="a prompt's datasource is found by its place; `evaluate` calls a method for it",
    ),
    Replacement(
        module="openrlhf.trainer.ppo_trainer_async",
        name="compute_eval_metrics",
        parameters="eval_dataloader samples_list n_samples_per_prompt",
        ours="openrlhf_js.trainers.openrlhf.trainer.metrics_by_datasource",
        read_by=TRAINER,
        why="two data sets with the same prompt count as one; no interval",
        ends_when="a prompt's datasource is found by its place; `_run_eval` calls a method for it",
    ),
    # where the weights are
    Replacement(
        module="openrlhf.trainer.ray.ppo_actor",
        name="ActorPPOTrainer",
        parameters="strategy actor ema_model actor_optim actor_scheduler",
        ours="openrlhf_js.trainers.openrlhf.learner.actors.OurPolicyTrainer",
        read_by=LEARNER,
        why="the loss's denominator, dynamic batches, the gradient's variance, merged adapters",
        ends_when="PolicyModelActor has its trainer's class as an attribute",
    ),
    Replacement(
        module="openrlhf.trainer.ray.ppo_critic",
        name="CriticPPOTrainer",
        parameters="strategy critic critic_optim critic_scheduler",
        ours="openrlhf_js.trainers.openrlhf.learner.actors.OurCriticTrainer",
        read_by=LEARNER,
        why="with ZeRO 1 or 2 a dynamic batch steps on its last micro-batch alone",
        ends_when="dynamic batches call set_gradient_accumulation_boundary",
    ),
    Replacement(
        module="openrlhf.trainer.ray.ppo_critic",
        name="get_llm_for_sequence_regression",
        parameters="model_name_or_path model_type",
        ours="openrlhf_js.trainers.openrlhf.learner.actors.load_with_scale",
        read_by=LEARNER,
        why="mean and std of a critic are uninitialised memory under transformers 5",
        ends_when="mean and std are in the checkpoint, or read after the model is built",
    ),
    # the training of a reward model
    Replacement(
        module="openrlhf.utils.deepspeed",
        name="DeepspeedStrategy",
        parameters="seed full_determinism max_norm micro_train_batch_size train_batch_size",
        ours="openrlhf_js.trainers.openrlhf.learner.reward_model.RewardStrategy",
        read_by=REWARD_TRAINING,
        why="the learning rate ends too early, and an adapter is saved without its value head",
        ends_when="`train` takes the strategy, or counts updates over all epochs and saves heads",
    ),
    Replacement(
        module="openrlhf.cli.train_rm",
        name="RewardModelTrainer",
        parameters="model strategy optim train_dataloader eval_dataloader scheduler",
        ours="openrlhf_js.trainers.openrlhf.learner.reward_model.RewardTrainer",
        read_by=REWARD_TRAINING,
        why="a resumed run leaves out pairs, and the last update is not evaluated",
        ends_when="`fit` resumes at the next pair, and evaluates at the end",
    ),
)


def replace_names(*processes: str, args: Any = None) -> None:
    """Puts our parts where OpenRLHF, in this process, looks for its own.

    Each process needs its own call. What Ray sends by value has the driver's globals, so the driver
    also replaces the names that its actors look up.

    Args:
        processes: the processes whose names are replaced (`DRIVER`, `TRAINER`, ...).
        args: the run's nested arguments, for the parts that are made for each run.
    """
    rows = [row for row in REPLACED if row.read_by in processes]
    parts = [
        _part(row, args) for row in rows
    ]  # all before the first: parts inherit from upstream's
    for row, part in zip(rows, parts, strict=True):
        setattr(importlib.import_module(row.module), row.name, part)


def _part(row: Replacement, args: Any) -> Any:
    module_name, _, name = row.ours.rpartition(".")
    part = getattr(importlib.import_module(module_name), name)
    if row.of_run:
        part = part(args)
    if row.ray_options is None:
        return part
    import ray

    return ray.remote(**row.ray_options)(part) if row.ray_options else ray.remote(part)


# --- what is relied on --------------------------------------------------------------------------

# module -> name -> the first parameters, in upstream's order ("": the name must exist)
Names = dict[str, dict[str, str]]


def replaced_names(*processes: str) -> Names:
    """The rows of `REPLACED` that these processes read, as a table of what is relied on."""
    names: Names = {}
    for row in REPLACED:
        if row.read_by in processes:
            names.setdefault(row.module, {})[row.path] = row.parameters
    return names


RELIED_ON: Names = {
    "openrlhf.cli.train_ppo_ray": {
        "train": "args",
        f"PolicyModelActor.{ACTOR}.fit": "self kl_ctl",
        f"PolicyModelActor.{ACTOR}.init_model_from_pretrained": "self strategy pretrain",
        f"PolicyModelActor.{ACTOR}.save_checkpoint": "self tag client_states",
        f"CriticModelActor.{ACTOR}.fit": "self",
        f"CriticModelActor.{ACTOR}.init_model_from_pretrained": "self strategy pretrain",
    },
    "openrlhf.trainer.ray.ppo_actor": {
        "ActorPPOTrainer.training_step": "self experience kl_ctl step loss_batch_info",
        "ActorPPOTrainer.ppo_train": "self kl_ctl",
        "ActorPPOTrainer.broadcast_to_vllm": "self",
    },
    "openrlhf.trainer.ray.ppo_critic": {
        "CriticPPOTrainer.training_step": "self experience step loss_batch_info",
    },
    "openrlhf.trainer.ppo_utils": {
        "NaiveReplayBuffer": "sample_batch_size limit cpu_offload packing_samples dynamic_batch",
        "NaiveReplayBuffer.__getitem__": "self idx",
        "NaiveReplayBuffer.__len__": "self",
        "NaiveReplayBuffer.collate_fn": "self batch",
        "NaiveReplayBuffer.setup_dynamic_batch": "self strategy",
    },
    "openrlhf.utils": {"get_tokenizer": "pretrain model"},
    "openrlhf.utils.loss_utils": {
        "get_loss_batch_info": "strategy loss_mask replay_buffer step dynamic_batch",
    },
    "openrlhf.utils.deepspeed": {
        "DeepspeedStrategy.load_ckpt": "self model load_dir",
        "DeepspeedStrategy._read_ckpt_metric": "self ckpt_dir",
    },
    "deepspeed.runtime.engine": {
        "DeepSpeedEngine.get_global_grad_norm": "self",
        "DeepSpeedEngine.set_gradient_accumulation_boundary": "self is_boundary",
    },
    "openrlhf.trainer.ppo_trainer": {
        "PromptDataset.__getitem__": "self idx",
        "prepare_datasets": "strategy tokenizer",
        "AdaptiveKLController": "init_kl_coef target horizon",
        f"PPOTrainer.{ACTOR}.evaluate": "self global_step",
        f"PPOTrainer.{ACTOR}.fit": "self global_step",
        f"PPOTrainer.{ACTOR}.get_max_steps": "self",
        "BasePPOTrainer": (
            "strategy actor_model_group critic_model_group reward_model_group "
            "reference_model_group vllm_engines tokenizer"
        ),
        "BasePPOTrainer.train_step": "self rollout_samples global_step",
        "BasePPOTrainer.ppo_train": "self global_steps",
        "BasePPOTrainer.broadcast_to_vllm": "self",
        "BasePPOTrainer.save_logs_and_checkpoints": "self global_step logs_dict client_states",
        "BasePPOTrainer.save_best_checkpoint": "self eval_metrics global_step client_states",
        "BasePPOTrainer.init_checkpoint_states": "self",
        "BasePPOTrainer.restore_best_checkpoint_state": "self checkpoint_states",
    },
    "openrlhf.datasets.prompts_dataset": {
        "preprocess_data": "data input_template input_key label_key apply_chat_template",
    },
    "openrlhf.trainer.ppo_trainer_async": {
        f"TrainingActor.{ACTOR}.fit": "self global_step",
        f"GenerateSamplesActor.{ACTOR}.fit": "self episode total_consumed_prompts",
        f"GenerateSamplesActor.{ACTOR}.get_max_steps": "self",
        f"GenerateSamplesActor.{ACTOR}.load_state_dict": "self state_dict",
        f"GenerateSamplesActor.{ACTOR}._should_eval": "self global_step",
        "prepare_datasets": "strategy tokenizer",
    },
    "openrlhf.trainer.ppo_utils.samples_generator": {
        "SamplesGenerator": ("strategy prompts_dataloader eval_dataloader tokenizer vllm_engines"),
        "SamplesGenerator.generate_samples": "self",
        "SamplesGenerator.generate_eval_samples": "self",
        "SamplesGenerator._generate_vllm": "self dataloader_iter num_prompts dynamic_filtering",
        "SamplesGenerator._dispatch_prompts_to_vllm": "self prompts labels",
        "SamplesGenerator._process_response_into_experience": "self response",
    },
    "openrlhf.trainer.ppo_utils.experience_maker": {
        "apply_length_penalties": "experiences args",
        "RemoteExperienceMaker": (
            "actor_model_group critic_model_group reward_model_group initial_model_group "
            "kl_controller strategy tokenizer"
        ),
        "RemoteExperienceMaker.split_rollout_samples": "self rollout_samples",
        "RemoteExperienceMaker.compute_advantages_and_returns": "self experiences",
    },
    "openrlhf.models.utils": {"compute_reward": "r kl_coef kl action_mask reward_clip_range"},
    "openrlhf.models": {"get_llm_for_sequence_regression": "model_name_or_path model_type"},
    "openrlhf.trainer.ray.vllm_engine": {
        f"RolloutRayActor.{ACTOR}.generate_responses": "self prompt label sampling_params",
        f"RolloutRayActor.{ACTOR}.generate": "self prompt_token_ids sampling_params",
    },
    "vllm": {"SamplingParams.logit_bias": ""},
    "vllm.v1.engine.async_llm": {"AsyncLLM.errored": ""},
    "vllm.v1.executor.ray_utils": {"RayWorkerWrapper": ""},
    "vllm.v1.executor.ray_executor_v2": {"RayWorkerProc": ""},
    "ray._private.state": {"actors": "actor_id job_id actor_state_name"},
    "ray.experimental.internal_kv": {
        "_internal_kv_put": "key value overwrite namespace",
        "_internal_kv_get": "key namespace",
        "_internal_kv_list": "prefix namespace",
    },
    "deepspeed": {"zero.GatheredParameters": "params"},
    "peft.peft_model": {
        "PeftModel.get_base_model": "self",
        "PeftModel.print_trainable_parameters": "self",
    },
    "peft.tuners.lora": {"LoraLayer": "", "Linear.get_delta_weight": "self adapter"},
    "openrlhf.utils.agent": {
        "AgentExecutorBase.execute": (
            "self prompt label sampling_params max_length hf_tokenizer llm_engine images"
        ),
        "SingleTurnAgentExecutor._fetch_rewards_via_func": (
            "self queries_list prompts_list labels_list"
        ),
        "SingleTurnAgentExecutor._fetch_rewards_via_http": (
            "self queries_list prompts_list labels_list"
        ),
    },
}

RELIED_ON_FOR_REWARD_TRAINING: Names = {
    "openrlhf.cli.train_rm": {"train": "args"},
    "openrlhf.utils.deepspeed": {
        "DeepspeedStrategy.setup_dataloader": "self replay_buffer batch_size pin_memory shuffle",
        "DeepspeedStrategy.prepare": "self args",
        "DeepspeedStrategy.save_model": "self model tokenizer output_dir",
        "DeepspeedStrategy._unwrap_model": "self model",
    },
    "openrlhf.trainer.rm_trainer": {
        "RewardModelTrainer.fit": "self args consumed_samples num_update_steps_per_epoch",
        "RewardModelTrainer.save_logs_and_checkpoints": "self args global_step",
        "RewardModelTrainer.evaluate": "self eval_dataloader steps",
    },
    "deepspeed": {"DeepSpeedEngine._consolidated_16bit_state_dict": "self"},
    "peft.tuners.lora": {"LoraLayer": "", "Linear.get_delta_weight": "self adapter"},
    "openrlhf.datasets.utils": {
        "blending_datasets": "datasets probabilities strategy seed max_count",
    },
    "openrlhf.datasets.reward_dataset": {
        "preprocess_data": (
            "data input_template prompt_key chosen_key rejected_key apply_chat_template"
        ),
    },
}


def plain_class(actor_class: Any) -> type:
    """The class that `@ray.remote` decorated; the decorated one cannot be subclassed."""
    return actor_class.__ray_metadata__.modified_class.__ray_actor_class__


def _problem(module_name: str, name: str, parameters: str) -> str | None:
    try:
        replaced: Any = importlib.import_module(module_name)
        for attribute in name.split("."):
            replaced = getattr(replaced, attribute)
    except (ImportError, AttributeError):
        return f"{module_name}.{name} is missing"
    if not parameters:
        return None
    original = inspect.unwrap(replaced)  # our replacement has the original's signature
    expected = tuple(parameters.split())
    actual = tuple(inspect.signature(original).parameters)
    if actual[: len(expected)] != expected:
        return f"{module_name}.{name} takes {actual}, not {expected}"
    return None


def check(tables: Sequence[Names]) -> None:
    """Raises an UpstreamMismatch that lists everything missing and the version that works."""
    problems = []
    for table in tables:
        for module_name, names in table.items():
            for name, parameters in names.items():
                problem = _problem(module_name, name, parameters)
                if problem:
                    problems.append(problem)
    if problems:
        raise UpstreamMismatch(
            f"openrlhf {version('openrlhf')} with ray {version('ray')} does not fit this version "
            f"of openrlhf_js, which works with {WORKS_WITH}: " + "; ".join(problems)
        )
