"""The file for Slurm, with stand-ins for Slurm and Ray."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/cluster/slurm.sh"
STAND_INS = {
    "bin/scontrol": "echo node1; echo node2",
    "bin/srun": '[[ "$*" == *hostname* ]] && echo 10.0.0.1 || echo "$*" >&2',
    ".venv/bin/ray": 'echo \'"ALIVE" "ALIVE"\'',
    ".venv/bin/openrlhf-js": 'echo "$@"',
}


@pytest.mark.parametrize("gpus", [None, "8"])
def test_models_get_the_gpus_of_the_job_if_it_asks_for_some(tmp_path, gpus):
    for name, body in STAND_INS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_JOB_ID": "7",
    }
    if gpus:
        environment["SLURM_GPUS_ON_NODE"] = gpus
    ran = subprocess.run(
        ["bash", SCRIPT, "run.yaml", "--ds.zero_stage", "3"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    layout = []
    if gpus:
        layout = ["--actor.num_nodes", "2", "--actor.num_gpus_per_node", "8"]
        layout += ["--ref.num_nodes", "2", "--ref.num_gpus_per_node", "8"]
    name = ["--logger.wandb.run_name", "slurm-7"]
    assert ran.stdout.split() == ["train", "run.yaml", *layout, *name, "--ds.zero_stage", "3"]
    assert ran.stderr.count("--num-gpus 8") == (2 if gpus else 0)
