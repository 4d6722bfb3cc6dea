"""A training leaves its flags and versions beside its log, and how it ended."""

from __future__ import annotations

import argparse
import json

import pytest

from openrlhf_js.plugin.run_record import NAME, recorded
from openrlhf_js.report import runs

PARSER = argparse.ArgumentParser()
PARSER.add_argument("--train.seed", type=int, default=42)
PARSER.add_argument("--actor.adam.betas", type=float, nargs=2, default=[0.9, 0.95])


def arguments(folder, **more):
    flags = {
        "logger.tensorboard_dir": folder and str(folder),
        "logger.wandb.run_name": "js",
        "logger.wandb.key": "hush-hush",
        "train.seed": 7,
        "eval.steps": float("inf"),
        "actor.adam.betas": (0.9, 0.95),
        **more,
    }
    return argparse.Namespace(**flags)


def read(folder):
    def refuse(constant):
        raise AssertionError(f"{constant} is no strict JSON")

    return json.loads((folder / "js" / NAME).read_text(), parse_constant=refuse)


def test_the_flags_are_there_while_it_runs(tmp_path):
    with recorded(arguments(tmp_path), PARSER):
        found = read(tmp_path)
        assert (found["ended"], found["outcome"]) == (None, None)
        assert found["flags"]["train.seed"] == 7
        assert found["flags"]["actor.adam.betas"] == [0.9, 0.95]
        assert found["flags"]["eval.steps"] == "inf"
        assert "train.seed" in found["changed"]
        assert "actor.adam.betas" not in found["changed"]
        assert {"python", "torch"} <= found["versions"].keys()
    found = read(tmp_path)
    assert found["outcome"] == "done"
    assert found["ended"] >= found["started"]
    assert [path.name for path in (tmp_path / "js").iterdir()] == [NAME]  # nothing half-written


def test_secrets_are_hidden(tmp_path):
    with recorded(arguments(tmp_path), PARSER):
        pass
    assert "hush-hush" not in (tmp_path / "js" / NAME).read_text()


@pytest.mark.parametrize(
    ("error", "outcome"), [(RuntimeError, "failed"), (KeyboardInterrupt, "interrupted")]
)
def test_how_it_ended_is_recorded(tmp_path, error, outcome):
    with pytest.raises(error), recorded(arguments(tmp_path), PARSER):
        raise error
    assert read(tmp_path)["outcome"] == outcome


def test_without_a_log_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with recorded(arguments(None), PARSER):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_report_reads_what_is_recorded(tmp_path):
    assert runs.CONFIG == NAME
    with recorded(arguments(tmp_path), PARSER):
        config = runs.read_config(tmp_path / "js")
        assert config.flags["actor.adam.betas"] == "0.9 0.95"
        assert config.outcome is None
    assert runs.read_config(tmp_path / "js").outcome == "done"
