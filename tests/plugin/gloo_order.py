"""Run by test_upstream.py in two processes: does the last of two collectives end last?"""

import sys

import torch
import torch.distributed as dist

from openrlhf_js.plugin import cpu

cpu.install()
rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
late = 0
for _ in range(20):
    large, small = torch.zeros(2 * 1_000_000), torch.zeros(2)
    dist.all_gather_into_tensor(large, torch.ones(1_000_000), async_op=True)
    dist.all_gather_into_tensor(small, torch.ones(1), async_op=True).wait()
    late += not bool(large.all())
    dist.barrier()
print(late)
