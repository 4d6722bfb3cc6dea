"""What a run of the stack imports, which takes 15 seconds: for the server of forks."""

from openrlhf_js.common.environment import ray_of_forks
from openrlhf_js.trainers.openrlhf.run.device import prepare_device

prepare_device("cpu")
with ray_of_forks():
    from openrlhf.cli import train_ppo_ray, train_rm  # noqa: F401
    from vllm.v1.engine import async_llm  # noqa: F401

    from openrlhf_js.trainers.openrlhf import trainer  # noqa: F401
