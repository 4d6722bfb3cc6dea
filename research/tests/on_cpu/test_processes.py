"""Forks in place of Ray's workers; tests/integration runs Ray on them."""

import json
import subprocess
import sys

import psutil

PARENT = """
import colorsys, json, os, subprocess, sys, torch
from baseline_research.on_cpu import processes

folder, script = sys.argv[1:]
torch.set_num_threads(2)
torch.ones(1 << 20).sum()
command, nursery = processes.open_nursery(folder)
child = {"cwd": folder, "env": {"WHERE": "child"}, "stdout": subprocess.PIPE, "text": True}
first = subprocess.Popen([*command, script, "a b"], **child)
second = subprocess.run([*command, "-s", script, "end"], **child)
print(json.dumps([nursery, os.getpid(), first.communicate()[0], second.stdout]), flush=True)
os.kill(os.getpid(), 9)
"""
SCRIPT = """
import json, os, signal, sys
signal.alarm(100)  # ends it if it hangs
if "torch" in sys.modules:
    sys.modules["torch"].ones(1 << 20).sum()
print(json.dumps([sys.argv[1:], os.environ["WHERE"], os.getcwd(), os.getpid(), os.getsid(0),
    __name__, "colorsys" in sys.modules and "torch" in sys.modules]))
sys.exit("stopped" if sys.argv[1] == "end" else 0)
"""


def test_forks_run_a_script_as_python_would_and_end_with_the_run(tmp_path):
    """Even if the run has computed, and with threads, before it was forked."""
    script = tmp_path / "a script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-c", PARENT, str(tmp_path), str(script)]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == -9, found.stderr
    nursery, parent, *answers = json.loads(found.stdout)
    pids = set()
    for said, argument in zip(answers, ("a b", "end"), strict=True):
        arguments, where, folder, pid, session, name, inherited = json.loads(said)
        assert (arguments, where, folder) == ([argument], "child", str(tmp_path))
        assert name == "__main__" and inherited  # no import of its own
        assert session == nursery
        pids.add(pid)
    assert len(pids | {nursery, parent}) == 4
    psutil.wait_procs([psutil.Process(p) for p in {nursery, *pids} if psutil.pid_exists(p)], 10)
    assert not any(map(psutil.pid_exists, {nursery, *pids}))
