"""Run by test_ranks.py: upstream's trainers on real DeepSpeed, one process a rank.

`python ranks.py FOLDER` imports the stack once, takes the policy in `FOLDER/policy` and forks the
one rank and the two ranks of all cases, which write to `FOLDER/rank R of N`. Nothing is computed
before the fork: PyTorch's thread pools do not survive one.
"""

# ruff: noqa: E402  # the stack is imported once it is ready for a CPU

import gc
import os
import sys
import traceback
from pathlib import Path

from openrlhf_js.trainers.openrlhf.run.device import prepare_device

prepare_device("cpu")

import gradient_variance_cases
import lora_cases
import torch
import torch.distributed as dist


def run_rank(rank: int, ranks: int, top: Path) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK="0")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")  # required, though not used
    store = f"file://{top}/store of {ranks}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    if ranks == 2:
        gradient_variance_cases.run_cases()
    lora_cases.run_cases(ranks, top)


def main() -> None:
    top = Path(sys.argv[1])
    torch.set_num_threads(1)  # as of Ray's workers
    gc.freeze()  # DeepSpeed collects garbage for every engine, and modules are none
    for name in lora_cases.CASES:
        (top / name).mkdir()
        (top / name / "policy").symlink_to(top / "policy")
    children = []
    for ranks, rank in ((1, 0), (2, 0), (2, 1)):
        child = os.fork()
        if child:
            children.append(child)
            continue
        try:
            with (top / f"rank {rank} of {ranks}").open("wb") as log:
                os.dup2(log.fileno(), sys.stdout.fileno())
                os.dup2(log.fileno(), sys.stderr.fileno())
            run_rank(rank, ranks, top)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    sys.exit(max(os.waitpid(child, 0)[1] for child in children) > 0)


if __name__ == "__main__":
    main()
