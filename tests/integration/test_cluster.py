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
from kit import free_port, until

from openrlhf_js.plugin.run import RUN_ID

pytestmark = pytest.mark.integration

RAY = Path(sys.executable).with_name("ray")
ADDRESSES = "127.0.0.1", "127.0.0.2"
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


class Cluster:
    """Two nodes, of which the second can be killed and started again."""

    def __init__(self, folder: Path):
        self.folder, self.port, self.dashboard = folder, free_port(), free_port()
        two_on_one = {"RAY_ENABLE_MULTI_NODE_TEST": "1", "RAY_prestart_worker_first_driver": "0"}
        self.environment = {**os.environ, **two_on_one, "OMP_NUM_THREADS": "1"}
        head = ["--head", f"--port={self.port}", f"--dashboard-port={self.dashboard}"]
        self.nodes = [self.start(0, *head, f"--temp-dir={folder}")]
        self.nodes.append(self.start(1))
        self.address = f"{ADDRESSES[0]}:{self.port}"

    def start(self, number: int, *how: str) -> subprocess.Popen:
        how = how or (f"--address={ADDRESSES[0]}:{self.port}",)
        gpus = f"--num-gpus={2 - number}"  # as many as the run needs, so that it needs both nodes
        options = [gpus, "--num-cpus=8", f"--node-ip-address={ADDRESSES[number]}"]
        with (self.folder / f"node{number}.log").open("wb") as log:
            node = subprocess.Popen(
                [RAY, "start", "--block", *how, *options],
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(lambda: b"Ray runtime started" in (self.folder / f"node{number}.log").read_bytes())
        return node

    def kill(self, number: int) -> None:
        """As when the machine is switched off."""
        for process in [*psutil.Process(self.nodes[number].pid).children(recursive=True)]:
            process.kill()
        os.killpg(self.nodes[number].pid, signal.SIGKILL)


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
    yield made
    for number in range(2):
        made.kill(number)
    shutil.rmtree(made.folder, ignore_errors=True)


@pytest.mark.skipif(" " in sys.executable, reason="`ray start` fails in a path with a space")
@pytest.mark.timeout(600)
def test_a_run_over_two_nodes_outlives_one_of_them(start, cluster, tmp_path):
    """It ends when a node dies, and a submitted job goes on where it was when the node is back."""
    flags = [*SIZES, "--ckpt.save_steps", "1", "--ckpt.max_num", "3", "--logger.wandb.run_name=js"]
    run = start(*flags, "--algo.advantage.estimator", "js", grader=SLOW, program=True)
    run.until(lambda: (tmp_path / "checkpoints/_actor/latest").exists())
    assert left_of(str(cluster.folder))
    cluster.kill(1)
    killed = run.finish()
    assert killed.status == 1, killed.output[-3000:]
    # whichever comes first: Ray's table of actors, or the error of a call to one
    line = r"^openrlhf_js: (.* on 127.0.0.2\) died.* node was lost|a process of the run died)"
    assert re.search(line, killed.output, re.MULTILINE), killed.output[-3000:]
    assert not left_of(str(cluster.folder))

    (tmp_path / "grader.py").write_text(SLOW.replace("sleep(6", "sleep(0"))
    cluster.nodes[1] = cluster.start(1)
    job = [RAY, "job", "submit", f"--address=http://{ADDRESSES[0]}:{cluster.dashboard}", "--"]
    resumed = subprocess.run(
        [*job, *run.process.args, "--ckpt.load_enable"],
        cwd=tmp_path,
        env=cluster.environment,
        capture_output=True,
        text=True,
    )
    assert resumed.returncode == 0, resumed.stdout[-3000:]
    killed.check_advantages()  # of all steps, since they are in one folder
