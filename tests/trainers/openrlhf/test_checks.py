"""Checks before a run: every problem in one go, one line each, before anything is loaded."""

import gzip
import shutil
from pathlib import Path
from zipfile import ZipFile

import datasets
import pytest
from kit import flag_table, save_policy, save_scorer, write_lines

from openrlhf_js.cli.train import main
from openrlhf_js.common.environment import RUN_ID
from openrlhf_js.trainers.openrlhf import flags
from openrlhf_js.trainers.openrlhf.checks import check, start
from openrlhf_js.trainers.openrlhf.checks.models import reward_model_problems
from openrlhf_js.trainers.openrlhf.flags.parser import upstream_parser
from openrlhf_js.trainers.openrlhf.run.record import SETTINGS, recorded
from openrlhf_js.trainers.openrlhf.upstream import BadInput

GOOD = {
    "actor.model_name_or_path": "model",
    "data.prompt_dataset": "prompts.jsonl",
    "data.input_key": "question",
    "data.label_key": "answer",
    "reward.model_name_or_path": "OpenRLHF/Llama-3-8b-rm-700k",
    "algo.advantage.estimator": "js",
    "rollout.batch_size": "4",
    "rollout.n_samples_per_prompt": "4",
    "train.batch_size": "8",
    "vllm.num_engines": "1",
    "actor.num_gpus_per_node": "1",
    "ref.num_gpus_per_node": "1",
    "reward.num_gpus_per_node": "1",
}
PARSER = upstream_parser()
flags.add_flags(PARSER)


@pytest.fixture(scope="session")
def policy(tmp_path_factory):
    """The tokenizer and the configuration of a tiny policy."""
    folder = save_policy(tmp_path_factory.mktemp("policy") / "model")
    (folder / "model.safetensors").unlink()
    return folder


