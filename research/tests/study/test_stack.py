"""The stack engine up to the training program: commands, unfinished runs, and what logs say."""

import itertools
import json
import math
import shlex
import time
from pathlib import Path
from statistics import fmean

import pytest
from torch.utils.tensorboard import SummaryWriter

from answer_graders.programs.settings import SettingsError
from baseline_research.cli import study as cli
from baseline_research.study import running, stack
from baseline_research.study.budget import all_runs
from baseline_research.study.design import StackStudy
from baseline_research.study.inline import prompts
from baseline_research.study.stack import Scalars

EVALUATION = ["--eval.dataset", "held_out.jsonl", "--eval.steps", "10"]
REWARD = ["--reward.remote_url", "r.py"]
OWN = ["--actor.model_name_or_path", "m", "--data.prompt_dataset", "d.jsonl", *REWARD, *EVALUATION]


def study(folder, **changes):
    settings = {"estimators": ["rloo", "grpo"], "steps": 20, "seeds": "2"}
    return StackStudy(**(settings | changes), out=folder)


def test_a_run_of_ones_own_is_the_given_flags_and_those_of_the_study(tmp_path):
    settings = study(tmp_path, train=[*OWN, "--js.loss", "token_mean"], learning_rates=[1e-6])
    runs = settings.runs()
    assert len(runs) == 4
    command = stack.training_command(runs[-1], settings)
    flags = dict(itertools.pairwise(command))  # the last value of a flag counts, as in argparse
    assert flags["--actor.model_name_or_path"] == "m"
    assert flags["--algo.advantage.estimator"] == "group_norm"  # OpenRLHF's name of grpo
    assert flags["--train.seed"] == "1"
    assert flags["--js.max_steps"] == "20"
    assert flags["--js.loss"] == "token_mean"
    assert flags["--train.batch_size"] == "32"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"mixes": ["alike"]}, "--mixes"),
        ({"width": 64}, "--width"),
        ({"tasks": ["uniq"]}, "unknown task 'uniq'"),
        ({"train": OWN[:-2]}, "--eval.steps"),
        ({"train": ["--data.prompt_dataset", "d"]}, "--actor.model_name_or_path MODEL"),
        ({"train": [*OWN[:4], *EVALUATION]}, "--reward.remote_url"),
    ],
)
def test_what_the_stack_cannot_train_is_refused(flags, message):
    with pytest.raises(SettingsError, match=message):
        StackStudy(**flags)


def test_the_training_program_knows_every_flag_of_a_tiny_run(tmp_path):
    pytest.importorskip("openrlhf")
    from openrlhf_js.trainers.openrlhf import flags as plugin_flags
    from openrlhf_js.trainers.openrlhf.flags.parser import upstream_parser

    settings = study(tmp_path, mixes=["mixed"], held_out=20)
    run = settings.runs()[0]
    parser = upstream_parser()
    plugin_flags.add_flags(parser)
    command = stack.training_command(run, settings)
    parsed = vars(parser.parse_args(command[3:]))
    assert parsed["actor.model_name_or_path"] == str(settings.start_of("sort"))
    assert parsed["train.micro_batch_size"] == 8
    assert parsed["js.group_micro_batches"]
    assert parsed["actor.lr_scheduler"] == "constant"
    assert parsed["rollout.n_samples_per_prompt"] == 2
    lines = Path(parsed["data.prompt_dataset"]).read_text().splitlines()
    problems = prompts.training_problems(run, settings)
    for line, problem in zip(lines, problems, strict=True):
        row = json.loads(line)
        assert row["input"] == problem.prompt
        assert row["label"] == problem.label


def trained(run, settings, evaluations=((10, 0.25), (20, 0.75)), deviation=0.0):
    """Leaves what a finished job leaves: log, outcome and command."""
    folder = stack.folder_of(run, settings)
    log = folder / "tensorboard" / run.name
    with SummaryWriter(str(log)) as writer:
        for step in range(1, 21):
            writer.add_scalar("train/rollout/reward_mean", step / 20, step)
            writer.add_scalar("train/rollout/reward_std", deviation, step)
            writer.add_scalar("js/value_error", 1.0, step)
            writer.add_scalar("js/value_error_rloo", 4.0, step)
        for step, pass1 in evaluations:
            writer.add_scalar("eval/eval_d_pass1", pass1, step)
    (log / "openrlhf_js.yaml").write_text("record: {outcome: done}\n")
    (folder / "command.txt").write_text(shlex.join(stack.training_command(run, settings)))


def test_a_cluster_gets_the_runs_that_have_not_finished(tmp_path, capsys):
    folder = tmp_path / "a study"
    data = tmp_path / "d.jsonl"
    data.write_text("{}")
    printed = study(folder, train=["--data.prompt_dataset", str(data), *EVALUATION], print=True)
    cli.work(printed)
    commands = (folder / "commands.txt").read_text().splitlines()
    assert capsys.readouterr().out.splitlines() == commands  # and nothing else
    for command, run in zip(commands, printed.runs(), strict=True):
        assert shlex.split(command) == stack.training_command(run, printed)

    settings = printed.model_copy(update={"print": False})
    with pytest.raises(ValueError, match=r"4 of 4 runs have not finished.*no seed is whole"):
        running.run_all(settings)
    *first_runs, last_run = settings.runs()
    for run in first_runs:
        trained(run, settings)
    cli.work(printed)
    assert (folder / "commands.txt").read_text().splitlines() == commands[3:]
    rloo, grpo = running.run_all(settings)  # the seed of which all runs are there
    assert (rloo["estimator"], rloo["seed"]) == ("rloo", 0)
    assert (grpo["estimator"], grpo["seed"]) == ("grpo", 0)
    assert "1 of 4 runs have not finished, first own-" in capsys.readouterr().err
    trained(last_run, settings)
    assert len(running.run_all(settings)) == 4
    with pytest.raises(ValueError, match="all runs have finished"):
        cli.work(printed)
    data.write_text("{ }")  # other data under the same name are no pairs
    with pytest.raises(ValueError, match="holds records of other settings"):
        running.run_all(settings)


