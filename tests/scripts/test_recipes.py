"""The recipes' own files: each can be read, checked and tried without a GPU."""

import functools
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import pytest
from kit import PRINT, command, tried_in, try_recipe

from answer_graders.programs.data import task_settings
from answer_graders.programs.settings import parse
from answer_graders.tasks import TASKS
from baseline_research.cli import recipe
from openrlhf_js.cli import rm
from openrlhf_js.trainers.openrlhf import gpu_memory
from openrlhf_js.trainers.openrlhf.checks import rewards
from openrlhf_js.trainers.openrlhf.checks.rewards import UserFile

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RLHF = "scripts/recipes/rlhf_llama3.2_3b.sh"


ONE_CARD = "scripts/recipes/one_card_24gb.sh"
NO_TRAINING = ("lab_", "paper", "gsm8k_table")
RECIPES = [
    str(path.relative_to(ROOT))
    for path in sorted((ROOT / "scripts/recipes").glob("*.sh"))
    if not path.name.startswith(NO_TRAINING)
]
REWARD_MODEL = "reward_models/train_llama3_8b_rm.sh"
SERVE = "reward_models/serve.sh"


LOADING = rewards.loading


@functools.cache
def load_once(path: str, name: str) -> UserFile:
    with LOADING(path, name, "cpu", 100) as finish:
        return finish(None)


@pytest.fixture(autouse=True)
def each_grader_is_loaded_once(monkeypatch):
    """In a process of its own, which takes seconds."""

    @contextmanager
    def loading(path, name, *_):
        yield lambda _: load_once(path, name)

    monkeypatch.setattr(rewards, "loading", loading)


def dry_run(capsys, path: str, *flags: str, status: int = 0) -> str:
    """What a recipe's dry run prints, on stderr where it fails."""
    option, module, *arguments = command(path, *flags)
    assert (option, module) == ("-m", "baseline_research.cli.recipe")
    assert recipe.main(arguments) == status
    shown = capsys.readouterr()
    return shown.err if status else shown.out


@pytest.mark.parametrize("path", RECIPES)
def test_a_recipe_passes_every_check(capsys, path):
    flags = settings(dry_run(capsys, path, "--dry_run", "--verbose"))
    assert flags["algo.advantage.estimator"] == ("js_grad" if path == ONE_CARD else "js")
    if flags["ds.lora.rank"] != "0":
        assert flags["ds.lora.alpha"] == flags["ds.lora.rank"]


def listed(output: str) -> dict[str, str]:
    """Flag -> value, of the settings of a laboratory that are not at their default."""
    return dict(re.findall(r"^\* --(\S+) (.*)$", output, re.MULTILINE))


def settings(output: str) -> dict[str, str]:
    """Flag -> value, of the settings of a training, which the dry run prints with --verbose."""
    return dict(re.findall(r"^(\w+\.[\w.]+): (.*)$", output, re.MULTILINE))


def test_variables_choose_estimator_seed_and_the_experiments_own_axis(capsys, monkeypatch):
    for variable in ("ESTIMATOR=remax", "SEED=3", "M=8", "GPUS=2", "PEOPLE=2 9 3"):
        monkeypatch.setenv(*variable.split("="))
    shown = settings(dry_run(capsys, "scripts/recipes/gsm8k_0.5b.sh", "--dry_run", "--verbose"))
    assert (shown["algo.advantage.estimator"], shown["train.seed"]) == ("remax", "3")
    assert (shown["rollout.n_samples_per_prompt"], shown["train.batch_size"]) == ("8", "512")
    assert shown["vllm.num_engines"] == "2"
    assert shown["ckpt.output_dir"] == "runs/gsm8k_0.5b_m8/remax-3/model"
    words = command("scripts/recipes/knk_heterogeneity_1.5b.sh", "--dry_run")
    assert "runs/data/knk_heterogeneity_1.5b_2_9_3/train.jsonl" in words


@pytest.mark.parametrize("name", ["maze_8b", "gsm8k_table"])
def test_variables_of_other_programs_change_nothing(monkeypatch, name):
    for variable in ("dataset", "variant", "OUT"):
        monkeypatch.setenv(variable, "theirs")
    words = command(f"scripts/recipes/{name}.sh", "--dry_run")
    assert "theirs" not in " ".join(words)


