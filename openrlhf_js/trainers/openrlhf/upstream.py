"""The names of OpenRLHF, Ray and DeepSpeed that the plug-in relies on, checked before a run.

When a release of OpenRLHF changes one of them, the run stops with the name that is missing,
instead of training something else than was asked for. It was run on CPUs with vLLM 0.29.0 and
transformers 5.15, as OpenRLHF pins them, and on a GPU with 0.26.0 and 5.17.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

WORKS_WITH = "openrlhf 0.11.2"


class BadInput(ValueError):
    """The user's flags or files cannot be run. One problem per line: what came, what to do."""


class UpstreamMismatch(RuntimeError):
    """The installed OpenRLHF lacks something that the plug-in relies on."""


class BadReward(ValueError):
    """A response came back without a reward that can be trained on."""


class ProcessDied(RuntimeError):
    """A process of the run died: which one, and during what."""


# module -> name -> the first parameters, in upstream's order ("": the name must exist)
Names = dict[str, dict[str, str]]

ACTOR = "__ray_metadata__.modified_class.__ray_actor_class__"  # what `plain_class` reads

RELIED_ON: Names = {
    "openrlhf.cli.train_ppo_ray": {
        "train": "args",
        "ray": "",
        "RayActorGroup": "num_nodes num_gpus_per_node ray_actor_type",
        "create_vllm_engines": "num_engines",
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
        "get_llm_for_sequence_regression": "",
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
    "openrlhf.utils.deepspeed": {"DeepspeedStrategy.load_ckpt": "self model load_dir"},
    "deepspeed.runtime.engine": {
        "DeepSpeedEngine.get_global_grad_norm": "self",
        "DeepSpeedEngine.set_gradient_accumulation_boundary": "self is_boundary",
    },
    "openrlhf.trainer.ppo_trainer": {
        "RemoteExperienceMaker": "",
        "PromptDataset": "dataset tokenizer strategy input_template",
        "PromptDataset.__getitem__": "self idx",
        "compute_eval_metrics": "eval_dataloader samples_list n_samples_per_prompt",
        "prepare_datasets": "strategy tokenizer",
        "blending_datasets": "datasets probabilities strategy seed max_count",
        "AdaptiveKLController": "init_kl_coef target horizon",
        "SamplesGenerator": "",
        f"PPOTrainer.{ACTOR}.evaluate": "self global_step",
        f"PPOTrainer.{ACTOR}.fit": "self global_step",
        f"PPOTrainer.{ACTOR}.get_max_steps": "self",
        "BasePPOTrainer.train_step": "self rollout_samples global_step",
        "BasePPOTrainer.ppo_train": "self global_steps",
        "BasePPOTrainer.broadcast_to_vllm": "self",
        "BasePPOTrainer.save_logs_and_checkpoints": "self global_step logs_dict client_states",
        "BasePPOTrainer.save_best_checkpoint": "self eval_metrics global_step client_states",
        "BasePPOTrainer.init_checkpoint_states": "self",
    },
    "openrlhf.datasets.prompts_dataset": {
        "preprocess_data": "data input_template input_key label_key apply_chat_template",
    },
    "openrlhf.trainer.ppo_trainer_async": {
        "compute_eval_metrics": "eval_dataloader samples_list n_samples_per_prompt",
        f"TrainingActor.{ACTOR}.fit": "self global_step",
        f"GenerateSamplesActor.{ACTOR}.fit": "self episode total_consumed_prompts",
        f"GenerateSamplesActor.{ACTOR}.get_max_steps": "self",
        f"GenerateSamplesActor.{ACTOR}.load_state_dict": "self state_dict",
        f"GenerateSamplesActor.{ACTOR}._should_eval": "self global_step",
        "prepare_datasets": "strategy tokenizer",
        "SamplesGenerator": "",
    },
    "openrlhf.trainer.ppo_utils.samples_generator": {
        "SamplesGenerator.generate_samples": "self",
        "SamplesGenerator.generate_eval_samples": "self",
        "SamplesGenerator._generate_vllm": "self dataloader_iter num_prompts dynamic_filtering",
        "SamplesGenerator._dispatch_prompts_to_vllm": "self prompts labels",
        "SamplesGenerator._process_response_into_experience": "self response",
    },
    "openrlhf.trainer.ppo_utils.experience_maker": {
        "apply_length_penalties": "experiences args",
        "RemoteExperienceMaker.split_rollout_samples": "self rollout_samples",
        "RemoteExperienceMaker.compute_advantages_and_returns": "self experiences",
    },
    "openrlhf.models.utils": {"compute_reward": "r kl_coef kl action_mask reward_clip_range"},
    "openrlhf.models": {"get_llm_for_sequence_regression": "model_name_or_path model_type"},
    "openrlhf.trainer.ray.launcher": {"get_llm_for_sequence_regression": ""},
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
        "SingleTurnAgentExecutor._fetch_rewards_via_func": (
            "self queries_list prompts_list labels_list"
        ),
        "SingleTurnAgentExecutor._fetch_rewards_via_http": (
            "self queries_list prompts_list labels_list"
        ),
    },
}

