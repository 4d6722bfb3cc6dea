"""What is known to fail is said before anything is loaded: every problem, one line each."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from openrlhf_js.plugin import flags, preflight
from openrlhf_js.plugin.errors import BadInput
from openrlhf_js.plugin.parser import upstream_parser

GOOD = {
    "actor.model_name_or_path": "model",
    "data.prompt_dataset": "prompts.jsonl",
    "data.input_key": "question",
    "data.label_key": "answer",
    "reward.remote_url": "reward.py",
    "algo.advantage.estimator": "js",
    "rollout.batch_size": "4",
    "rollout.n_samples_per_prompt": "4",
    "train.batch_size": "8",
    "vllm.num_engines": "1",
    "actor.num_gpus_per_node": "1",
}
PARSER = upstream_parser()
flags.add_flags(PARSER)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder in which the command line GOOD has nothing wrong."""
    monkeypatch.chdir(tmp_path)
    model(tmp_path / "model", "config.json", "model.safetensors", "tokenizer.json")
    rows = [{"question": f"{i}?", "answer": str(i)} for i in range(8)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (tmp_path / "reward.py").write_text("raise SystemExit\ndef reward_func(q, p, l): ...\n")
    return tmp_path


def model(path, *files):
    path.mkdir()
    for name in files:
        (path / name).touch()


def argv(changes: dict[str, str | None]) -> list[str]:
    pairs = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    return [f"--{name}={value}" if value else f"--{name}" for name, value in pairs.items()]


def problems(changes: dict[str, str | None] | None = None) -> list[str]:
    try:
        preflight.check(PARSER.parse_args(argv(changes or {})))
    except BadInput as error:
        return str(error).splitlines()
    return []


def the_problem(changes: dict[str, str | None]) -> str:
    (line,) = problems(changes)
    return line


def test_a_good_command_line_passes():
    assert problems() == []


def test_all_problems_are_said_at_once():
    bad = {"actor.model_name_or_path": "./none", "data.input_key": "q", "vllm.num_engines": None}
    said = "\n".join(problems(bad))
    assert said.count("\n") == 2
    assert "./none" in said and "'q'" in said and "--vllm.num_engines" in said


# estimators


@pytest.mark.parametrize("estimator", ["js_fixed", "bloo", "js1"])
def test_too_few_prompts(estimator):
    shrinkage = {"js.shrinkage": "0.5"} if estimator == "js_fixed" else {}
    changes = {
        "algo.advantage.estimator": estimator,
        "rollout.batch_size": "1",
        "train.batch_size": "4",
        **shrinkage,
    }
    assert f"{estimator} needs --rollout.batch_size of at least 2, got 1" in problems(changes)


@pytest.mark.parametrize(
    "estimator", ["js1", "rloo", "group_norm", "dr_grpo", "reinforce_baseline"]
)
def test_too_few_responses(estimator):
    changes = {
        "algo.advantage.estimator": estimator,
        "rollout.n_samples_per_prompt": "1",
        "train.batch_size": "4",
    }
    said = the_problem(changes)
    assert said == f"{estimator} needs --rollout.n_samples_per_prompt of at least 2, got 1"


def test_js_alone_with_one_reward():
    changes = {
        "rollout.batch_size": "1",
        "rollout.n_samples_per_prompt": "1",
        "train.batch_size": "1",
    }
    assert "at least 2 rewards" in the_problem(changes)


@pytest.mark.parametrize("estimator", ["js", "js_plus"])
@pytest.mark.parametrize("n, m", [("1", "4"), ("4", "1")])
def test_js_falls_back_with_one_prompt_or_one_response(estimator, n, m):
    changes = {
        "algo.advantage.estimator": estimator,
        "rollout.batch_size": n,
        "rollout.n_samples_per_prompt": m,
        "train.batch_size": "4",
    }
    assert problems(changes) == []


def test_masking_needs_a_baseline_that_can_leave_responses_out():
    masked = {"js.on_bad_reward": "mask"}
    assert problems({"algo.advantage.estimator": "js", **masked}) == []
    assert "js_fixed with --js.shrinkage 0 is rloo" in the_problem(
        {"algo.advantage.estimator": "rloo", **masked}
    )


def test_the_half_life_is_for_js_plus():
    plus = {"algo.advantage.estimator": "js_plus"}
    assert problems({**plus, "js.half_life": "50"}) == []
    assert "is for js_plus, not js" in the_problem({"js.half_life": "50"})
    for outside in ("0", "-1", "inf", "nan"):
        assert "more than 0, and finite" in the_problem({**plus, "js.half_life": outside})


def test_shrinkage_is_for_js_fixed():
    fixed = {"algo.advantage.estimator": "js_fixed"}
    assert problems({**fixed, "js.shrinkage": "0.5"}) == []
    assert "js_fixed needs --js.shrinkage" in the_problem(fixed)
    assert "is for js_fixed, not js" in the_problem({"js.shrinkage": "0.5"})
    for outside in ("-0.1", "1.5", "nan"):
        assert "from 0 to 1" in the_problem({**fixed, "js.shrinkage": outside})


# data


@pytest.mark.parametrize(
    "content, said",
    [
        ("", "is empty"),
        ("\n\n", "holds no prompt"),
        ('{"question": "1", "answer": "1"}\nnot json\n', "line 2: not JSON"),
        (
            '{"question": "1", "answer": "1"}\n\n{"prompt": "2", "answer": "2"}\n',
            "line 3: no value under the key 'question' (--data.input_key); "
            "keys seen: prompt, answer",
        ),
        (
            '{"question": "1"}\n',
            "line 1: no value under the key 'answer' (--data.label_key); keys seen: question",
        ),
        ('{"question": null, "answer": "1"}\n', "line 1: no value under the key 'question'"),
        ('{"question": 3, "answer": "1"}\n', "line 1: 'question' holds int; it must hold text"),
        ('["a"]\n', "item 1: not a JSON object, but str"),
        ('[{"question": "1", "answer": "1"},\n {"q": 2}]', "item 2: no value under the key"),
        ('[{"question": "1", "answer": "1"},\n {"q": 2]', "line 2: not JSON"),
        ("7\n", "line 1: not a JSON object, but int"),
    ],
)
def test_a_bad_prompt_file(content, said, folder):
    (folder / "bad.jsonl").write_text(content)
    line = the_problem({"data.prompt_dataset": "bad.jsonl"})
    assert line.startswith("--data.prompt_dataset bad.jsonl: ") and said in line


def test_a_prompt_file_that_is_no_text(folder):
    (folder / "bad.jsonl").write_bytes(b"\xff\xfe\x00")
    assert "line 1: not UTF-8 text" in the_problem({"data.prompt_dataset": "bad.jsonl"})


def test_the_same_problem_on_every_line_is_said_once():
    assert "line 1: no value" in the_problem({"data.input_key": "q"})


@pytest.mark.parametrize(
    "name", ["none.jsonl", "./none", "/no/where", "a/b/c", "data/", "~/x", "none.py", "x/*.json"]
)
def test_local_data_that_does_not_exist(name):
    said = the_problem({"data.prompt_dataset": name})
    assert said == f"--data.prompt_dataset {name}: does not exist"


@pytest.mark.parametrize("name", ["gsm8k", "openai/gsm8k", "openai/gsm8k@main", "hf://a/b.json"])
def test_data_on_a_hub_passes_unseen(name):
    assert problems({"data.prompt_dataset": name}) == []


def test_lists_of_data_sets_are_checked_one_by_one(folder):
    assert problems({"data.prompt_dataset": "prompts.jsonl, prompts.jsonl,openai/gsm8k"}) == []
    assert "none.csv: does not exist" in the_problem(
        {"data.prompt_dataset": "prompts.jsonl,none.csv"}
    )
    assert "--data.prompt_probs 0.5" in the_problem(
        {"data.prompt_dataset": "prompts.jsonl,prompts.jsonl", "data.prompt_probs": "0.5"}
    )


def test_an_empty_folder_and_another_file_type(folder):
    (folder / "empty").mkdir()
    (folder / "p.txt").write_text("1")
    assert "is an empty folder" in the_problem({"data.prompt_dataset": "empty"})
    assert "does not end in .json" in the_problem({"data.prompt_dataset": "p.txt"})


def test_csv(folder):
    (folder / "p.csv").write_text("question,answer\n" + "1,1\n" * 4)
    assert problems({"data.prompt_dataset": "p.csv"}) == []
    (folder / "q.csv").write_text('q,answer\n"1\n",1\n')
    assert "line 3: no value under the key 'question'" in the_problem(
        {"data.prompt_dataset": "q.csv"}
    )


def test_parquet(folder):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"question": ["1"] * 4, "answer": ["1"] * 4}), "p.parquet")
    assert problems({"data.prompt_dataset": "p.parquet"}) == []
    assert "no column 'q' (--data.input_key); columns seen: question, answer" in the_problem(
        {"data.prompt_dataset": "p.parquet", "data.input_key": "q"}
    )
    (folder / "bad.parquet").write_text("text")
    assert "is not a Parquet file" in the_problem({"data.prompt_dataset": "bad.parquet"})


