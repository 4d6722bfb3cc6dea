"""A process that dies ends its run, whatever the run was at, and the next start goes on."""

import os
import re
import signal

import psutil
import pytest
from ray._private.state import GlobalState
from ray._raylet import GcsClient, GcsClientOptions

from openrlhf_js.plugin.watch import NAMESPACE

pytestmark = pytest.mark.integration

PHASES = "generating", "training", "sending weights"
ADDRESS = re.compile(r"--gcs-address=(\S+)")
FLAGS = (
    *("--algo.advantage.estimator", "js", "--actor.num_gpus_per_node", "2"),
    *("--train.num_episodes", "1000", "--ckpt.save_steps", "1", "--ckpt.max_num", "2"),
)


class Seen:
    """A run through the tables of its Ray."""

    def __init__(self, driver: psutil.Process):
        commands = (" ".join(child.cmdline()) for child in driver.children(recursive=True))
        address = next(filter(None, map(ADDRESS.search, commands)))[1]
        options = GcsClientOptions.create(
            address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False
        )
        self.client = GcsClient(address=address)
        self.state = GlobalState()
        self.state._initialize_global_state(options)

    def pid(self, class_name: str) -> int:
        """Of the process of the class's last actor."""
        actors = self.state.actor_table(None).values()
        return max(a["Pid"] for a in actors if a["ActorClassName"].endswith(class_name))

    def is_at(self, phase: str) -> bool:
        keys = self.client.internal_kv_keys(b"", NAMESPACE.encode())
        texts = (self.client.internal_kv_get(key, NAMESPACE.encode()) for key in keys)
        return phase.encode() in texts


def kill(run, driver: psutil.Process, victim: str, phase: str) -> str:
    """Kills an engine or a rank after one more training step; the line that shall say so."""
    batches = run.folder / "batches"
    trained = len(list(batches.glob("*")))
    run.until(lambda: len(list(batches.glob("*"))) > trained)
    seen = Seen(driver)
    if victim == "engine":
        (engine,) = psutil.Process(seen.pid("CheckedRollout")).children()
        pid = engine.pid
        line = rf"openrlhf_js: vLLM engine 0 \(engine process {pid}, exit code -9\) died"
    else:
        pid = seen.pid("OurPolicy")
        line = rf"openrlhf_js: policy rank [01] \(process {pid}\) died"
    run.until(lambda: seen.is_at(phase))
    os.kill(pid, signal.SIGKILL)
    return line


@pytest.mark.timeout(900)
def test_an_engine_or_a_rank_that_dies_in_any_phase_ends_the_run(start):
    resume: tuple[str, ...] = ()
    for victim in ("engine", "rank"):
        for phase in PHASES:
            run = start(*FLAGS, *resume)
            line = kill(run, psutil.Process(run.process.pid), victim, phase)
            ended = run.finish(timeout_seconds=60)
            assert ended.status == 1, ended.output[-3000:]
            assert re.search(f"^{line}", ended.output, re.MULTILINE), ended.output[-3000:]
            resume = ("--ckpt.load_enable",)


def test_a_run_whose_engine_died_while_weights_were_sent_is_started_again(start):
    run = start(*FLAGS, "--js.restarts", "1", program=True)
    batches = run.folder / "batches"
    run.until(lambda: len(list(batches.glob("*"))) > 2)
    (driver,) = psutil.Process(run.process.pid).children()
    line = kill(run, driver, "engine", "sending weights")
    run.until(lambda: not driver.is_running(), timeout_seconds=60)
    trained = len(list(batches.glob("*")))
    run.until(lambda: len(list(batches.glob("*"))) > trained)
    run.process.terminate()
    ended = run.finish(timeout_seconds=60)
    assert ended.status == 130, ended.output[-3000:]
    assert re.search(f"^{line}", ended.output, re.MULTILINE), ended.output[-3000:]
    assert "the run ended with status 1 and is started again" in ended.output
