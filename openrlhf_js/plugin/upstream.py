"""The names of OpenRLHF and Ray that the plug-in relies on, checked before a run starts.

One list, one place: when a released OpenRLHF changes what we lean on, the run stops with the name
that is missing instead of training something else than was asked.
"""

from __future__ import annotations

import importlib
import inspect
from importlib.metadata import version
from typing import Any

from openrlhf_js.plugin.errors import UpstreamMismatch

WORKS_WITH = "openrlhf 0.11.2"

# module -> name -> the parameters that we pass or override, in upstream's order
Names = dict[str, dict[str, tuple[str, ...]]]

RELIED_ON: Names = {
    "openrlhf.cli.train_ppo_ray": {
        "train": ("args",),
        "PolicyModelActor.__ray_metadata__.modified_class.__ray_actor_class__.fit": (
            "self",
            "kl_ctl",
        ),
        (
            "PolicyModelActor.__ray_metadata__.modified_class.__ray_actor_class__"
            ".init_model_from_pretrained"
        ): ("self", "strategy", "pretrain"),
        (
            "CriticModelActor.__ray_metadata__.modified_class.__ray_actor_class__"
            ".init_model_from_pretrained"
        ): ("self", "strategy", "pretrain"),
    },
    "openrlhf.trainer.ray.ppo_actor": {
        "ActorPPOTrainer.training_step": (
            "self",
            "experience",
            "kl_ctl",
            "step",
            "loss_batch_info",
        ),
        "ActorPPOTrainer.ppo_train": ("self", "kl_ctl"),
    },
    "openrlhf.trainer.ray.ppo_critic": {
        "get_llm_for_sequence_regression": (),
        "CriticPPOTrainer.training_step": ("self", "experience", "step", "loss_batch_info"),
    },
    "openrlhf.trainer.ppo_utils": {
        "NaiveReplayBuffer": (
            *("sample_batch_size", "limit", "cpu_offload", "packing_samples", "dynamic_batch"),
        ),
        "NaiveReplayBuffer.__getitem__": ("self", "idx"),
        "NaiveReplayBuffer.__len__": ("self",),
        "NaiveReplayBuffer.collate_fn": ("self", "batch"),
        "NaiveReplayBuffer.setup_dynamic_batch": ("self", "strategy"),
    },
    "deepspeed.runtime.engine": {
        "DeepSpeedEngine.get_global_grad_norm": ("self",),
        "DeepSpeedEngine.is_gradient_accumulation_boundary": ("self",),
        "DeepSpeedEngine.set_gradient_accumulation_boundary": ("self", "is_boundary"),
        "DeepSpeedEngine.step": ("self",),
        "DeepSpeedEngine.zero_optimization_stage": ("self",),
    },
    "openrlhf.trainer.ppo_trainer": {
        "RemoteExperienceMaker": (),
        "PromptDataset.__getitem__": ("self", "idx"),
        "prepare_datasets": ("strategy", "tokenizer"),
        "PPOTrainer.__ray_metadata__.modified_class.__ray_actor_class__": (),
        "BasePPOTrainer.train_step": ("self", "rollout_samples", "global_step"),
        "BasePPOTrainer.save_logs_and_checkpoints": (
            *("self", "global_step", "logs_dict", "client_states"),
        ),
        "BasePPOTrainer.save_best_checkpoint": (
            *("self", "eval_metrics", "global_step", "client_states"),
        ),
        "BasePPOTrainer.init_checkpoint_states": ("self",),
    },
    "openrlhf.trainer.ppo_trainer_async": {
        "TrainingActor.__ray_metadata__.modified_class.__ray_actor_class__": (),
        "GenerateSamplesActor.__ray_metadata__.modified_class.__ray_actor_class__": (),
        "prepare_datasets": ("strategy", "tokenizer"),
    },
    "openrlhf.trainer.ppo_utils.experience_maker": {
        "apply_length_penalties": ("experiences", "args"),
        "RemoteExperienceMaker.make_experience_batch": ("self", "rollout_samples"),
        "RemoteExperienceMaker.compute_advantages_and_returns": ("self", "experiences"),
    },
    "openrlhf.models": {
        "get_llm_for_sequence_regression": ("model_name_or_path", "model_type"),
    },
    "openrlhf.trainer.ray.launcher": {"get_llm_for_sequence_regression": ()},
    "openrlhf.trainer.ray.vllm_engine": {
        "RolloutRayActor.__ray_metadata__.modified_class.__ray_actor_class__.generate_responses": (
            "self",
            "prompt",
            "label",
            "sampling_params",
        ),
    },
    "openrlhf.utils.agent": {
        "SingleTurnAgentExecutor.execute": ("self", "prompt", "label", "sampling_params"),
        "SingleTurnAgentExecutor._fetch_rewards_via_func": (
            "self",
            "queries_list",
            "prompts_list",
            "labels_list",
        ),
        "SingleTurnAgentExecutor._fetch_rewards_via_http": (
            "self",
            "queries_list",
            "prompts_list",
            "labels_list",
        ),
    },
}