def test_messages_need_a_chat_template(folder):
    row = json.dumps({"question": [{"role": "user", "content": "1"}], "answer": "1"})
    (folder / "chat.jsonl").write_text(f"{row}\n" * 4)
    chat = {"data.prompt_dataset": "chat.jsonl"}
    assert "holds list" in the_problem(chat)
    assert problems({**chat, "data.apply_chat_template": ""}) == []


def test_the_evaluation_data_is_checked_too():
    assert "--eval.dataset none.json: does not exist" in the_problem({"eval.dataset": "none.json"})
    assert "has the split train only" in the_problem(
        {"eval.dataset": "prompts.jsonl", "eval.split": "test"}
    )


# models


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_folder_that_is_no_model(missing, folder):
    (folder / "model" / missing).unlink()
    named = {"model.safetensors": "weights", "tokenizer.json": "tokenizer files"}
    assert f"is no model: it lacks {named.get(missing, missing)}" in the_problem({})


@pytest.mark.parametrize("role", ["actor", "critic", "reward"])
@pytest.mark.parametrize("path", ["./none", "/no/where", "a/b/c", "models/", "../x"])
def test_a_model_that_does_not_exist(role, path):
    flag = f"{role}.model_name_or_path"
    assert the_problem({flag: path}) == f"--{flag} {path}: does not exist"


