"""The stack engine up to the training program: commands, job arrays, and what logs say."""

import itertools
import json
import pickle
import shlex
from pathlib import Path

import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from openrlhf_js.study import inline, stack
from openrlhf_js.study.design import StudySettings
from openrlhf_js.tiny.supervise import ProgramFailed

OWN = ["--actor.model_name_or_path", "m", "--data.prompt_dataset", "d.jsonl"]


def study(folder, **changes):
    given = {"engine": "stack", "estimators": ["rloo", "grpo"], "steps": 20, "seeds": 2}
    return StudySettings(**{**given, "out": folder, **changes})


def flags(words):
    """Of flags that occur twice, the last value, as argparse has it."""
    return dict(itertools.pairwise(words))


def test_a_run_of_ones_own_is_the_given_flags_and_those_of_the_study(tmp_path):
    settings = study(
        tmp_path, train=OWN, learning_rates=[1e-6], vary=["js.loss=constant,token_mean"]
    )
    runs = settings.runs()
    assert len(runs) == 8
    found = flags(stack.words(runs[-1], settings))
    assert found["--actor.model_name_or_path"] == "m"
    assert found["--algo.advantage.estimator"] == "group_norm"  # OpenRLHF's name of grpo
    assert (found["--train.seed"], found["--js.max_steps"]) == ("1", "20")
    assert (found["--js.loss"], found["--train.batch_size"]) == ("token_mean", "32")
    for other in ({"train": [*OWN, "--train.seed", "3"]}, {"train": OWN, "vary": ["train.seed=3"]}):
        with pytest.raises(ValueError, match=r"--train\.seed itself"):
            stack.words(study(tmp_path, **other).runs()[0], study(tmp_path, **other))


def test_the_training_program_knows_every_flag_of_a_tiny_run(tmp_path):
    pytest.importorskip("openrlhf")
    from openrlhf_js.plugin import flags as plugin_flags
    from openrlhf_js.plugin.parser import upstream_parser

    settings = study(tmp_path, mixes=["mixed"], held_out=20)
    run = settings.runs()[0]
    parser = upstream_parser()
    plugin_flags.add_flags(parser)
    parsed = vars(parser.parse_args(stack.words(run, settings)[3:]))
    assert parsed["actor.model_name_or_path"] == str(settings.start_of("sort"))
    assert parsed["train.micro_batch_size"] == 8 and parsed["js.group_micro_batches"]
    assert parsed["actor.lr_scheduler"] == "constant"
    assert parsed["rollout.n_samples_per_prompt"] == 2
    lines = Path(parsed["data.prompt_dataset"]).read_text().splitlines()
    given = inline.problems(run, settings)
    assert [json.loads(line)["input"] for line in lines] == [each.prompt for each in given]
    assert [json.loads(line)["label"] for line in lines] == [each.label for each in given]


def test_commands_and_a_job_array_are_written_for_a_cluster(tmp_path):
    settings = study(tmp_path / "new", train=OWN)
    commands, tmp_path = stack.write_commands(settings), settings.out
    assert (tmp_path / "commands.txt").read_text().splitlines() == commands
    array = (tmp_path / "array.sh").read_text()
    assert f"--array=0-{len(commands) - 1}" in array and str(tmp_path / "commands.txt") in array
    with pytest.raises(ValueError, match="has not finished; to train it here, delete"):
        stack.train(settings.runs()[0], settings, print)  # a job may be at it


def test_a_finished_run_is_read_and_not_trained_again(tmp_path, monkeypatch):
    settings = study(tmp_path, train=OWN)
    run = settings.runs()[0]
    log = stack.folder_of(run, settings) / "tensorboard" / run.name
    with SummaryWriter(str(log)) as writer:
        for step in range(1, 21):
            writer.add_scalar("train/rollout/reward_mean", step / 20, step)
            writer.add_scalar("train/js/baseline_mse", 1.0, step)
            writer.add_scalar("train/js/baseline_mse_rloo", 4.0, step)
        writer.add_scalar("eval/eval_d_pass1", 0.25, 10)
        writer.add_scalar("eval/eval_d_pass1", 0.75, 20)
    config = {"flags": {}, "versions": {}, "outcome": "done"}
    (log / "openrlhf_js_config.json").write_text(json.dumps(config))
    command = stack.folder_of(run, settings) / "command.txt"
    command.write_text(shlex.join(stack.words(run, settings)))
    monkeypatch.setattr(stack, "supervised", None)  # nothing is started
    found = stack.train(run, settings, print)
    assert (found["pass1"], found["baseline_error"]) == (0.75, 0.25)
    assert found["reward"] == pytest.approx(torch.arange(1, 21).float().mean().item() / 20)
    assert len(found["curve"]) == inline.POINTS and found["seed"] == run.seed
    with pytest.raises(ValueError, match="trained with other flags"):
        stack.train(run, study(tmp_path, train=OWN, steps=30), print)


def test_a_failed_program_reaches_the_parent_of_its_worker():
    failure = pickle.loads(pickle.dumps(ProgramFailed(3, Path("log"))))
    assert (failure.status, failure.log) == (3, Path("log")) and "status 3" in str(failure)
