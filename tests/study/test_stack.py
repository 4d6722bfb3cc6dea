"""The stack engine up to the training program: commands, unfinished runs, and what logs say."""

import itertools
import json
import pickle
import shlex
from pathlib import Path

import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from openrlhf_js.cli import study as cli
from openrlhf_js.study import figures, prompts, running, stack
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
    found = flags(stack.training_command(runs[-1], settings))
    assert found["--actor.model_name_or_path"] == "m"
    assert found["--algo.advantage.estimator"] == "group_norm"  # OpenRLHF's name of grpo
    assert (found["--train.seed"], found["--js.max_steps"]) == ("1", "20")
    assert (found["--js.loss"], found["--train.batch_size"]) == ("token_mean", "32")
    for other in ({"train": [*OWN, "--train.seed", "3"]}, {"train": OWN, "vary": ["train.seed=3"]}):
        with pytest.raises(ValueError, match=r"--train\.seed itself"):
            stack.training_command(study(tmp_path, **other).runs()[0], study(tmp_path, **other))


def test_the_training_program_knows_every_flag_of_a_tiny_run(tmp_path):
    pytest.importorskip("openrlhf")
    from openrlhf_js.plugin import flags as plugin_flags
    from openrlhf_js.plugin.parser import upstream_parser

    settings = study(tmp_path, mixes=["mixed"], held_out=20)
    run = settings.runs()[0]
    parser = upstream_parser()
    plugin_flags.add_flags(parser)
    parsed = vars(parser.parse_args(stack.training_command(run, settings)[3:]))
    assert parsed["actor.model_name_or_path"] == str(settings.start_of("sort"))
    assert parsed["train.micro_batch_size"] == 8 and parsed["js.group_micro_batches"]
    assert parsed["actor.lr_scheduler"] == "constant"
    assert parsed["rollout.n_samples_per_prompt"] == 2
    lines = Path(parsed["data.prompt_dataset"]).read_text().splitlines()
    given = prompts.training_problems(run, settings)
    assert [json.loads(line)["input"] for line in lines] == [each.prompt for each in given]
    assert [json.loads(line)["label"] for line in lines] == [each.label for each in given]


def trained(run, settings):
    """Leaves what a finished job leaves: log, outcome and command."""
    folder = stack.folder_of(run, settings)
    log = folder / "tensorboard" / run.name
    with SummaryWriter(str(log)) as writer:
        for step in range(1, 21):
            writer.add_scalar("train/rollout/reward_mean", step / 20, step)
            writer.add_scalar("train/js/baseline_mse", 1.0, step)
            writer.add_scalar("train/js/baseline_mse_rloo", 4.0, step)
        writer.add_scalar("eval/eval_d_pass1", 0.25, 10)
        writer.add_scalar("eval/eval_d_pass1", 0.75, 20)
    config = {"flags": {}, "versions": {}, "outcome": "done"}
    (log / "openrlhf_js_config.json").write_text(json.dumps(config))
    (folder / "command.txt").write_text(shlex.join(stack.training_command(run, settings)))


def test_a_cluster_gets_the_runs_that_have_not_finished(tmp_path, capsys):
    folder, data = tmp_path / "a study", tmp_path / "d.jsonl"
    data.write_text("{}")
    printed = study(folder, train=["--data.prompt_dataset", str(data)], print=True)
    cli.work(printed)
    commands = (folder / "commands.txt").read_text().splitlines()
    assert capsys.readouterr().out.splitlines() == commands  # and nothing else
    assert [shlex.split(command) for command in commands] == [
        stack.training_command(run, printed) for run in printed.runs()
    ]

    settings = printed.model_copy(update={"print": False})
    with pytest.raises(ValueError, match=r"4 of 4 runs have not finished.*no seed is whole"):
        running.run_all(settings)
    done = settings.runs()[:3]
    for run in done:
        trained(run, settings)
    cli.work(printed)
    assert (folder / "commands.txt").read_text().splitlines() == commands[3:]
    found = running.run_all(settings)  # the seed of which all runs are there
    assert [(each["estimator"], each["seed"]) for each in found] == [("rloo", 0), ("grpo", 0)]
    assert "1 of 4 runs have not finished, first own-" in capsys.readouterr().err
    trained(settings.runs()[3], settings)
    assert len(running.run_all(settings)) == 4
    with pytest.raises(ValueError, match="all runs have finished"):
        cli.work(printed)
    data.write_text("{ }")  # other data under the same name are no pairs
    with pytest.raises(ValueError, match="holds records of other settings"):
        running.run_all(settings)


def test_data_and_models_are_known_by_their_contents(tmp_path):
    for name in ("a", "b", "folder/c", "places/d"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    train = [f"--data.prompt_dataset={tmp_path}/a,{tmp_path}/b", "--ckpt.path"]
    train += [f"{tmp_path}/places", "--actor.model_name_or_path", f"{tmp_path}/folder"]
    found = running._fingerprints(train)
    assert [Path(each).name for each in sorted(found)] == ["a", "b", "folder"]
    assert study(tmp_path, train=train).title == "rloo, grpo: b with folder"
    (tmp_path / "folder/c").write_text("other")
    again = running._fingerprints(train)
    assert [each for each in found if again[each] != found[each]] == [f"{tmp_path}/folder"]


def test_a_finished_run_is_read_and_not_trained_again(tmp_path, monkeypatch):
    settings = study(tmp_path, train=OWN)
    run = settings.runs()[0]
    trained(run, settings)
    monkeypatch.setattr(stack, "supervised", None)  # nothing is started
    found = stack.train(run, settings, print)
    assert (found.pass1, found.baseline_error) == (0.75, 0.25)
    assert found.reward == pytest.approx(torch.arange(1, 21).float().mean().item() / 20)
    assert len(found.curve) == figures.MAX_CURVE_POINTS
    with pytest.raises(ValueError, match="trained with other flags"):
        stack.train(run, study(tmp_path, train=OWN, steps=30), print)


def test_a_failed_program_reaches_the_parent_of_its_worker():
    failure = pickle.loads(pickle.dumps(ProgramFailed(3, Path("log"))))
    assert (failure.status, failure.log) == (3, Path("log")) and "status 3" in str(failure)