@pytest.mark.parametrize("name", ["gpt2", "Qwen/Qwen2.5-0.5B-Instruct"])
def test_a_model_on_a_hub_passes_unseen(name):
    assert problems({"actor.model_name_or_path": name}) == []


def test_a_model_that_is_a_file_or_not_named():
    assert "is a file" in the_problem({"actor.model_name_or_path": "reward.py"})
    assert "is missing" in the_problem({"actor.model_name_or_path": None})


def test_a_reward_model_in_ray_is_looked_into(folder):
    model(folder / "rm", "config.json", "model.safetensors", "tokenizer.json")
    rm = {"reward.remote_url": None, "reward.model_name_or_path": "./rm"}
    assert all("--reward.model_name_or_path: rm" in problem for problem in problems(rm))
    assert problems(rm)
    assert problems({**rm, "reward.remote_url": "http://a/r"}) == []  # not used
    hub = {**rm, "reward.model_name_or_path": "OpenRLHF/Llama-3-8b-rm-700k"}
    assert problems(hub) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"algo.advantage.estimator": "remax"},
        {"eval.dataset": "prompts.jsonl", "eval.steps": "5"},
        {"algo.dynamic_filtering_enable": ""},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_needs_rewards_with_the_responses_needs_a_served_model(changes):
    hub = {"reward.remote_url": None, "reward.model_name_or_path": "OpenRLHF/Llama-3-8b-rm-700k"}
    said = the_problem({**hub, **changes})
    assert said.startswith(f"--{next(iter(changes))}") and "gives them later: serve it" in said
    assert problems({**changes, "reward.remote_url": "http://a/r"}) == []


# rewards


@pytest.mark.parametrize(
    "url, said",
    [
        (None, "nothing gives rewards"),
        ("none.py", "none.py: does not exist"),
        ("no_function.py", "defines no reward_func"),
        ("broken.py", "is not Python (line 2"),
        ("localhost:5000/get_reward", "neither a Python file"),
        ("http://a/r,b/r", "b/r: neither a Python file"),
    ],
)
def test_a_reward_that_cannot_come(url, said, folder):
    (folder / "no_function.py").write_text("def reward(q, p, l): ...\n")
    (folder / "broken.py").write_text("x = 1\ndef reward_func(:\n")
    assert said in the_problem({"reward.remote_url": url})


