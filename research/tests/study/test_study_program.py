"""`openrlhf-js study` from its command line: kill -9, resume, page, refusals."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

from baseline_research.cli import study
from baseline_research.study import running
from baseline_research.tiny import model
from baseline_research.tiny.tasks import TASKS

FLAGS = (
    "--width 16 --layers 1 --held_out 20 --samples 1 --steps 10 --jobs 2 --learning_rates 1e-4 "
    "--seeds 4 --estimators rloo js_grad"
)


def flags(folder, *changes):
    """The last value of a flag counts."""
    return [*FLAGS.split(), "--out", str(folder), *changes]


def start(folder):
    command = [sys.executable, "-m", "openrlhf_js.cli.main", "study", *flags(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def make_start(folder):
    """A model that has hardly learned anything, where the study looks for its warm start."""
    settings = study.read(flags(folder))
    sort = replace(TASKS["sort"], warm_start_steps=3)
    model.warm_start(
        settings.start_of("sort"),
        sort,
        sort.split(settings.start_seed, settings.held_out).train,
        seed=settings.start_seed,
        width=settings.width,
        layers=settings.layers,
    )


def records(folder):
    path = folder / "runs-inline.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines[1:]]


def test_workers_tell_their_steps(tmp_path):
    make_start(tmp_path)
    settings = study.read(flags(tmp_path, "--seeds", "1"))
    trained = []
    notes = []
    runs = settings.runs()
    running._train_in_workers(runs, settings, 2, keep=trained.append, note=notes.append)
    assert len(trained) == len(runs) == 2
    assert {f"{run.name}, step 0 of 10" for run in runs} <= set(notes)


@pytest.mark.usefixtures("undrawn")
def test_a_killed_study_resumes_and_trains_nothing_twice(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "a study"
    make_start(folder)
    killed = start(folder)
    while not records(folder):
        assert killed.poll() is None, killed.communicate()[0]
        time.sleep(0.05)
    workers = psutil.Process(killed.pid).children(recursive=True)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not psutil.wait_procs(workers, timeout=30)[1]  # they end with their parent
    done = records(folder)
    assert study.main(flags(folder, "--jobs", "1")) == 0
    screen = "".join(capsys.readouterr())
    assert f"{len(done)} of 8 runs are there already" in screen
    all_records = records(folder)
    assert all_records[: len(done)] == done
    assert len(all_records) == 8
    assert len({(record["estimator"], record["seed"]) for record in all_records}) == 8
    assert "js_grad" in screen
    assert "paired by seed" in screen
    assert "Traceback" not in screen
    page = (folder / "study.html").read_text()
    assert "sort, natural, 16 x 2" in page
    assert "data:image/svg+xml" in page
    assert 'src="http' not in page
    assert (folder / "rows.csv").read_text().startswith("kind,task,mix,prompts,responses")

    with pytest.raises(ValueError, match="holds records of other settings"):
        study.work(study.read(flags(folder, "--steps", "30")))  # such runs are no pairs

    # Another machine makes another start: new seeds are paired with one another, others are not.
    monkeypatch.setattr(running, "prepare", lambda settings: {"sort": "another"})
    running.run_all(study.read(flags(folder, "--jobs", "1", "--seeds", "5")))
    assert [record["start"] for record in records(folder)[8:]] == ["another", "another"]
    assert study.main(flags(folder, "--jobs", "1", "--estimators", "rloo", "bloo")) == 2
    assert "began from another model" in capsys.readouterr().err


@pytest.mark.usefixtures("undrawn")
def test_ctrl_c_ends_a_study_while_its_processes_start(tmp_path):
    make_start(tmp_path)
    command = [sys.executable, "-m", "openrlhf_js.cli.main", "study", *flags(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(command, start_new_session=True, **pipes)
    for line in process.stdout:
        if "0 of 8 runs, starting 2 processes" in line:
            break
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it, to all of them
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert rest.endswith("openrlhf-js study: stopped; the same command resumes\n")
    assert "Traceback" not in rest
    assert records(tmp_path) == []


def test_settings_come_from_a_file_then_from_flags(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(
        "estimators: [rloo, js]\nseeds: 010\nsteps: 3\nengine: stack\n"
        "train: [--eval.dataset, d, --eval.steps, 010]\n"
        "learning_rates: [1e-4]\nprint: true\njobs: null\n"
    )
    assert study.read([str(path)]).seeds == "010"
    settings = study.read([str(path), "--seeds", "5", "--", "--b", "2"])
    assert settings.estimators == ["rloo", "js"]
    assert settings.seeds == "5"
    assert settings.train == ["--eval.dataset", "d", "--eval.steps", "010", "--b", "2"]
    assert (settings.steps, settings.learning_rates) == (3, [1e-4])
    assert (settings.print, settings.jobs) == (True, None)
    for text in ("seeds: [\n", "seeds\n", "data.prompt_dataset: p.jsonl\n"):
        path.write_text(text)
        assert study.main([str(path)]) == 2


def test_flags_of_training_lead_to_the_stack_and_all_that_it_needs(capsys):
    words = "--data.prompt_dataset p.jsonl --estimators rloo js"
    assert study.main(words.split()) == 2
    command = capsys.readouterr().err.splitlines()[-1].split(maxsplit=2)[-1]
    given = command.replace("MODEL", "m").replace(" N", " 9").replace("HELD_OUT", "h").split()
    assert study.read(given).engine == "stack"  # and the command is one


def test_flags_of_training_in_a_file_or_of_another_engine(tmp_path, capsys):
    path = tmp_path / "study.yaml"
    path.write_text("data.prompt_dataset: p.jsonl\n")
    assert study.main([str(path)]) == 2
    said = capsys.readouterr().err
    assert "in a file: the list `train`" in said and "-- --data.prompt_dataset p.jsonl" in said
    path.write_text(
        "data.prompt_dataset: p.jsonl\nseeds: 5\nestimators: [rloo, js]\nsteps: 9\nprint: true\n"
        "train: [--js.loss, token_mean]\n"
    )
    assert study.main([str(path), "--steps", "7"]) == 2
    said = capsys.readouterr().err
    command = "--engine stack --seeds 5 --estimators rloo js --print --steps 7 -- "
    assert f"{command}--data.prompt_dataset p.jsonl --js.loss token_mean --actor." in said
    assert study.main(["--engine", "inline", "--", "--eval.dataset", "x"]) == 2
    assert "--engine stack" in capsys.readouterr().err


def test_a_gpu_trains_the_pretrained_model(tmp_path, monkeypatch, capsys):
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    pretrained = ("--model", str(tmp_path), "--tasks", "questions")

    def read_with(*changes):
        return study.read([*pretrained, *changes])

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert read_with().device_name == "cpu"
    on_cpu = read_with("--dtype", "bf16").identity()
    assert study.main(["--device", "cuda", "--out", str(tmp_path / "study")]) == 2
    assert "--device cuda needs a GPU" in capsys.readouterr().err

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    on_gpu = read_with()
    assert (on_gpu.device_name, on_gpu.dtype_name) == ("cuda", "bfloat16")
    assert running._default_jobs(on_gpu) == 1
    assert on_gpu.identity() == {**on_cpu, "device": "cuda"}  # another study
    assert read_with("--device", "cpu", "--dtype", "bf16").identity() == on_cpu
    assert study.read([]).device_name == "cpu"  # of the tiny model, for which that is quicker