# what the replacements in baseline_research.on_cpu.stand_ins stand in for
RELIED_ON_FOR_CPU: Names = {
    "openrlhf.utils.deepspeed.deepspeed": {
        "init_device_mesh": "device_type mesh_shape",
        "DeepspeedStrategy.get_ds_train_config": "self optim_dict",
    },
    "openrlhf.utils.distributed_util": {
        "stateless_init_process_group": "master_address master_port rank world_size device",
    },
    "openrlhf.trainer.ray.vllm_worker_wrap": {
        "WorkerWrap.update_weight": "self name dtype shape empty_cache",
    },
    "deepspeed.comm.torch": {"build_shm_op": ""},
    "torch.distributed.distributed_c10d": {"ProcessGroupGloo._Options": ""},
    "openrlhf.models.ring_attn_utils": {"index_first_axis": "", "unpad_input": "", "pad_input": ""},
    "transformers.modeling_flash_attention_utils": {"_pad_input": "", "_unpad_input": ""},
    "transformers.processing_utils": {"ProcessorMixin.get_attributes": ""},
    "transformers.models.qwen2_vl.image_processing_pil_qwen2_vl": {
        "smart_resize": "height width factor min_pixels max_pixels",
    },
    "vllm.config.model": {"ModelConfig.is_chunked_prefill_supported": ""},
    "vllm.model_executor.layers.utils": {"dispatch_cpu_unquantized_gemm": "layer remove_weight"},
    "vllm.distributed.utils": {
        "StatelessProcessGroup.create": "host port rank world_size",
        "StatelessProcessGroup.broadcast_obj": "self obj src",
    },
}

RELIED_ON_FOR_REWARD_TRAINING: Names = {
    "openrlhf.cli.train_rm": {"train": "args", "RewardModelTrainer": ""},
    "openrlhf.utils.deepspeed": {
        "DeepspeedStrategy.setup_dataloader": "self replay_buffer batch_size pin_memory shuffle",
        "DeepspeedStrategy.prepare": "self args",
        "DeepspeedStrategy.save_model": "self model tokenizer output_dir",
        "DeepspeedStrategy._unwrap_model": "self model",
    },
    "openrlhf.trainer.rm_trainer": {
        "RewardModelTrainer.fit": "self args consumed_samples num_update_steps_per_epoch",
        "RewardModelTrainer.save_logs_and_checkpoints": "self args global_step",
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
RELIED_ON_FOR_REWARD_TRAINING_ON_CPU = {
    module: names
    for module, names in RELIED_ON_FOR_CPU.items()
    if not module.startswith(("vllm.", "openrlhf.trainer.ray."))
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
    original = inspect.unwrap(replaced)  # a replacement of ours keeps the original's signature
    expected = tuple(parameters.split())
    actual = tuple(inspect.signature(original).parameters)
    if actual[: len(expected)] != expected:
        return f"{module_name}.{name} takes {actual}, not {expected}"
    return None


def check(tables: Sequence[Names]) -> None:
    """Raises UpstreamMismatch that names everything that is missing and the version that works."""
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