def test_a_cluster_gets_a_budget_stage_by_stage(tmp_path, monkeypatch, capsys):
    data = tmp_path / "d.jsonl"
    data.write_text("{}")
    changes = {"budget": 8, "splits": [2, 4], "learning_rates": [1e-4], "choice_seeds": "100-101"}
    train = ["--data.prompt_dataset", str(data), *EVALUATION]
    settings = study(tmp_path, train=train, **changes)
    printed = settings.model_copy(update={"print": True})
    monkeypatch.setattr(stack, "supervised", None)  # nothing is trained here
    stages = []
    for _ in range(3):
        capsys.readouterr()
        cli.work(printed)
        commands = capsys.readouterr().out.splitlines()
        assert (tmp_path / "commands.txt").read_text().splitlines() == commands
        with pytest.raises(ValueError, match=r"have not finished.*no seed is whole"):
            running.run_all(settings)
        with running.store_of(settings) as store:
            runs = [run for run in all_runs(settings, store.records) if run not in store]
        stages.append({run.seed for run in runs})
        assert commands == [shlex.join(stack.training_command(run, settings)) for run in runs]
        for run in runs:
            trained(run, settings)
    assert stages == [{100, 101}, {100, 101}, {0, 1}]  # splits, their neighbours, final seeds
    with pytest.raises(ValueError, match="all runs have finished"):
        cli.work(printed)
    assert {record["seed"] for record in running.run_all(settings)} == {0, 1, 100, 101}


def test_data_and_models_are_known_by_their_contents(tmp_path):
    for name in ("a", "b", "model/weights", "checkpoints/weights"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    train = [
        f"--data.prompt_dataset={tmp_path}/a,{tmp_path}/b",
        *("--ckpt.path", f"{tmp_path}/checkpoints"),
        *("--actor.model_name_or_path", f"{tmp_path}/model"),
        *REWARD,
        *EVALUATION,
    ]
    before = study(tmp_path, train=train).files()
    assert before.keys() == {f"{tmp_path}/a", f"{tmp_path}/b", f"{tmp_path}/model"}
    assert study(tmp_path, train=train).title == "rloo, grpo: b with model"
    (tmp_path / "model/weights").write_text("other")
    after = study(tmp_path, train=train).files()
    assert {name for name in before if before[name] != after[name]} == {f"{tmp_path}/model"}


def test_a_finished_run_is_read_and_not_trained_again(tmp_path, monkeypatch):
    settings = study(tmp_path, train=OWN)
    run = settings.runs()[0]
    trained(run, settings)
    monkeypatch.setattr(stack, "supervised", None)  # nothing is started
    trained_figures = stack.train(run, settings, print)
    assert trained_figures.pass1 == 0.75  # the last evaluation
    assert trained_figures.baseline_error == 1.0 / 4.0
    assert trained_figures.reward == pytest.approx(fmean(range(1, 21)) / 20)
    assert len(trained_figures.curve) == 20
    assert trained_figures.rewards_in_unit
    scored = settings.runs()[2]
    trained(scored, settings, deviation=1.0)  # as of a reward model's scores
    assert not stack.train(scored, settings, print).rewards_in_unit
    with pytest.raises(ValueError, match="trained with other flags"):
        stack.train(run, study(tmp_path, train=OWN, steps=30), print)
    other = settings.runs()[1]
    trained(other, settings, evaluations=[(20, math.nan)])
    with pytest.raises(ValueError, match=r"-grpo-0\.0003-0 has logged no finite evaluation"):
        stack.train(other, settings, print)


def test_a_log_that_grows_is_followed_and_what_a_resume_undid_is_gone(tmp_path):
    logged = Scalars(tmp_path / "log")
    assert logged["a"].empty
    with SummaryWriter(str(tmp_path / "log")) as writer:
        for step, value in enumerate([1.0, math.nan, 3.0, 4.0], start=1):
            writer.add_scalar("a", value, step)
        writer.flush()
        logged.reload()
        assert logged["a"].to_dict() == {1: 1, 3: 3, 4: 4}
        writer.add_scalar("a", 5.0, 5)
        writer.flush()
        (path,) = (tmp_path / "log").iterdir()
        whole = path.read_bytes()
        path.write_bytes(whole[:-5])  # a record in the making
        assert list(Scalars(tmp_path / "log")["a"].index) == [1, 3, 4]
        path.write_bytes(whole)
    time.sleep(1)  # files are read in the order of their names, which begin with the second
    with SummaryWriter(str(tmp_path / "log"), purge_step=4, filename_suffix=".2") as writer:
        writer.add_scalar("a", 40.0, 4)
    logged.reload()
    assert logged["a"].to_dict() == {1: 1, 3: 3, 4: 40}