@pytest.fixture(autouse=True)
def folder(policy, tmp_path, monkeypatch):
    """A folder in which the command line GOOD has nothing wrong."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(RUN_ID, raising=False)  # of a run in this process
    for name in ("model", "other_model"):
        shutil.copytree(policy, name)
    write_prompt_files()
    write_user_files()
    monkeypatch.setattr(start, "find_device", lambda: ("gpu", "nvidia-smi is there"))
    return tmp_path


def write_prompt_files() -> None:
    """Prompts of all kinds: right ones, and files with a defect each."""
    rows = [{"question": f"{number}?", "answer": str(number)} for number in range(8)]
    write_lines("prompts.jsonl", rows)
    write_lines("nine.jsonl", [*rows, rows[0]])
    unlabelled = [{"question": "3?", "answer": label} for label in (None, "", "3")]
    write_lines("null.jsonl", [*unlabelled, *rows])
    write_lines("listed.jsonl", [{**row, "answer": ["42"]} for row in rows])
    sources = ("math/a", "math", "maze", None)
    write_lines(
        "sources.jsonl",
        [{"question": "3?", "answer": "3", "datasource": source} for source in sources],
    )
    Path("p.csv").write_text("question,answer\n" + "1?,1\n" * 4)
    write_other_files(rows)

    chat = {"question": [{"role": "user", "content": "1?"}], "answer": "1"}
    write_lines("chat.jsonl", [chat] * 4)

    images = ["http://a/b.png", "data:image/png;base64,aa", "a" * 300]
    figures = [{"question": "1?", "answer": "1", "images": images}] * 3
    figures.append({"question": "2?", "answer": "2"})
    missing = {"question": "3?", "answer": "1", "images": ["no/1.png"]}
    write_lines("figures.jsonl", figures)
    write_lines("gone.jsonl", [*figures, missing])


def write_other_files(rows: list[dict[str, str]]) -> None:
    """Files in other formats, and folders."""
    lines = Path("prompts.jsonl").read_bytes()
    Path("packed.jsonl.gz").write_bytes(gzip.compress(lines))
    Path("table.tsv").write_text("question\tanswer\n1?\t1\n")
    Path("latin.jsonl").write_bytes('{"question": "\xe9?", "answer": "1"}\n'.encode("latin1"))
    Path("folder").mkdir()
    Path("folder/test.jsonl").write_bytes(lines)
    Path("folder/train.jsonl").write_bytes(lines)
    table = datasets.Dataset.from_list(rows)
    datasets.DatasetDict({"train": table, "test": table}).save_to_disk("saved")


def write_user_files() -> None:
    """Graders, agents and baselines: right ones, and some that do not fit."""
    right = "def reward_func(q, p, l): return {'rewards': [len(q[0])]}\n"
    Path("reward.py").write_text(right)
    for name, task in (("mathematics", "math"), ("own", "summarise"), ("mixed", "by_datasource")):
        Path(f"{name}.py").write_text(f"TASK = {task!r}\n{right}")
    Path("mine.py").write_text(
        "def half(batch): return batch.rewards * 0 + 0.5\n"
        "def narrow(batch): return batch.rewards[0]\n"
        "class Tracker:\n"
        "    baseline = staticmethod(half)\n"
        "    def learn(self, batch): ...\n"
    )
    Path("agent.py").write_text("class AgentExecutor: ...")
    Path("broken.py").write_text("\ndef reward_func(q, p, l):\n    return !\n")
    Path("uses_broken.py").write_text("import broken\n")
    write_graders()


def write_graders() -> None:
    """Reward functions, a file each; most cannot be trained on."""
    Path("graders").mkdir()
    bodies = {
        "text": "return 'good'",
        "misnamed": "return {'reward': [1.0]}",
        "no_number": "return {'rewards': [float('nan')]}",
        "scored": "return {'rewards': [1.0], 'scores': ['high']}",
        "logging": "return {'rewards': [1.0], 'extra_logs': {'why': 'right'}}",
        "raising": "return {'rewards': [labels[0]['gold']]}",
        "killed": "import os; os._exit(1)",
        "looping": "while True: pass",
    }
    for name, body in bodies.items():
        code = f"def reward_func(queries, prompts, labels):\n    {body}\n"
        Path("graders", f"{name}.py").write_text(code)
    for name, signature in {"two": "queries, labels", "any": "*lists"}.items():
        code = f"def reward_func({signature}): return {{'rewards': [1.0]}}\n"
        Path("graders", f"{name}.py").write_text(code)
    Path("graders/number.py").write_text("reward_func = 1\n")


def argv(changes: dict[str, str | None]) -> list[str]:
    """The words of GOOD with changes; None leaves a flag out, and "" has no value."""
    words = []
    for name, value in {**GOOD, **changes}.items():
        if value is not None:
            words.append(f"--{name}={value}" if value else f"--{name}")
    return words


def problems(changes: dict[str, str | None]) -> list[str]:
    try:
        check(PARSER.parse_args(argv(changes)))
    except BadInput as error:
        return str(error).splitlines()
    return []


def the_problem(changes: dict[str, str | None]) -> str:
    (line,) = problems(changes)
    return line


TABLE = list(flag_table(Path(__file__).with_name("checks.txt")))


@pytest.mark.parametrize("changes", [changes for works, changes, _ in TABLE if works], ids=str)
def test_what_works_passes(changes):
    assert problems(changes) == []


@pytest.mark.parametrize(("changes", "said"), [row for works, *row in TABLE if not works], ids=str)
def test_what_does_not_is_one_line_that_names_it(changes, said):
    assert said in the_problem(changes)


def test_a_gpu_is_refused_where_the_stack_has_none(monkeypatch):
    monkeypatch.setattr(start, "find_device", lambda: ("cpu", start.CPU_STACK))
    assert "the installed stack is the one for CPU" in the_problem({"js.device": "gpu"})
    assert problems({}) == []


def test_the_program_prints_all_problems_and_ends_with_status_2(capsys):
    bad = argv({"actor.model_name_or_path": "./none", "data.input_key": "q"})
    assert main(bad) == 2
    shown = capsys.readouterr()
    first, second = [line for line in shown.err.splitlines() if line.startswith("openrlhf_js: ")]
    assert "./none" in first
    assert "there are question, answer" in second
    assert shown.out == ""


def test_problems_of_flags_files_data_and_graders_are_named_at_the_first_try():
    changes = {
        "algo.advantage.estimator": None,
        "train.batch_size": "7",
        "train.partial_rollout_enable": "",
        "actor.model_name_or_path": "./none",
        "data.prompt_dataset": "none.jsonl,p.csv",
        "data.input_key": "q",
        "data.label_key": "l",
        "reward.remote_url": "graders/text.py",
        "eval.dataset": "listed.jsonl",
        "ckpt.load_enable": "",
    }
    expected = [
        "--algo.advantage.estimator",
        "--train.batch_size",
        "--train.async_enable",
        "--actor.model_name_or_path",
        "--eval.dataset",
        "--ckpt.load_enable",
        "--data.prompt_dataset",
        "p.csv",
        "--eval.dataset",
        "graders/text.py",
    ]
    found = problems(changes)
    assert len(found) == len(expected)
    for said, line in zip(expected, found, strict=True):
        assert said in line
    # what takes the tokenizer, where the flags fit each other
    bad = {"data.max_len": "1", "reward.remote_url": "graders/two.py", "eval.dataset": "none.csv"}
    found = problems({**bad, "eval.steps": "1"})
    named = [line.partition(" ")[0] for line in found]
    assert named == ["--eval.dataset", "--data.prompt_dataset", "--reward.remote_url"]


# --- folders ------------------------------------------------------------------------------------


LEFT = {
    "ckpt.path": "_actor/global_step2",
    "ckpt.output_dir": "model-00001-of-00002.safetensors",
    "logger.tensorboard_dir": "js[1]/events.out.tfevents.1.host",
    "js.save_batches": "batch_000001.npz",
}


@pytest.mark.parametrize("flag", LEFT)
def test_the_folders_of_an_earlier_run_are_refused_but_not_to_a_restart(flag, monkeypatch):
    changes = {"logger.wandb.run_name": "js[1]", flag: "old"}
    Path("old", LEFT[flag]).parent.mkdir(parents=True)
    Path("old", "notes.txt").touch()
    assert problems(changes) == []
    Path("old", LEFT[flag]).touch()
    problem = the_problem(changes)
    assert f"--{flag} old" in problem and "--js.requeued" in problem
    Path("ckpt/checkpoints_ppo_ray/_actor").mkdir(parents=True)
    Path("old/_actor").mkdir(exist_ok=True)
    for path in ("ckpt/checkpoints_ppo_ray", "old"):
        Path(path, "_actor/latest").write_text("global_step2")
    assert "--ckpt.load_enable" in problems(changes)[0]
    assert problems({**changes, "ckpt.load_enable": ""}) == []
    assert problems({**changes, "js.requeued": ""}) == []


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_checkpoint_is_resumed_on_the_ranks_that_it_is_of(ranks):
    checkpoint = Path("run/_actor/global_step2")
    checkpoint.mkdir(parents=True)
    for rank in range(ranks):
        (checkpoint / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").touch()
    (checkpoint.parent / "latest").write_text("global_step2")
    resumed = {"ckpt.path": "run", "ckpt.load_enable": ""}
    assert problems({**resumed, "actor.num_gpus_per_node": str(ranks)}) == []
    problem = the_problem({**resumed, "actor.num_gpus_per_node": str(3 - ranks)})
    assert f"{checkpoint} is of {ranks} ranks" in problem
    (checkpoint.parent / "latest").write_text("")
    assert problems({**resumed, "actor.num_gpus_per_node": str(ranks)}) == []


@pytest.mark.parametrize(("file", "task"), [("graders/any.py", ""), ("mathematics.py", "math")])
def test_the_trainer_is_told_which_task_the_reward_file_grades(file, task):
    checked = check(PARSER.parse_args(argv({"reward.remote_url": file})))
    assert checked.task == checked.nested.js.task == task


# --- a resumed run ------------------------------------------------------------------------------


@pytest.fixture
def earlier_run():
    """A checkpoint of a run with the flags GOOD, and its record."""
    latest = Path("ckpt/checkpoints_ppo_ray/_actor/latest")
    checkpoint = latest.with_name("global_step2")
    checkpoint.mkdir(parents=True)
    latest.write_text(checkpoint.name)
    with ZipFile(checkpoint / "rank_0_optim_states.pt", "w"):
        pass
    with recorded(PARSER.parse_args(argv({})), PARSER):
        pass


RESUMED = {"ckpt.load_enable": ""}
OTHER_RUN = [
    ({"data.prompt_dataset": "p.csv"}, "--data.prompt_dataset prompts.jsonl (now p.csv)"),
    ({"actor.adam.lr": "1e-5"}, "--actor.adam.lr 1e-06 (now 1e-05)"),
    ({"algo.advantage.estimator": "rloo"}, "--algo.advantage.estimator js (now rloo)"),
    ({"actor.model_name_or_path": "other_model"}, "--actor.model_name_or_path model (now other"),
]


def resumed(changes: dict[str, str]) -> list[str]:
    """The problems of a resumed run; a value with spaces is several."""
    words = argv(RESUMED | {name: value for name, value in changes.items() if " " not in value})
    for name, value in changes.items():
        if " " in value:
            words += [f"--{name}", *value.split()]
    try:
        check(PARSER.parse_args(words))
    except BadInput as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize(("changes", "said"), OTHER_RUN, ids=str)
def test_a_resumed_run_that_trains_something_else_is_refused(changes, said, earlier_run, capsys):
    (flag,) = changes
    (line,) = resumed(changes)
    assert line.startswith(f"--ckpt.load_enable: the run in ckpt/checkpoints_ppo_ray had {said}")
    assert line.endswith(f"--js.changed {flag}")
    capsys.readouterr()
    if flag.startswith("data."):
        (line,) = resumed({**changes, "js.changed": f"{flag} train.seed"})
        assert "the schedule of the learning rate would be over other steps" in line
        changes = {**changes, "actor.lr_scheduler": "constant"}
    named = f"{flag} train.seed actor.lr_scheduler"
    assert resumed({**changes, "js.changed": named}) == []
    assert f"the checkpoint's run had {said}" in capsys.readouterr().out


def test_all_that_a_resumed_run_changes_is_one_line(earlier_run, monkeypatch, capsys):
    changes = {"train.seed": "7", "actor.adam.lr": "1e-5", "data.max_len": "100"}
    (line,) = resumed(changes)
    assert line.endswith("--js.changed actor.adam.lr data.max_len train.seed")
    (line,) = resumed({"js.changed": "seed actor.adam.lr"})
    assert "--js.changed seed" in line
    assert main(argv({"js.requeued": "", "train.seed": "7"})) == 2
    assert "--train.seed 42 (now 7)" in capsys.readouterr().err
    Path("ckpt/checkpoints_ppo_ray", SETTINGS).unlink()
    assert resumed({"train.seed": "7"}) == []
    assert "is not known" in capsys.readouterr().out


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"logger.logging_steps": "5", "logger.wandb.run_name": "again", "ckpt.save_steps": "7"},
        {"vllm.num_engines": "2", "train.micro_batch_size": "2", "js.on_bad_reward": "mask"},
        {"js.requeued": "", "js.dry_run": ""},
        {"js.max_steps": "9", "actor.lr_scheduler": "cosine_with_min_lr"},
    ],
    ids=str,
)
def test_what_does_not_change_the_training_may_change(changes, earlier_run, capsys):
    assert resumed(changes) == []
    assert ("--js.max_steps 0 (now 9): the schedule" in capsys.readouterr().out) == (
        "js.max_steps" in changes
    )


# --- prompt files ------------------------------------------------------------------------------


# --- a reward model in Ray ---------------------------------------------------------------------


def test_a_reward_model_in_ray_must_have_the_policys_tokens_a_head_and_its_scale(tmp_path):
    policy = save_policy(tmp_path / "policy")
    scorer = save_scorer(tmp_path / "rm")
    other = save_scorer(tmp_path / "other", "countdown")
    expected = {
        (scorer, False): None,
        (scorer, True): "mean and std",
        (policy, False): "no value head",
        (other, False): "which would read different text from what was written",
    }
    for (folder, normalize), said in expected.items():
        problems = list(reward_model_problems(str(folder), str(policy), "score", normalize))
        assert len(problems) == (said is not None)
        assert all(said in problem for problem in problems)
