import json
import re

import numpy as np
import pytest

from openrlhf_js.cli import lab, lab_simulate
from openrlhf_js.lab.results import load

SMALL = ["--prompts_count", "8", "--rounds", "40", "--responses", "4,2"]


def run(*flags):
    return lab.main(["simulate", *map(str, flags)])


def test_it_leaves_its_files_and_ends_with_its_finding(tmp_path, capsys):
    assert run("--out", tmp_path / "lab", *SMALL, "--seed", 3) == 0
    out = capsys.readouterr().out
    names = ["simulate.json", "simulate.npz", "simulate.png"]
    assert sorted(each.name for each in (tmp_path / "lab").iterdir()) == names
    summary, arrays = load(tmp_path / "lab" / "simulate.json")
    assert out.splitlines()[-1] == summary["finding"]
    assert re.search(r"js lowers .* \(-?\d+\.\d to -?\d+\.\d.*\) at m = 2", summary["finding"])
    assert "remax is left out" in out and "js_plus" in out
    assert all(str(tmp_path / "lab" / name) in out.replace("\n", "") for name in names)
    assert arrays["m"].tolist() == [2, 4]
    assert arrays["squared_errors"].shape == (2, len(arrays["estimators"]), 40)
    settings = summary["settings"]
    assert (settings["seed"], settings["responses"], settings["rounds"]) == (3, [2, 4], 40)
    assert summary["title"] == "Bernoulli, values Beta(0.5, 0.5)"
    assert (tmp_path / "lab" / "simulate.png").read_bytes().startswith(b"\x89PNG")


def test_the_seed_decides_every_number(tmp_path):
    for name in "ab":
        assert run("--out", tmp_path / name, *SMALL) == 0
    a, b = ((tmp_path / name / "simulate.npz").read_bytes() for name in "ab")
    assert a == b


def test_gaussian_rewards_of_measured_values(tmp_path):
    np.savez(tmp_path / "value.npz", values=[0.0, 3.0, 5.0])
    flags = ["--values", f"file:{tmp_path / 'value.npz'}", "--rewards", "gaussian"]
    noise = ["--noise", 2, "--noise_spread", 0.5]
    assert run("--out", tmp_path, *SMALL, *flags, *noise) == 0
    summary = json.loads((tmp_path / "simulate.json").read_text())
    assert summary["title"] == "Gaussian, 3 values of value.npz, noise 2 spread 0.5"
    assert summary["values"]["sigma2"] == 4


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--values", "gamma:1"], "no values 'gamma:1'; give one of beta:A,B"),
        (["--values", "normal:0,1"], "take Gaussian rewards"),
        (["--values", "file:/nowhere/x.txt"], "cannot be read: No such file"),
        (["--values", "two_point:0,1,0.5"], "every reward equals its value"),
        (["--rewards", "gaussian", "--noise", "0"], "noise must be greater than 0"),
    ],
)
def test_values_that_cannot_be_used_leave_nothing(tmp_path, capsys, flags, message):
    assert run("--out", tmp_path / "lab", *SMALL, *flags) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "lab").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--responses", "2,x"], "no whole numbers such as 2,4,8"),
        (["--responses", "1,2"], "--responses is 1; give 2 or more"),
        (["--prompts_count", "1"], "--prompts_count is 1; give 2 or more"),
        (["--rounds", "1"], "--rounds is 1; give 2 or more"),
        (["--prompts_count", "1000000"], "are more than 1,000,000 in a batch"),
        (["--seed", "-1"], "--seed is -1; give 0 or more"),
        (["--noise", "2"], "add --rewards gaussian"),
        (["--rewards", "uniform"], "invalid choice"),
    ],
)
def test_wrong_flags_are_one_line(tmp_path, capsys, flags, message):
    with pytest.raises(SystemExit) as error:
        run("--out", tmp_path / "lab", *flags)
    assert error.value.code == 2
    complaint = capsys.readouterr().err
    assert message in complaint and complaint.count("\n") == 1


def test_the_folder_must_be_named(capsys):
    with pytest.raises(SystemExit):
        run()
    assert "--out" in capsys.readouterr().err


def test_an_interrupt_leaves_nothing(tmp_path, capsys, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(lab_simulate.Bar, "update", stop)
    assert run("--out", tmp_path / "lab", *SMALL) == 130
    assert capsys.readouterr().err.strip() == "openrlhf-js lab simulate: stopped"
    assert not (tmp_path / "lab").exists()
