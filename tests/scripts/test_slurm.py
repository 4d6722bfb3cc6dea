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


@pytest.fixture
def job(tmp_path):
    """Runs the file in a job on two nodes, whose programs may be others."""

    def run(stand_ins=STAND_INS, **variables):
        for name, body in stand_ins.items():
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
        command = ["bash", SCRIPT, "run.yaml", "--ds.zero_stage", "3"]
        return subprocess.run(
            command, env=environment | variables, capture_output=True, text=True, timeout=60
        )

    return run


@pytest.mark.parametrize("gpus", [None, "8"])
def test_models_get_the_gpus_of_the_job_if_it_asks_for_some(job, gpus):
    ran = job(**({"SLURM_GPUS_ON_NODE": gpus} if gpus else {}))
    layout = []
    if gpus:
        layout = ["--actor.num_nodes", "2", "--actor.num_gpus_per_node", "8"]
        layout += ["--ref.num_nodes", "2", "--ref.num_gpus_per_node", "8"]
    name = ["--logger.wandb.run_name", "slurm-7"]
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["train", "run.yaml", *layout, *name, "--ds.zero_stage", "3"]
    assert ran.stderr.count("--num-gpus 8") == (2 if gpus else 0)


def test_a_requeued_job_resumes(job):
    assert job(SLURM_RESTART_COUNT="1").stdout.split()[-1] == "--js.requeued"


def test_ray_writes_into_a_folder_of_the_job_which_is_removed(job):
    ran = job(STAND_INS | {".venv/bin/openrlhf-js": "echo $RAY_TMPDIR; exit 3"})
    assert (ran.returncode, ran.stdout) == (3, "/tmp/ray-7\n")
    assert "rm -rf /tmp/ray-7\n" in ran.stderr


def test_a_job_without_the_environment_is_refused(job):
    ran = job({name: body for name, body in STAND_INS.items() if name.startswith("bin/")})
    assert ran.returncode == 2
    assert "setup.sh" in ran.stderr and ran.stderr.count("\n") == 1


def test_a_job_ends_when_ray_has_ended_on_a_node(job):
    ran = job(STAND_INS | {".venv/bin/ray": "sleep 1"})  # no node is alive
    assert ran.returncode == 1
    assert "Ray has ended on a node" in ran.stderr
