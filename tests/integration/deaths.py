"""Kills a process of a run in a chosen phase, and says which line the run must end with.

A rank dies while it trains (`test_training.py`), an engine while it gets weights and while it
generates (`test_rlhf.py`).
"""

import os
import re
import signal

import psutil
from ray._private.state import GlobalState
from ray._raylet import GcsClient, GcsClientOptions

from answer_graders.programs.files import read_yaml
from openrlhf_js.trainers.openrlhf.run.record import SETTINGS
from openrlhf_js.trainers.openrlhf.watch import NAMESPACE

ADDRESS = re.compile(r"--gcs-address=(\S+)")


class RayTables:
    """The tables of the Ray that a driver has started."""

    def __init__(self, address: str):
        options = GcsClientOptions.create(
            address,
            None,
            allow_cluster_id_nil=True,
            fetch_cluster_id_if_nil=False,
        )
        self.client = GcsClient(address=address)
        self.state = GlobalState()
        self.state._initialize_global_state(options)

    def process_of(self, class_name: str) -> int:
        """The process id of the class's last actor that has begun; 0 if none has."""
        actors = self.state.actor_table(None).values()
        process_ids = [
            actor["Pid"] for actor in actors if actor["ActorClassName"].endswith(class_name)
        ]
        return max(process_ids, default=0)

    def is_at(self, phase: str) -> bool:
        namespace = NAMESPACE.encode()
        keys = self.client.internal_kv_keys(b"", namespace)
        phases = [self.client.internal_kv_get(key, namespace) for key in keys]
        return phase.encode() in phases


def address_of_ray(driver: psutil.Process) -> str | None:
    """Where the driver's Ray answers, once it has begun."""
    for child in driver.children(recursive=True):
        try:
            match = ADDRESS.search(" ".join(child.cmdline()))
        except psutil.Error:  # it has just ended
            continue
        if match:
            return match[1]
    return None


def kill_while(running, phase: str, victim: str) -> str:
    """Kills an "engine" or a "rank" in a phase; returns a pattern of the line that shall say so."""
    driver = psutil.Process(running.process.pid)
    running.until(lambda: address_of_ray(driver) is not None)
    tables = RayTables(address_of_ray(driver))
    running.until(lambda: tables.is_at(phase))  # from then on all of its actors are there
    if victim == "engine":
        (engine,) = psutil.Process(tables.process_of("CheckedRollout")).children()
        process_id = engine.pid
        line = rf"vLLM engine 0 \(engine process {process_id}, exit code -9\) died"
    else:
        process_id = tables.process_of("OurPolicy")
        line = rf"policy rank [01] \(process {process_id}\) died"
    running.until(lambda: tables.is_at(phase))
    os.kill(process_id, signal.SIGKILL)
    return rf"(?m)^openrlhf_js: {line}"


def ends_when_killed(running, phase: str, victim: str):
    """Kills a process of a run, which must end with the line that says which one died."""
    line = kill_while(running, phase, victim)
    ended = running.finish(timeout_seconds=60)
    assert ended.status == 1, ended.output[-3000:]
    assert re.search(line, ended.output), ended.output[-3000:]
    records = ended.folder.glob(f"tensorboard/*/{SETTINGS}")
    last_record = max(records, key=lambda path: path.stat().st_mtime)  # a resumed run has its own
    assert read_yaml(last_record)["record"]["outcome"] == "failed"
    return ended
