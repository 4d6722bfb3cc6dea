# shellcheck shell=bash
# What rlhf_llama3.2_3b_js.sh and rlhf_llama3.2_3b_rloo.sh share; sets `flags`.
#
# The paper (section "Reinforcement Learning with Human Feedback") gives the policy, the reward
# model, the prompts and one epoch. It has no table for this experiment; what it leaves open is marked.
#
# shellcheck disable=SC2034  # the files that read this one use it
flags=(
    # Paper: the policy, the 8B reward model of 700k pairs, the 179k prompts, one epoch.
    --actor.model_name_or_path meta-llama/Llama-3.2-3B-Instruct
    --reward.model_name_or_path OpenRLHF/Llama-3-8b-rm-700k
    --data.prompt_dataset OpenRLHF/prompt-collection-v0.1
    --data.input_key context_messages
    --data.apply_chat_template
    --train.num_episodes 1
    # 2,789 steps of 64 prompts: 4 ranks must share an episode's last step evenly, too.
    --data.max_samples 178496

    # Open; as in most of the paper's other tables: 64 prompts, 4 responses, 2 updates a step.
    --rollout.batch_size 64
    --rollout.n_samples_per_prompt 4
    --train.batch_size 128
    # Open; the paper's other 3B model that is trained in full has 1e-6.
    --actor.adam.lr 1e-6
    # Open; prompt and response in 2048 tokens, a response in 1024, as OpenRLHF's RLHF example.
    --data.max_len 2048
    --rollout.max_new_tokens 1024
    --rollout.temperature 1.0
    # Open; as OpenRLHF's RLHF example. Elsewhere the paper has no KL term, but a learned reward
    # can be gamed, and a verifiable one cannot.
    --algo.kl.init_coef 0.01
    # Open; rewards in units of the reward model's own spread. Neither estimator's ratio of
    # between and within changes with it; it sets how much the KL term weighs.
    --reward.normalize_enable

    # One node with 4 GPUs, which all models share in turn.
    --actor.num_gpus_per_node 4
    --ref.num_gpus_per_node 4
    --reward.num_gpus_per_node 4
    --vllm.num_engines 4
    --vllm.gpu_memory_utilization 0.5
    --vllm.enable_sleep
    --train.colocate_all
    --ds.enable_sleep
    --ds.zero_stage 3
    --ds.packing_samples
    --actor.gradient_checkpointing_enable
    --train.dynamic_batch_enable
    --train.max_tokens_per_gpu 16384
    --ckpt.save_steps 200
    --ckpt.save_hf
)
