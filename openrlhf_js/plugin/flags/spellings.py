"""Old spellings of OpenRLHF's flags, and what they are today.

Up to OpenRLHF 0.10.1 the flags were flat (`--pretrain`); 0.10.2 gave them dotted names and kept no
alias. The tables come from the released packages; tests/plugin/test_flags.py checks both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Spellings(NamedTuple):
    """What becomes of the old flags of one program."""

    renamed: Mapping[str, str]  # old name -> new name, or several new names
    idle: Mapping[str, str]  # without effect by now -> why
    removed: Mapping[str, str]  # without successor -> what to do


# section of today's flags -> "old_name=new_name", or the name alone where it only got the section
_RENAMED = {
    "ref": (
        "ref_num_nodes=num_nodes ref_num_gpus_per_node=num_gpus_per_node ref_reward_offload=offload"
    ),
    "reward": (
        "reward_num_nodes=num_nodes reward_num_gpus_per_node=num_gpus_per_node "
        "ref_reward_offload=offload reward_pretrain=model_name_or_path remote_rm_url=remote_url "
        "normalize_reward=normalize_enable reward_clip_range=clip_range overlong_buffer_len "
        "overlong_penalty_factor stop_properly_penalty_coef"
    ),
    "actor": (
        "actor_num_nodes=num_nodes actor_num_gpus_per_node=num_gpus_per_node "
        "gradient_checkpointing=gradient_checkpointing_enable "
        "gradient_checkpointing_use_reentrant=gradient_checkpointing_reentrant "
        "pretrain=model_name_or_path freeze_visual_encoder max_norm lr_scheduler lr_warmup_ratio "
        "policy_loss_type eps_clip eps_clip_low_high dual_clip aux_loss_coef "
        "entropy_loss_coef=entropy_coef"
    ),
    "critic": (
        "critic_num_nodes=num_nodes critic_num_gpus_per_node=num_gpus_per_node "
        "critic_pretrain=model_name_or_path max_norm lr_scheduler lr_warmup_ratio "
        "freezing_actor_steps=freezing_steps save_value_network value_clip"
    ),
    "train": (
        "colocate_actor_ref colocate_critic_reward colocate_all_models=colocate_all "
        "async_train=async_enable async_queue_size partial_rollout=partial_rollout_enable "
        "agent_func_path train_batch_size=batch_size micro_train_batch_size=micro_batch_size "
        "train_max_tokens_per_gpu=max_tokens_per_gpu use_dynamic_batch=dynamic_batch_enable "
        "num_episodes max_epochs seed full_determinism=full_determinism_enable enable_ema ema_beta"
    ),
    "vllm": (
        "vllm_num_engines=num_engines vllm_tensor_parallel_size=tensor_parallel_size "
        "vllm_sync_backend=sync_backend vllm_sync_with_ray=sync_with_ray enable_prefix_caching "
        "enforce_eager vllm_enable_sleep=enable_sleep "
        "vllm_gpu_memory_utilization=gpu_memory_utilization"
    ),
    "algo.advantage": (
        "vllm_is_truncated_threshold=is_correction_threshold advantage_estimator=estimator "
        "no_advantage_std_norm=no_std_norm lambd gamma"
    ),
    "eval": (
        "eval_steps=steps eval_dataset=dataset eval_split=split eval_temperature=temperature "
        "eval_n_samples_per_prompt=n_samples_per_prompt"
    ),
    "ckpt": (
        "save_steps ckpt_path=path save_path=output_dir save_hf_ckpt=save_hf "
        "disable_ds_ckpt=disable_ds max_ckpt_num=max_num max_ckpt_mem=max_mem "
        "load_checkpoint=load_enable best_metric_key"
    ),
    "logger": "logging_steps use_tensorboard=tensorboard_dir",
    "ds": (
        "use_ds_universal_ckpt=use_universal_ckpt zero_stage zpg deepcompile param_dtype "
        "adam_offload attn_implementation use_liger_kernel grad_accum_dtype overlap_comm "
        "deepspeed_enable_sleep=enable_sleep ds_tensor_parallel_size=tensor_parallel_size "
        "packing_samples load_in_4bit ring_attn_size ring_head_stride=ring_attn_head_stride "
        "value_head_prefix"
    ),
    "logger.wandb": (
        "use_wandb=key wandb_org=org wandb_group=group wandb_project=project "
        "wandb_run_name=run_name"
    ),
    "ds.lora": "lora_rank=rank lora_alpha=alpha lora_dropout=dropout target_modules",
    "data": (
        "prompt_data=prompt_dataset prompt_data_probs=prompt_probs prompt_split input_key "
        "label_key input_template apply_chat_template max_len max_samples disable_fast_tokenizer "
        "dataloader_num_workers image_key max_images_per_prompt"
    ),
    "rollout": (
        "rollout_batch_size=batch_size micro_rollout_batch_size=micro_batch_size "
        "vllm_generate_batch_size rollout_max_tokens_per_gpu=max_tokens_per_gpu max_new_tokens "
        "n_samples_per_prompt temperature top_p"
    ),
    "actor.adam": "actor_learning_rate=lr adam_betas=betas l2=weight_decay",
    "critic.adam": "critic_learning_rate=lr adam_betas=betas l2=weight_decay",
    "algo.kl": (
        "init_kl_coef=init_coef kl_target=target kl_horizon=horizon kl_estimator=estimator "
        "use_kl_loss=use_loss"
    ),
    "algo": (
        "dynamic_filtering=dynamic_filtering_enable "
        "dynamic_filtering_reward_range=dynamic_filtering_range"
    ),
}


def _spelled(sections: Mapping[str, str]) -> dict[str, str]:
    spelled: dict[str, str] = {}
    for section, names in sections.items():
        for old, _, new in (name.partition("=") for name in names.split()):
            spelled[old] = f"{spelled.get(old, '')} {section}.{new or old}".strip()
    return spelled


OLD_FLAGS = _spelled(_RENAMED)  # old name -> new name, or two new names where one became two

# The importance-sampling correction was a switch and a named scheme, flat up to 0.10.1 and dotted
# up to 0.11.1. Since 0.11.2 the scheme is spelled out as a level and a mode.
CORRECTION_SWITCHES = ("enable_vllm_is_correction", "algo.advantage.is_correction_enable")
CORRECTION_TYPES = ("vllm_is_correction_type", "algo.advantage.is_correction_type")
CORRECTION_SCHEMES: dict[str, tuple[str, str]] = {  # scheme -> level, mode
    "tis": ("token", "clip"),
    "icepop": ("token", "mask"),
    "seq-mask-tis": ("seq", "mask"),
}

# Switches without effect by now, dropped with a notice.
IDLE_FLAGS: dict[str, str] = {
    "actor_init_on_gpu": "it had no effect any more in 0.10.1",
    "perf": "it had no effect any more in 0.10.1",
    "bf16": "bf16 is the default; --ds.param_dtype chooses another type",
    "flash_attn": "flash attention is the default; --ds.attn_implementation chooses another",
}

# Flags whose effect is gone: a run without it would not be the one that was asked for.
REMOVED_FLAGS: dict[str, str] = {
    **dict.fromkeys(
        ("ptx_coef", "pretrain_data", "pretrain_data_probs", "pretrain_split"),
        "has no successor: there is no pre-training loss any more",
    ),
    "use_kl_estimator_k3": "is now --algo.kl.estimator k3",
    "prompt_max_len": "has no successor: --data.max_len limits prompt and response together",
    "generate_max_len": "is now --rollout.max_new_tokens, with --data.max_len for prompt and "
    "response together",
}

POLICY = Spellings(OLD_FLAGS, IDLE_FLAGS, REMOVED_FLAGS)

# The program that trains reward models shares most of them.
_SHARED = (
    "eval_steps save_steps logging_steps ckpt_path save_path save_hf_ckpt disable_ds_ckpt "
    "max_ckpt_num max_ckpt_mem load_checkpoint use_ds_universal_ckpt use_wandb wandb_org "
    "wandb_group wandb_project wandb_run_name use_tensorboard zero_stage zpg deepcompile "
    "param_dtype adam_offload attn_implementation grad_accum_dtype overlap_comm "
    "ds_tensor_parallel_size packing_samples load_in_4bit lora_rank lora_alpha lora_dropout "
    "target_modules ring_attn_size ring_head_stride value_head_prefix eval_dataset eval_split "
    "input_template apply_chat_template max_len max_samples disable_fast_tokenizer "
    "dataloader_num_workers train_batch_size micro_train_batch_size max_epochs seed "
    "full_determinism"
)
_OF_REWARD_MODEL = {
    "model": (
        "pretrain=model_name_or_path gradient_checkpointing=gradient_checkpointing_enable "
        "gradient_checkpointing_use_reentrant=gradient_checkpointing_reentrant aux_loss_coef "
        "compute_fp32_loss=compute_fp32_loss_enable margin_loss=margin_loss_enable loss=loss_type"
    ),
    "adam": "learning_rate=lr adam_betas=betas l2=weight_decay",
    "data": (
        "dataset dataset_probs dataset_split prompt_key chosen_key rejected_key "
        "tokenizer_chat_template"
    ),
}
REWARD_MODEL = Spellings(
    {name: OLD_FLAGS[name] for name in _SHARED.split()} | _spelled(_OF_REWARD_MODEL),
    {name: IDLE_FLAGS[name] for name in ("bf16", "flash_attn")},
    {},
)
