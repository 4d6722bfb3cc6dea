"""Older spellings of upstream's flags.

Up to OpenRLHF 0.10.1 the flags were flat (`--pretrain`); 0.10.2 gave them dotted names and kept no
alias. The tables are made from the released packages; tests/plugin/test_flags.py holds both sides
against them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Spellings(NamedTuple):
    """What becomes of the older flags of one program."""

    renamed: Mapping[str, str]  # old name -> new name, or several new names
    idle: Mapping[str, str]  # without effect by now -> why
    removed: Mapping[str, str]  # without successor -> what to do


# Old name -> new name, or two new names where one flag became two. The value passes unchanged.
OLD_FLAGS: dict[str, str] = {
    # Ray and vLLM
    "ref_num_nodes": "ref.num_nodes",
    "ref_num_gpus_per_node": "ref.num_gpus_per_node",
    "reward_num_nodes": "reward.num_nodes",
    "reward_num_gpus_per_node": "reward.num_gpus_per_node",
    "actor_num_nodes": "actor.num_nodes",
    "actor_num_gpus_per_node": "actor.num_gpus_per_node",
    "critic_num_nodes": "critic.num_nodes",
    "critic_num_gpus_per_node": "critic.num_gpus_per_node",
    "colocate_actor_ref": "train.colocate_actor_ref",
    "colocate_critic_reward": "train.colocate_critic_reward",
    "colocate_all_models": "train.colocate_all",
    "vllm_num_engines": "vllm.num_engines",
    "vllm_tensor_parallel_size": "vllm.tensor_parallel_size",
    "vllm_sync_backend": "vllm.sync_backend",
    "vllm_sync_with_ray": "vllm.sync_with_ray",
    "enable_prefix_caching": "vllm.enable_prefix_caching",
    "enforce_eager": "vllm.enforce_eager",
    "vllm_enable_sleep": "vllm.enable_sleep",
    "vllm_gpu_memory_utilization": "vllm.gpu_memory_utilization",
    "vllm_is_truncated_threshold": "algo.advantage.is_correction_threshold",
    "async_train": "train.async_enable",
    "async_queue_size": "train.async_queue_size",
    "partial_rollout": "train.partial_rollout_enable",
    # checkpoints and logs
    "eval_steps": "eval.steps",
    "save_steps": "ckpt.save_steps",
    "logging_steps": "logger.logging_steps",
    "ckpt_path": "ckpt.path",
    "save_path": "ckpt.output_dir",
    "save_hf_ckpt": "ckpt.save_hf",
    "disable_ds_ckpt": "ckpt.disable_ds",
    "max_ckpt_num": "ckpt.max_num",
    "max_ckpt_mem": "ckpt.max_mem",
    "load_checkpoint": "ckpt.load_enable",
    "best_metric_key": "ckpt.best_metric_key",
    "use_ds_universal_ckpt": "ds.use_universal_ckpt",
    "use_wandb": "logger.wandb.key",
    "wandb_org": "logger.wandb.org",
    "wandb_group": "logger.wandb.group",
    "wandb_project": "logger.wandb.project",
    "wandb_run_name": "logger.wandb.run_name",
    "use_tensorboard": "logger.tensorboard_dir",
    # DeepSpeed and memory
    "zero_stage": "ds.zero_stage",
    "zpg": "ds.zpg",
    "deepcompile": "ds.deepcompile",
    "param_dtype": "ds.param_dtype",
    "adam_offload": "ds.adam_offload",
    "attn_implementation": "ds.attn_implementation",
    "use_liger_kernel": "ds.use_liger_kernel",
    "grad_accum_dtype": "ds.grad_accum_dtype",
    "overlap_comm": "ds.overlap_comm",
    "deepspeed_enable_sleep": "ds.enable_sleep",
    "ds_tensor_parallel_size": "ds.tensor_parallel_size",
    "packing_samples": "ds.packing_samples",
    "load_in_4bit": "ds.load_in_4bit",
    "lora_rank": "ds.lora.rank",
    "lora_alpha": "ds.lora.alpha",
    "lora_dropout": "ds.lora.dropout",
    "target_modules": "ds.lora.target_modules",
    "ring_attn_size": "ds.ring_attn_size",
    "ring_head_stride": "ds.ring_attn_head_stride",
    "value_head_prefix": "ds.value_head_prefix",
    "gradient_checkpointing": "actor.gradient_checkpointing_enable",
    "gradient_checkpointing_use_reentrant": "actor.gradient_checkpointing_reentrant",
    "ref_reward_offload": "ref.offload reward.offload",
    # models and rewards
    "pretrain": "actor.model_name_or_path",
    "reward_pretrain": "reward.model_name_or_path",
    "critic_pretrain": "critic.model_name_or_path",
    "remote_rm_url": "reward.remote_url",
    "agent_func_path": "train.agent_func_path",
    "normalize_reward": "reward.normalize_enable",
    "reward_clip_range": "reward.clip_range",
    "overlong_buffer_len": "reward.overlong_buffer_len",
    "overlong_penalty_factor": "reward.overlong_penalty_factor",
    "stop_properly_penalty_coef": "reward.stop_properly_penalty_coef",
    # data
    "prompt_data": "data.prompt_dataset",
    "prompt_data_probs": "data.prompt_probs",
    "prompt_split": "data.prompt_split",
    "eval_dataset": "eval.dataset",
    "eval_split": "eval.split",
    "eval_temperature": "eval.temperature",
    "eval_n_samples_per_prompt": "eval.n_samples_per_prompt",
    "input_key": "data.input_key",
    "label_key": "data.label_key",
    "input_template": "data.input_template",
    "apply_chat_template": "data.apply_chat_template",
    "max_len": "data.max_len",
    "max_samples": "data.max_samples",
    "disable_fast_tokenizer": "data.disable_fast_tokenizer",
    "dataloader_num_workers": "data.dataloader_num_workers",
    "image_key": "data.image_key",
    "max_images_per_prompt": "data.max_images_per_prompt",
    "freeze_visual_encoder": "actor.freeze_visual_encoder",
    # rollout
    "rollout_batch_size": "rollout.batch_size",
    "micro_rollout_batch_size": "rollout.micro_batch_size",
    "vllm_generate_batch_size": "rollout.vllm_generate_batch_size",
    "rollout_max_tokens_per_gpu": "rollout.max_tokens_per_gpu",
    "max_new_tokens": "rollout.max_new_tokens",
    "n_samples_per_prompt": "rollout.n_samples_per_prompt",
    "temperature": "rollout.temperature",
    "top_p": "rollout.top_p",
    # training
    "train_batch_size": "train.batch_size",
    "micro_train_batch_size": "train.micro_batch_size",
    "train_max_tokens_per_gpu": "train.max_tokens_per_gpu",
    "use_dynamic_batch": "train.dynamic_batch_enable",
    "num_episodes": "train.num_episodes",
    "max_epochs": "train.max_epochs",
    "seed": "train.seed",
    "full_determinism": "train.full_determinism_enable",
    "enable_ema": "train.enable_ema",
    "ema_beta": "train.ema_beta",
    "actor_learning_rate": "actor.adam.lr",
    "critic_learning_rate": "critic.adam.lr",
    "adam_betas": "actor.adam.betas critic.adam.betas",
    "l2": "actor.adam.weight_decay critic.adam.weight_decay",
    "max_norm": "actor.max_norm critic.max_norm",
    "lr_scheduler": "actor.lr_scheduler critic.lr_scheduler",
    "lr_warmup_ratio": "actor.lr_warmup_ratio critic.lr_warmup_ratio",
    "freezing_actor_steps": "critic.freezing_steps",
    "save_value_network": "critic.save_value_network",
    # loss and advantage
    "advantage_estimator": "algo.advantage.estimator",
    "no_advantage_std_norm": "algo.advantage.no_std_norm",
    "lambd": "algo.advantage.lambd",
    "gamma": "algo.advantage.gamma",
    "init_kl_coef": "algo.kl.init_coef",
    "kl_target": "algo.kl.target",
    "kl_horizon": "algo.kl.horizon",
    "kl_estimator": "algo.kl.estimator",
    "use_kl_loss": "algo.kl.use_loss",
    "policy_loss_type": "actor.policy_loss_type",
    "eps_clip": "actor.eps_clip",
    "eps_clip_low_high": "actor.eps_clip_low_high",
    "dual_clip": "actor.dual_clip",
    "value_clip": "critic.value_clip",
    "aux_loss_coef": "actor.aux_loss_coef",
    "entropy_loss_coef": "actor.entropy_coef",
    "dynamic_filtering": "algo.dynamic_filtering_enable",
    "dynamic_filtering_reward_range": "algo.dynamic_filtering_range",
}

# The importance-sampling correction was a switch and a named scheme, flat up to 0.10.1 and dotted
# up to 0.11.1. Since 0.11.2 the scheme is spelled out as a level and a mode.
CORRECTION_SWITCHES = ("enable_vllm_is_correction", "algo.advantage.is_correction_enable")
CORRECTION_TYPES = ("vllm_is_correction_type", "algo.advantage.is_correction_type")
CORRECTION_SCHEMES: dict[str, tuple[str, str]] = {  # scheme -> level, mode
    "tis": ("token", "clip"),
    "icepop": ("token", "mask"),
    "seq-mask-tis": ("seq", "mask"),
}

# Switches without effect by now: the run goes on without them, and says so.
IDLE_FLAGS: dict[str, str] = {
    "actor_init_on_gpu": "it had no effect any more in 0.10.1",
    "perf": "it had no effect any more in 0.10.1",
    "bf16": "bf16 is the default; --ds.param_dtype chooses another type",
    "flash_attn": "flash attention is the default; --ds.attn_implementation chooses another",
}

# Flags whose effect is gone: to go on would be another run than the one that was asked for.
REMOVED_FLAGS: dict[str, str] = {
    "ptx_coef": "has no successor: there is no pre-training loss any more",
    "pretrain_data": "has no successor: there is no pre-training loss any more",
    "pretrain_data_probs": "has no successor: there is no pre-training loss any more",
    "pretrain_split": "has no successor: there is no pre-training loss any more",
    "use_kl_estimator_k3": "is now --algo.kl.estimator k3",
    "prompt_max_len": "has no successor: --data.max_len limits prompt and response together",
    "generate_max_len": "is now --rollout.max_new_tokens, with --data.max_len for prompt and "
    "response together",
}

POLICY = Spellings(OLD_FLAGS, IDLE_FLAGS, REMOVED_FLAGS)

# The program that trains reward models shares most of them.
_SHARED = (
    *("eval_steps", "save_steps", "logging_steps", "ckpt_path", "save_path", "save_hf_ckpt"),
    *("disable_ds_ckpt", "max_ckpt_num", "max_ckpt_mem", "load_checkpoint"),
    *("use_ds_universal_ckpt", "use_wandb", "wandb_org", "wandb_group", "wandb_project"),
    *("wandb_run_name", "use_tensorboard", "zero_stage", "zpg", "deepcompile", "param_dtype"),
    *("adam_offload", "attn_implementation", "grad_accum_dtype", "overlap_comm"),
    *("ds_tensor_parallel_size", "packing_samples", "load_in_4bit", "lora_rank", "lora_alpha"),
    *("lora_dropout", "target_modules", "ring_attn_size", "ring_head_stride"),
    *("value_head_prefix", "eval_dataset", "eval_split", "input_template", "apply_chat_template"),
    *("max_len", "max_samples", "disable_fast_tokenizer", "dataloader_num_workers"),
    *("train_batch_size", "micro_train_batch_size", "max_epochs", "seed", "full_determinism"),
)
REWARD_MODEL = Spellings(
    {name: OLD_FLAGS[name] for name in _SHARED}
    | {
        "pretrain": "model.model_name_or_path",
        "gradient_checkpointing": "model.gradient_checkpointing_enable",
        "gradient_checkpointing_use_reentrant": "model.gradient_checkpointing_reentrant",
        "aux_loss_coef": "model.aux_loss_coef",
        "compute_fp32_loss": "model.compute_fp32_loss_enable",
        "margin_loss": "model.margin_loss_enable",
        "loss": "model.loss_type",
        "learning_rate": "adam.lr",
        "adam_betas": "adam.betas",
        "l2": "adam.weight_decay",
        "dataset": "data.dataset",
        "dataset_probs": "data.dataset_probs",
        "dataset_split": "data.dataset_split",
        "prompt_key": "data.prompt_key",
        "chosen_key": "data.chosen_key",
        "rejected_key": "data.rejected_key",
        "tokenizer_chat_template": "data.tokenizer_chat_template",
    },
    {name: IDLE_FLAGS[name] for name in ("bf16", "flash_attn")},
    {},
)
