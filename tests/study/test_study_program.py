"""`openrlhf-js study` from its command line: kill -9, resume, page, refusals."""

import json
import signal
import subprocess
import sys
import time

import psutil
import pytest

from openrlhf_js.cli import study
from openrlhf_js.study import running

FLAGS = "--width 16 --layers 1 --held_out 20 --samples 1 --steps 20 --jobs 2 --learning_rates 1e-4"
FLAGS += " --seeds 4 --estimators rloo js_plus"


def start(folder):
    words = [sys.executable, "-m", "openrlhf_js.cli.main", "study", *FLAGS.split()]
    return subprocess.Popen(
        [*words, "--out", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def records(folder):
    path = folder / "runs-inline.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines[1:]]


def test_a_killed_study_resumes_and_trains_nothing_twice(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "a study"
    killed = start(folder)
    while not records(folder):
        assert killed.poll() is None, killed.communicate()[0]
        time.sleep(0.05)
    workers = psutil.Process(killed.pid).children(recursive=True)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not psutil.wait_procs(workers, timeout=30)[1]  # they end with their parent
    done = records(folder)
    assert study.main([*FLAGS.split(), "--jobs", "1", "--out", str(folder)]) == 0
    screen = "".join(capsys.readouterr())
    assert f"{len(done)} of 8 runs are there already" in screen
    found = records(folder)
    assert found[: len(done)] == done and len(found) == 8
    assert len({(each["estimator"], each["seed"]) for each in found}) == 8
    assert "js_plus" in screen and "paired seeds" in screen and "Traceback" not in screen
    page = (folder / "study.html").read_text()
    assert "sort, natural, 16 x 2" in page and "vega" in page and "src=" not in page[:2000]
    assert (folder / "rows.csv").read_text().startswith("kind,task,mix,prompts,responses")

    other = study.read([*FLAGS.split(), "--out", str(folder), "--steps", "30"])
    with pytest.raises(ValueError, match="holds records of other settings"):
        study.work(other)  # with other settings, runs are no pairs

    # Another machine makes another start: new seeds are paired with one another, others are not.
    monkeypatch.setattr(running, "prepare", lambda settings: {"sort": "another"})
    same = [*FLAGS.split(), "--jobs", "1", "--out", str(folder)]
    assert study.main([*same, "--seeds", "5"]) == 0
    assert [each["start"] for each in records(folder)[8:]] == ["another"] * 2
    assert study.main([*same, "--estimators", "rloo", "bloo"]) == 2
    assert "began from another model" in capsys.readouterr().err


def test_settings_come_from_a_file_then_from_flags(tmp_path, capsys):
    path = tmp_path / "study.yaml"
    path.write_text("estimators: [rloo, js]\nseeds: 3\nengine: stack\ntrain: [--a, 1]\n")
    found = study.read([str(path), "--seeds", "5", "--", "--b", "2"])
    assert (found.estimators, found.seeds, found.train) == (
        ["rloo", "js"],
        5,
        ["--a", "1", "--b", "2"],
    )
    path.write_text("seeds: [\n")
    assert study.main([str(path)]) == 2 and "study.yaml is not YAML" in capsys.readouterr().err
    assert study.main([str(tmp_path / "none.yaml")]) == 2