@pytest.mark.parametrize(
    "source",
    ["async def reward_func(): ...", "reward_func = print", "from m import f as reward_func"],
)
def test_reward_functions_of_other_forms(source, folder):
    (folder / "other.py").write_text(source)
    assert problems({"reward.remote_url": "other.py"}) == []


def test_several_served_models_need_weights():
    two = {"reward.remote_url": "help=http://a/r,harm=http://b/r"}
    assert problems({**two, "js.reward_weights": "help=1,harm=-0.5"}) == []
    assert "give one NAME=NUMBER for each" in the_problem(two)
    assert "is for reward models that" in the_problem({"js.reward_weights": "help=1"})


def test_a_server_normalises_by_itself():
    served = {"reward.remote_url": "http://a/r", "reward.normalize_enable": ""}
    assert "give it to `openrlhf-js rm serve`" in the_problem(served)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_reward_takes_some_time(seconds):
    assert "more than 0" in the_problem({"js.reward_timeout_seconds": seconds})


def test_addresses_and_agents(folder):
    assert problems({"reward.remote_url": "http://a:1/r,https://b/r"}) == []
    (folder / "agent.py").write_text("class AgentExecutor: ...")
    assert problems({"reward.remote_url": None, "train.agent_func_path": "agent.py"}) == []
    assert "defines no AgentExecutor" in the_problem({"train.agent_func_path": "reward.py"})


# sizes


def test_a_rollout_that_does_not_divide():
    said = the_problem({"rollout.batch_size": "5", "data.prompt_dataset": "openai/gsm8k"})
    assert "= 20 responses, not a multiple of --train.batch_size 8" in said
    assert "use --rollout.batch_size 6" in said


def test_an_optimizer_batch_that_does_not_divide():
    said = the_problem({"train.micro_batch_size": "3"})
    assert "--train.batch_size 8 is not a multiple of 3" in said and said.endswith("use 9")
    assert problems({"train.micro_batch_size": "3", "train.dynamic_batch_enable": ""}) == []
    ranks = {"actor.num_gpus_per_node": "4", "train.micro_batch_size": "4"}
    assert "8 is not a multiple of 16" in the_problem(ranks)


TWO = {"actor.num_gpus_per_node": "2", "data.prompt_dataset": "openai/gsm8k"}


def test_two_ranks_get_equally_many_responses():
    assert problems({**TWO, "rollout.micro_batch_size": "8"}) == []
    said = the_problem({**TWO, "rollout.micro_batch_size": "16"})
    assert "not a multiple of 32" in said and said.endswith("use --rollout.batch_size 8")
    assert (
        problems({**TWO, "rollout.micro_batch_size": "16", "train.dynamic_batch_enable": ""}) == []
    )


@pytest.fixture
def nine(folder):
    rows = (folder / "prompts.jsonl").read_text()
    (folder / "nine.jsonl").write_text(rows + rows.splitlines()[0])
    return {"data.prompt_dataset": "nine.jsonl", "train.batch_size": "4"}


def test_two_ranks_and_a_short_last_rollout(nine):
    nine = {**TWO, **nine, "rollout.micro_batch_size": "4", "train.micro_batch_size": "2"}
    assert the_problem(nine).endswith("use --data.max_samples 8")
    assert problems({**nine, "data.max_samples": "8"}) == []
    assert problems({**nine, "actor.num_gpus_per_node": "1"}) == []
    assert problems({**nine, "algo.dynamic_filtering_enable": ""}) == []


def test_a_last_rollout_that_leaves_half_a_gradient(nine):
    said = the_problem({**nine, "train.batch_size": "8"})
    assert "only 4 responses, not a multiple of --train.batch_size 8" in said
    assert said.endswith("use --data.max_samples 8")


def test_estimators_and_a_last_rollout_of_one_prompt(nine):
    assert problems(nine) == []
    assert "too few for bloo" in the_problem({**nine, "algo.advantage.estimator": "bloo"})
    alone = {"rollout.n_samples_per_prompt": "1", "train.batch_size": "1"}
    alone["train.micro_batch_size"] = "1"
    assert "too few for js" in the_problem({**nine, **alone, "algo.advantage.estimator": "js"})