# what the CPU replacements stand in for (openrlhf_js.plugin.cpu)
RELIED_ON_FOR_CPU: Names = {
    "openrlhf.utils.deepspeed.deepspeed": {
        "init_device_mesh": ("device_type", "mesh_shape"),
        "DeepspeedStrategy.get_ds_train_config": ("self", "optim_dict"),
    },
    "openrlhf.utils.distributed_util": {
        "stateless_init_process_group": (
            "master_address",
            "master_port",
            "rank",
            "world_size",
            "device",
        ),
    },
    "openrlhf.trainer.ray.vllm_worker_wrap": {
        "WorkerWrap.update_weight": ("self", "name", "dtype", "shape", "empty_cache"),
    },
    "deepspeed.comm.torch": {"build_shm_op": ()},
    "torch.distributed.distributed_c10d": {"ProcessGroupGloo._Options": ()},
    "openrlhf.models.ring_attn_utils": {"index_first_axis": (), "unpad_input": (), "pad_input": ()},
    "transformers.modeling_flash_attention_utils": {"_pad_input": (), "_unpad_input": ()},
    "vllm.model_executor.layers.utils": {
        "dispatch_cpu_unquantized_gemm": ("layer", "remove_weight"),
    },
    "vllm.distributed.utils": {
        "StatelessProcessGroup.create": ("host", "port", "rank", "world_size"),
        "StatelessProcessGroup.broadcast_obj": ("self", "obj", "src"),
    },
}

# what the training of reward models relies on, and what of the above it needs without a GPU
RELIED_ON_FOR_REWARD_TRAINING: Names = {
    "openrlhf.cli.train_rm": {"train": ("args",)},
    "openrlhf.datasets.utils": {
        "blending_datasets": ("datasets", "probabilities", "strategy", "seed", "max_count"),
    },
    "openrlhf.datasets.reward_dataset": {
        "preprocess_data": (
            *("data", "input_template", "prompt_key", "chosen_key", "rejected_key"),
            "apply_chat_template",
        ),
    },
}
RELIED_ON_FOR_REWARD_TRAINING_ON_CPU = {
    module: names
    for module, names in RELIED_ON_FOR_CPU.items()
    if not module.startswith(("vllm.", "openrlhf.trainer.ray."))
}


def plain_class(actor_class: Any) -> type:
    """The class that `@ray.remote` was put on; the decorated one cannot be subclassed."""
    return actor_class.__ray_metadata__.modified_class.__ray_actor_class__


def _problem(module_name: str, name: str, parameters: tuple[str, ...]) -> str | None:
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return f"{module_name}.{name} is missing"
    if not parameters:
        return None
    replaced = inspect.unwrap(found)  # a replacement of ours keeps the original's signature
    actual = tuple(inspect.signature(replaced).parameters)
    if actual[: len(parameters)] != parameters:
        return f"{module_name}.{name} takes {actual}, not {parameters}"
    return None


def check(*tables: Names) -> None:
    """Makes sure that what the plug-in relies on is there, with the parameters it expects.

    Args:
        tables: `RELIED_ON`, and `RELIED_ON_FOR_CPU` on CPU.

    Raises:
        UpstreamMismatch: names everything that is missing and the versions that work.
    """
    problems = [
        problem
        for table in tables
        for module_name, names in table.items()
        for name, parameters in names.items()
        if (problem := _problem(module_name, name, parameters))
    ]
    if problems:
        raise UpstreamMismatch(
            f"openrlhf {version('openrlhf')} with ray {version('ray')} does not fit this version "
            f"of openrlhf_js, which works with {WORKS_WITH}: " + "; ".join(problems)
        )
