"""Ray, DeepSpeed, vLLM and OpenRLHF on a machine without a GPU.

`openrlhf_js` finds this package through the entry point `cpu` of `openrlhf_js.devices` and uses the
names below.
"""

from __future__ import annotations

from baseline_research.on_cpu.node import open_node
from baseline_research.on_cpu.stand_ins import adapt, install
from openrlhf_js.trainers.openrlhf.upstream import Names

__all__ = [
    "RELIED_ON",
    "RELIED_ON_FOR_REWARD_TRAINING",
    "WORKER_HOOK",
    "adapt",
    "install",
    "open_node",
]

WORKER_HOOK = "baseline_research.on_cpu.stand_ins.install"  # Ray runs it in each worker

# The upstream lines that the replacements in `stand_ins` stand in for.
RELIED_ON: Names = {
    "openrlhf.utils.deepspeed.deepspeed": {
        "init_device_mesh": "device_type mesh_shape",
        "DeepspeedStrategy.get_ds_train_config": "self optim_dict",
    },
    "openrlhf.utils.distributed_util": {
        "stateless_init_process_group": "master_address master_port rank world_size device",
    },
    "openrlhf.trainer.ray.launcher": {"BaseDistributedActor._get_free_port": ""},
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
    module: names
    for module, names in RELIED_ON.items()
    if not module.startswith(("vllm.", "openrlhf.trainer.ray."))
}