def test_vllm_must_not_be_asked_for_less_than_a_rollout():
    said = the_problem({"rollout.vllm_generate_batch_size": "3"})
    assert "upstream would train on rollouts of 3 prompts" in said


def test_masking_and_losses_that_know_no_mask():
    masked = {"js.on_bad_reward": "mask", "algo.advantage.estimator": "js"}
    assert "cannot keep" in the_problem({**masked, "actor.entropy_coef": "0.1"})
    assert problems({**masked, "actor.entropy_coef": "0"}) == []


def test_ranks_that_do_not_divide():
    assert "not a multiple of --ds.ring_attn_size x --ds.tensor_parallel_size = 2" in the_problem(
        {"ds.tensor_parallel_size": "2"}
    )


def test_the_critic_has_ranks_of_its_own():
    gae = {"algo.advantage.estimator": "gae", "critic.num_gpus_per_node": "3"}
    said = problems(gae)
    assert said and all("of the critic" in line for line in said)


def test_too_few_prompts_for_one_rollout():
    said = the_problem({"rollout.batch_size": "16"})
    assert "there are 8 prompts, fewer than one rollout of --rollout.batch_size 16" in said


@pytest.mark.parametrize("engines", [None, "0", "-1"])
def test_no_engine(engines):
    assert "--vllm.num_engines must be at least 1" in the_problem({"vllm.num_engines": engines})


def test_shared_gpus_must_be_as_many():
    together = {"train.colocate_all": "", "vllm.num_engines": "2", "ref.num_gpus_per_node": "1"}
    assert "the actor has 1" in the_problem(together)
    assert problems({**together, "train.async_enable": ""}) == []
    unequal = {"train.colocate_actor_ref": "", "ref.num_gpus_per_node": "2"}
    assert "--ref.num_gpus_per_node 2 must be equal" in the_problem(unequal)
    assert problems({**unequal, "algo.kl.init_coef": "0"}) == []


@pytest.mark.parametrize("count", ["0", "-4"])
def test_counts_are_at_least_one(count):
    for name in ("rollout.batch_size", "train.batch_size", "rollout.micro_batch_size"):
        assert f"--{name} must be at least 1, got {count}" in problems({name: count})


def test_the_program_ends_with_status_2_and_the_lines(folder):
    command = [sys.executable, "-m", "openrlhf_js.cli.train_ppo_ray"]
    bad = argv({"actor.model_name_or_path": "./none", "data.input_key": "q"})
    done = subprocess.run([*command, *bad], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stdout == "" and done.stderr.count("\n") == 2
    assert "./none" in done.stderr and "keys seen: question, answer" in done.stderr


# mixed data

GRADES_BY_DATASOURCE = "from openrlhf_js.tasks.rewards import reward_by_datasource as reward_func\n"


@pytest.mark.parametrize("datasource", ["sudoku/4", "default", None])
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_datasource_that_no_task_grades(datasource, ending, folder):
    import pyarrow as pa
    from pyarrow.parquet import write_table

    (folder / "mixed.py").write_text(GRADES_BY_DATASOURCE)
    sources = ["maze", "math/amc23"] * 3 + ["countdown", datasource]
    rows = [{"question": "1", "answer": "1", "datasource": source} for source in sources]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    flag = {"data.prompt_dataset": f"rows.{ending}"}
    assert problems(flag) == []  # another reward file does not care
    said = the_problem({**flag, "reward.remote_url": "mixed.py"})
    if datasource:
        assert f"no task grades the datasource {datasource!r}" in said
    else:
        assert "no text under the key 'datasource'" in said
    assert ending == "parquet" or "line 8: " in said


def test_mixed_data_without_datasources(folder):
    (folder / "mixed.py").write_text(GRADES_BY_DATASOURCE)
    said = problems({"reward.remote_url": "mixed.py", "eval.dataset": "prompts.jsonl"})
    assert [line.split()[0] for line in said] == ["--data.prompt_dataset", "--eval.dataset"]
    assert all("line 1: no text under the key 'datasource'" in line for line in said)
