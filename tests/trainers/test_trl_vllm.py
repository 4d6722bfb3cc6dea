"""TRL with vLLM colocated: vLLM samples, and the weights are still those of the policy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit import free_port

HERE = Path(__file__).parent


@pytest.mark.integration
def test_vllm_in_the_process_of_the_trainer(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="TRL needs Python 3.11")
    pytest.importorskip("vllm")
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    alone["MASTER_PORT"] = str(free_port())
    on_cpu = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    on_cpu |= {"TORCHDYNAMO_DISABLE": "1", "VLLM_USE_AOT_COMPILE": "0"}  # no C++ compiler is needed
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    run = subprocess.run(
        [sys.executable, HERE / "trl_vllm_run.py", tmp_path],
        env=os.environ | alone | on_cpu | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
