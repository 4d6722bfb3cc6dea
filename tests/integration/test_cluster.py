"""A run over two nodes: two raylets on loopback addresses of this machine."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from forked import PROGRAM
from kit import answers, free_port, until

from openrlhf_js.common.environment import RUN_ID

pytestmark = pytest.mark.integration

ADDRESSES = "127.0.0.1", "127.0.0.2"
START_SECONDS = 300  # for a node, on a busy machine
SIZES = ["--actor.num_nodes", "2", "--ref.num_nodes", "2", "--ds.zero_stage", "3"]
# When one step is saved, the next takes so long that a node can die in it.
SLOW = """
import os, time, torch

SAVED = os.path.join(os.path.dirname(__file__), "checkpoints", "_actor", "latest")

def reward_func(queries, prompts, labels):
    time.sleep(6 * os.path.exists(SAVED))
    found = torch.tensor([sum(map(int, filter(str.isdigit, query))) / 10 for query in queries])
    return {"rewards": found, "scores": found, "extra_logs": {}}
"""


NODES = {  # of the cluster, not of the run
    "RAY_ENABLE_MULTI_NODE_TEST": "1",  # two on one machine
    "RAY_prestart_worker_first_driver": "0",  # else 16 workers, for the CPUs that they pretend
    "RAY_raylet_start_wait_time_s": str(START_SECONDS),
}


class Cluster:
    """Two nodes, of which the second can be killed and started again."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.port = free_port()
        self.dashboard = free_port()
        self.address = f"{ADDRESSES[0]}:{self.port}"
        self.environment = {**os.environ, **NODES}
        # `ray start` fails in a path with a space, as that of this checkout may be
        (folder / "venv").symlink_to(sys.prefix)
        self.ray = [folder / "venv" / "bin" / "python", "-m", "ray.scripts.scripts"]
        self.nodes: dict[int, subprocess.Popen] = {}

    def start(self, number: int) -> None:
        if number == 0:
            place = ["--head", f"--port={self.port}", f"--dashboard-port={self.dashboard}"]
            place.append(f"--temp-dir={self.folder}")
        else:
            place = [f"--address={self.address}"]
        gpus = f"--num-gpus={2 - number}"  # as many as the run needs, so that it needs both nodes
        options = [gpus, "--num-cpus=8", f"--node-ip-address={ADDRESSES[number]}"]
        # Ray's own choice is one port for all, which another run may have; jobs go through it
        options.append(f"--dashboard-agent-listen-port={free_port()}")
        path = self.folder / f"node{number}.log"
        with path.open("wb") as log:
            node = subprocess.Popen(
                [*self.ray, "start", "--block", *place, *options],
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.nodes[number] = node

        def started() -> bool:
            assert node.poll() is None, path.read_text(errors="replace")[-3000:]
            return b"Ray runtime started" in path.read_bytes()

        until(started, START_SECONDS)

    def kill(self, number: int) -> None:
        """As when the machine is switched off."""
        node = self.nodes.pop(number)
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(node.pid).children(recursive=True):
                process.kill()
            os.killpg(node.pid, signal.SIGKILL)
        node.wait()


def left_of(marker: str) -> list[str]:
    """The names of the processes of a run, on whichever node."""
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(RUN_ID) == marker:
                left.append(process.name())
    return left


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster(Path(tempfile.mkdtemp()))  # Ray's sockets lie in it: their paths must be short
    monkeypatch.setenv("RAY_ADDRESS", made.address)
    monkeypatch.setenv(RUN_ID, str(made.folder))  # of the run, not of the nodes
    try:
        made.start(0)
        made.start(1)
        yield made
    finally:
        for number in [*made.nodes]:
            made.kill(number)
        shutil.rmtree(made.folder, ignore_errors=True)


@pytest.mark.timeout(1800)  # a minute on a quiet machine
def test_a_run_over_two_nodes_outlives_one_of_them(start, cluster, tmp_path):
    """It ends when a node dies, and a submitted job goes on where it was when the node is back."""
    flags = [*SIZES, "--ckpt.save_steps", "1", "--ckpt.max_num", "3", "--logger.wandb.run_name=js"]
    run = start(*flags, "--algo.advantage.estimator", "js", grader=SLOW, program=PROGRAM)
    run.until(lambda: (tmp_path / "checkpoints/_actor/latest").exists(), timeout_seconds=600)
    assert left_of(str(cluster.folder))
    cluster.kill(1)
    killed = run.finish()
    assert killed.status == 1, killed.output[-3000:]
    # whichever comes first: Ray's table of actors, or the error of a call to one
    table = r".* on 127.0.0.2\) died.* node was lost"
    line = rf"^openrlhf_js: ({table}|policy rank 1 died while|a process of the run died)"
    assert re.search(line, killed.output, re.MULTILINE), killed.output[-3000:]
    assert not left_of(str(cluster.folder))

    (tmp_path / "grader.py").write_text(SLOW.replace("sleep(6", "sleep(0"))
    cluster.start(1)
    dashboard = f"--address=http://{ADDRESSES[0]}:{cluster.dashboard}"
    until(lambda: answers(dashboard.partition("=")[2]), START_SECONDS)
    resumed = subprocess.run(
        [*cluster.ray, "job", "submit", dashboard, "--", *run.process.args, "--ckpt.load_enable"],
        cwd=tmp_path,
        env=cluster.environment,
        capture_output=True,
        text=True,
    )
    assert resumed.returncode == 0, resumed.stdout[-3000:]
    killed.check_advantages()  # of all steps, since they are in one folder