@pytest.mark.parametrize("name", ["knk_1.5b", "gsm8k_table"])
def test_help_of_a_recipe_is_its_comment_and_builds_nothing(tmp_path, name):
    recipe = ROOT / f"scripts/recipes/{name}.sh"
    call = subprocess.run(
        ["bash", recipe, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    first, second = recipe.read_text().splitlines()[1:3]
    assert call.stdout.startswith(f"{first[2:]}\n{second[2:]}\n")
    assert "\nESTIMATOR=rloo" in call.stdout and "shellcheck" not in call.stdout
    assert not [*tmp_path.iterdir()]


def test_a_recipe_builds_the_data_that_is_missing(tmp_path):
    """All commands of all recipes are ones that `data build` takes."""
    shutil.copytree(ROOT / "scripts/recipes", tmp_path / "scripts/recipes")
    echo = f"{tmp_path}/.venv/bin/openrlhf-js() {{ printf '%s\\n' \"$*\" >> built; }}; {PRINT}"
    for path in RECIPES:
        subprocess.run(["bash", "-c", echo, str(tmp_path / path)], cwd=tmp_path, check=True)
    built = (tmp_path / "built").read_text().splitlines()
    assert len(built) > len(RECIPES)
    for line in built:
        kind, build, task, *flags = line.split()
        assert (kind, build) == ("data", "build")
        settings = parse(task_settings(TASKS[task]), "", flags)
        assert settings.out.parent == Path("runs/data") and settings.name


def test_the_recipe_for_one_card_needs_no_more_than_it(capsys):
    shown = settings(dry_run(capsys, ONE_CARD, "--dry_run", "--verbose"))
    assert shown["algo.advantage.estimator"] == "js_grad"
    assert shown["vllm.enable_sleep"] == shown["ds.enable_sleep"] == "true"
    length = int(shown["data.max_len"])
    run = gpu_memory.Run(
        gpu_memory.Model(1536, 8960, 28, 12, 2, 151_936, True),  # config.json of Qwen2.5 1.5B
        rank=int(shown["ds.lora.rank"]),
        tokens=int(shown["train.micro_batch_size"]) * length,
        length=length,
    )
    assert shown["actor.model_name_or_path"] == "Qwen/Qwen2.5-1.5B-Instruct"
    assert gpu_memory.fits(run, card=24)
    assert float(shown["vllm.gpu_memory_utilization"]) >= gpu_memory.utilization(run, card=24)


def test_a_flag_that_follows_wins_and_is_checked(capsys):
    flags = ("--dry_run", "--verbose", "--rollout.n_samples_per_prompt", "8")
    assert settings(dry_run(capsys, RLHF, *flags))["rollout.n_samples_per_prompt"] == "8"
    error = dry_run(capsys, RLHF, "--dry_run", "--train.batch_size", "100", status=2)
    assert "--train.batch_size" in error
    shown = listed(dry_run(capsys, "scripts/recipes/lab_gradient_4b.sh", "--dry_run", "--m", "4"))
    assert shown["m"] == "4"


def test_the_reward_models_recipe_is_checked_pair_by_pair(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    output = dry_run(capsys, REWARD_MODEL, "--tiny", "--dry_run")
    assert re.search(r"^--data.dataset +512 ", output, re.MULTILINE)
    assert "\nadam.lr: 9.0e-06" in output and "\nmodel.model_name_or_path: /" in output


def test_the_server_script(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("REWARD_MODEL", str(tmp_path / "none"))
    option, module, *arguments = command(SERVE, "--port", "0")
    assert (option, module) == ("-m", "openrlhf_js.cli.rm")
    assert "--data.max_len 8192" in " ".join(arguments)
    assert rm.main(arguments) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err


def test_a_recipe_for_gpus_starts_deepspeeds_launcher(monkeypatch):
    called = []
    monkeypatch.setattr(os, "execv", lambda program, argv: called.append(argv))
    recipe.main(["rm-train", "--adam.lr", "1e-3"])
    launcher = ["-m", "deepspeed.launcher.runner", "--no_local_rank", "--module"]
    assert called[0][1:] == [*launcher, "openrlhf_js.cli.rm", "train", "--adam.lr", "1e-3"]


@pytest.mark.parametrize("name", ["lab_mse_4b", "lab_gradient_4b", "lab_heterogeneity_7b"])
def test_a_measurement_passes_every_check(capsys, name):
    shown = listed(dry_run(capsys, f"scripts/recipes/{name}.sh", "--dry_run"))
    assert shown["apply_chat_template"] == "True"


def test_a_measurement_finds_the_checkpoints_of_the_run_before_it():
    text = (ROOT / "scripts/recipes/lab_mse_4b.sh").read_text()
    (before,) = re.findall(r"bash (scripts/recipes/math_4b.sh --ckpt.save_hf --\S+ \d+)", text)
    measured = re.search(r'global_step%d_hf " ([\d ]+)', text)[1].split()
    assert int(before.split()[-1]) == len(measured)
    assert f"bash {before} " in (ROOT / "docs/reproduce.md").read_text()


def test_a_tried_measurement_has_a_tiny_model_and_its_prompts(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    output = dry_run(capsys, "scripts/recipes/lab_heterogeneity_7b.sh", "--tiny", "--dry_run")
    shown = listed(output)
    for file in map(Path, shown["prompts"].split()):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        assert {row["datasource"] for row in rows} == {file.stem}
    assert (Path(shown["model"]) / "config.json").is_file()


def test_the_table_of_gsm8k_is_one_command(tmp_path, monkeypatch, capsys):
    """Its 90 runs as commands for a cluster, and the table from what some of them left."""
    data = tmp_path / "runs/data/gsm8k"
    data.mkdir(parents=True)
    for name in ("train", "test"):
        (data / f"{name}.jsonl").write_text('{"input": "1 + 1", "label": "2"}\n')
    script = ROOT / "scripts/recipes/gsm8k_table.sh"
    printed = subprocess.run(
        ["bash", script, "--print"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    commands = (tmp_path / "runs/gsm8k_table/commands.txt").read_text().splitlines()
    assert len(commands) == 90
    assert printed.stdout.splitlines() == commands
    assert len({re.search(r"run_name (\S+)", command)[1] for command in commands}) == 90
    for words in ("--actor.adam.lr 1e-06", "--train.batch_size 512", "--eval.temperature 0.5"):
        assert words in commands[-1]

    store = tmp_path / "runs/gsm8k_table/runs-stack.jsonl"
    identity = store.read_text().splitlines()[0]
    accuracies = {  # of two seeds after the last step: the paper's, with two responses
        "rloo": (0.5489, 0.5356),
        "js": (0.5468, 0.5612),
    }
    lines = [identity]
    for estimator, finals in accuracies.items():
        for seed, pass1 in enumerate(finals):
            run = {"task": "own", "mix": "natural", "prompts": 64, "responses": 2}
            run |= {"estimator": estimator, "learning_rate": 1e-6, "seed": seed, "pass1": pass1}
            lines.append(json.dumps(run))
    store.write_text("\n".join(lines) + "\n")
    table = str(ROOT / "scripts/recipes/gsm8k_table.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [table])
    runpy.run_path(table, run_name="__main__")
    shown = capsys.readouterr().out
    assert "| `rloo` | 54.23 |" in shown
    assert "| `js` | 55.40 |" in shown
    assert "| `js` - `rloo` | +1.17 (" in shown
    monkeypatch.chdir(ROOT / "tests")
    with pytest.raises(SystemExit, match=r"gsm8k_table\.sh trains and writes it"):
        runpy.run_path(table, run_name="__main__")


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_a_recipe_can_be_tried_as_a_user_tries_it(tmp_path):
    """Another recipe each day."""
    path = ROOT / RECIPES[date.today().toordinal() % len(RECIPES)]
    plain = {name: os.environ[name] for name in ("HOME", "PATH")}
    log = tmp_path / "log"
    with log.open("wb") as file:
        run = subprocess.Popen(
            ["bash", path, "--tiny"],
            env=plain,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    check_trained(tried_in(run, log))


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_the_reward_models_recipe_can_be_tried():
    check_trained(try_recipe(REWARD_MODEL))


def check_trained(folder: Path) -> None:
    assert (folder / "model" / "config.json").is_file()
    assert list((folder / "tensorboard").rglob("events*"))
