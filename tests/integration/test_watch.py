"""A process that dies ends its run, whatever the run was at, and the next start goes on."""

import os
import re
import signal
from itertools import product

import psutil
import pytest
from kit import until
from ray._private.state import GlobalState
from ray._raylet import GcsClient, GcsClientOptions

from openrlhf_js.plugin.watch import NAMESPACE

pytestmark = pytest.mark.integration

PHASES = "generating", "training", "sending weights"
STARTED = re.compile(r"--gcs-address=(\S+)")


class Seen:
    """A start of a run, through the tables of its Ray."""

    def __init__(self, process: psutil.Process):
        commands = (" ".join(child.cmdline()) for child in process.children(recursive=True))
        address = next(filter(None, map(STARTED.search, commands)))[1]
        self.client = GcsClient(address=address)
        self.state = GlobalState()
        options = GcsClientOptions.create(
            address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False
        )
        self.state._initialize_global_state(options)

    def pids(self, class_name: str) -> list[int]:
        actors = self.state.actor_table(None).values()
        return [actor["Pid"] for actor in actors if actor["ActorClassName"].endswith(class_name)]

    def is_at(self, phase: str) -> bool:
        keys = self.client.internal_kv_keys(b"", NAMESPACE.encode())
        texts = (self.client.internal_kv_get(key, NAMESPACE.encode()) for key in keys)
        return phase.encode() in texts


@pytest.mark.timeout(600)
def test_an_engine_or_a_rank_that_dies_ends_the_run_and_it_is_started_again(start, tmp_path):
    flags = ("--algo.advantage.estimator", "js", "--actor.num_gpus_per_node", "2")
    unending = ("--train.num_episodes", "1000", "--ckpt.save_steps", "1", "--ckpt.max_num", "1")
    run = start(*flags, *unending, "--js.restarts", "1", program=True)
    batches = tmp_path / "batches"
    for phase, title in product(PHASES, ("vLLM engine 0", "policy rank")):
        trained = len(list(batches.glob("*")))
        run.until(lambda trained=trained: len(list(batches.glob("*"))) > trained + 1)
        (child,) = psutil.Process(run.process.pid).children()
        seen = Seen(child)
        if title == "vLLM engine 0":
            (actor,) = seen.pids("CheckedRollout")
            (engine,) = psutil.Process(actor).children()
            pid = engine.pid
        else:
            pid = seen.pids("OurPolicy")[-1]
        run.until(lambda phase=phase, seen=seen: seen.is_at(phase))
        os.kill(pid, signal.SIGKILL)
        line = re.compile(rf"^openrlhf_js: {title}.* process {pid}\b.* died while ", re.MULTILINE)
        until(lambda line=line: line.search(run.log.read_text(errors="replace")), seconds=30)
        until(lambda child=child: not child.is_running(), seconds=30)
    run.process.terminate()
    ended = run.finish(timeout_seconds=60)
    assert ended.status == 130, ended.output[-3000:]
    assert ended.output.count("is started again") == 2 * len(PHASES)
    assert ended.output.count(" died while ") == 2 * len(PHASES)
    assert "Traceback" not in ended.output
