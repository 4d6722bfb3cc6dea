"""Checks before a run: every problem in one go, one line each, before anything is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from openrlhf_js.plugin import checks, flags
from openrlhf_js.plugin.parser import upstream_parser
from openrlhf_js.plugin.upstream import BadInput
from openrlhf_js.tiny import model as tiny
from openrlhf_js.tiny.tasks import TASKS

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
}
HUB = {"data.prompt_dataset": "openai/gsm8k"}
MIXED = "from openrlhf_js.tasks.rewards import reward_by_datasource as reward_func\n"
PARSER = upstream_parser()
flags.add_flags(PARSER)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder in which the command line GOOD has nothing wrong."""
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    rows = [json.dumps({"question": f"{i}?", "answer": str(i)}) + "\n" for i in range(8)]
    Path("prompts.jsonl").write_text("".join(rows))
    Path("nine.jsonl").write_text("".join([*rows, rows[0]]))
    Path("chat.jsonl").write_text('{"question": [{"role": "user"}], "answer": "1"}\n' * 4)
    Path("p.csv").write_text("question,answer\n" + "1?,1\n" * 4)
    Path("reward.py").write_text("def reward_func(q, p, l): ...\n")
    Path("agent.py").write_text("class AgentExecutor: ...")
    Path("mixed.py").write_text(MIXED)
    Path("model", "config.json").write_text('{"text_config": {"max_position_embeddings": 4096}}')
    monkeypatch.setattr(checks.run, "find_device", lambda: ("gpu", "nvidia-smi is there"))
    return tmp_path


def argv(changes: dict[str, str | None]) -> list[str]:
    pairs = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    return [f"--{name}={value}" if value else f"--{name}" for name, value in pairs.items()]


def problems(changes: dict[str, str | None]) -> list[str]:
    try:
        checks.check(PARSER.parse_args(argv(changes)))
    except BadInput as error:
        return str(error).splitlines()
    return []


def the_problem(changes: dict[str, str | None]) -> str:
    (line,) = problems(changes)
    return line


def estimator(name: str, **more: str) -> dict[str, str | None]:
    return {"algo.advantage.estimator": name, **{k.replace("__", "."): v for k, v in more.items()}}


ONE_PROMPT = {"rollout.batch_size": "1", "train.batch_size": "4"}
ONE_RESPONSE = {"rollout.n_samples_per_prompt": "1", "train.batch_size": "4"}
NINE = {"data.prompt_dataset": "nine.jsonl", "train.batch_size": "4"}
TWO = {"actor.num_gpus_per_node": "2", **HUB}
TWO_NINE = {**TWO, **NINE, "rollout.micro_batch_size": "4", "train.micro_batch_size": "2"}
FILTERING = {"algo.dynamic_filtering_enable": ""}
ALLOWED = {**FILTERING, "js.allow_biased_filtering": ""}
VARIANCE = {"js.gradient_variance": ""}
GROUPS = {"js.group_micro_batches": "", "train.micro_batch_size": "4"}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        estimator("js") | ONE_PROMPT,
        estimator("js_plus") | ONE_RESPONSE,
        estimator("js_plus", js__half_life="50"),
        estimator("js_fixed", js__shrinkage="0.5"),
        {"js.on_bad_reward": "mask", "actor.entropy_coef": "0.1", "js.loss": "constant"},
        HUB,
        {"data.prompt_dataset": "hf://a/b.json"},
        {"data.prompt_dataset": "prompts.jsonl, prompts.jsonl,openai/gsm8k"},
        {"data.prompt_dataset": "p.csv"},
        {"data.prompt_dataset": "chat.jsonl", "data.apply_chat_template": ""},
        {"actor.model_name_or_path": "Qwen/Qwen2.5-0.5B-Instruct"},
        {"reward.remote_url": "reward.py"},
        {"reward.remote_url": "http://a:1/r,https://b/r"},
        {
            "reward.remote_url": "help=http://a/r,harm=http://b/r",
            "js.reward_weights": "help=1,harm=-2",
        },
        {"reward.remote_url": None, "train.agent_func_path": "agent.py"},
        {"train.micro_batch_size": "3", "train.dynamic_batch_enable": ""},
        {**TWO, "rollout.micro_batch_size": "8"},
        {**TWO, "rollout.micro_batch_size": "16", "train.dynamic_batch_enable": ""},
        NINE,
        {**TWO_NINE, "data.max_samples": "8"},
        {**TWO_NINE, "actor.num_gpus_per_node": "1"},
        {**TWO_NINE, **ALLOWED},
        estimator("rloo") | FILTERING,
        estimator("js_fixed", js__shrinkage="0") | FILTERING,
        {**VARIANCE, "ds.zero_stage": "3"},
        {**VARIANCE, "train.dynamic_batch_enable": "", "train.micro_batch_size": "8"},
        {**GROUPS, **TWO, "rollout.micro_batch_size": "8"},
        {"ds.param_dtype": "fp16", "actor.optim": "muon"},  # refused only with VARIANCE
        {"rollout.max_new_tokens": "2047"},
    ],
    ids=str,
)
def test_what_works_passes(changes):
    assert problems(changes) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        # the estimator
        (estimator("bloo") | ONE_PROMPT, "bloo needs at least 2 prompts"),
        (estimator("js1") | ONE_RESPONSE, "2 responses to each (--rollout.n_samples_per_prompt)"),
        (
            {**ONE_PROMPT, **ONE_RESPONSE, "train.batch_size": "1"},
            "2 rewards in a rollout, got 1 x 1",
        ),
        (estimator("js", js__half_life="50"), "is for js_plus, not js"),
        (estimator("js_fixed"), "js_fixed needs --js.shrinkage"),
        (estimator("js_fixed", js__shrinkage="nan"), "from 0 to 1"),
        ({"js.shrinkage": "0.5"}, "is for js_fixed, not js"),
        (FILTERING, "out (js does not need it), or give --js.allow_biased_filtering"),
        (estimator("js_fixed", js__shrinkage="0.5") | FILTERING, "but teach under js_fixed"),
        (estimator("remax", reward__remote_url="reward.py") | FILTERING, "but teach under remax"),
        (estimator("rloo", js__on_bad_reward="mask"), "js_fixed with --js.shrinkage 0 is rloo"),
        ({"js.loss": "constant", "actor.policy_loss_type": "gspo"}, "takes the mean of each"),
        # data
        ({"data.prompt_dataset": None}, "--data.prompt_dataset is missing"),
        ({"data.input_key": "q"}, "no column 'q' (--data.input_key); there are"),
        ({"data.prompt_dataset": "prompts.jsonl,none.csv"}, "none.csv: does not exist"),
        ({"data.prompt_dataset": "./none"}, "--data.prompt_dataset ./none: does not exist"),
        ({"data.prompt_dataset": "x/*.json"}, "x/*.json: does not exist"),
        ({"data.prompt_dataset": "chat.jsonl"}, "'question' holds list, not text"),
        ({"data.prompt_dataset": "p.csv,p.csv", "data.prompt_probs": "0.5"}, "--data.prompt_probs"),
        ({"eval.dataset": "none.json"}, "--eval.dataset none.json: does not exist"),
        ({"eval.dataset": "p.csv", "eval.split": "test"}, "has the split train only, not test"),
        # models and rewards
        ({"actor.model_name_or_path": None}, "--actor.model_name_or_path is missing"),
        ({"actor.model_name_or_path": "./none"}, "--actor.model_name_or_path ./none: does not"),
        ({"reward.model_name_or_path": "a/b/c"}, "a/b/c: does not exist"),
        ({"reward.model_name_or_path": None}, "nothing gives rewards"),
        ({"reward.remote_url": "none.py"}, "none.py: does not exist"),
        ({"train.agent_func_path": "reward.py"}, "cannot be loaded: it defines no AgentExecutor"),
        ({"reward.remote_url": "http://a/r,b/r"}, "b/r: neither a Python file"),
        ({"reward.remote_url": "http://127.0.0.1:9/r"}, "127.0.0.1:9/r: no server there"),
        ({"reward.remote_url": "a=http://a/r,b=http://b/r"}, "give one NAME=NUMBER for each"),
        ({"js.reward_weights": "help=1"}, "is for reward models that"),
        (
            {"reward.remote_url": "http://a/r", "reward.normalize_enable": ""},
            "give it to `openrlhf-js rm serve`",
        ),
        (estimator("remax"), "gives them later: serve it"),
        # the start
        ({"rollout.max_new_tokens": "2048"}, "leaves no room in --data.max_len 2048 for a prompt"),
        ({"ckpt.load_enable": ""}, "there is no checkpoint in ./ckpt/checkpoints_ppo_ray"),
        ({"ckpt.path": "reward.py/ckpt"}, "reward.py is no folder that can be written"),
        ({"js.save_batches": "reward.py"}, "reward.py is no folder that can be written"),
        ({"js.device": "cpu", "vllm.tensor_parallel_size": "2"}, "size 2 needs a GPU"),
        # sizes
        ({"vllm.num_engines": None}, "--vllm.num_engines must be at least 1"),
        (
            {**HUB, "rollout.batch_size": "5"},
            "responses of a rollout: 20 is not a multiple of --train.batch_size = 8",
        ),
        ({**HUB, "rollout.batch_size": "5"}, "use --rollout.batch_size 6"),
        ({"train.micro_batch_size": "3"}, "1 ranks of the actor = 3: use 9"),
        (
            {"actor.num_gpus_per_node": "4", "train.micro_batch_size": "4"},
            "x 4 ranks of the actor = 16: use 16",
        ),
        (
            {**TWO, "rollout.micro_batch_size": "16"},
            "--rollout.micro_batch_size x 2 ranks of the actor = 32",
        ),
        (TWO_NINE, "use --data.max_samples 8"),
        (
            {**NINE, "train.batch_size": "8"},
            "responses of the last rollout: 4 is not a multiple of --train.batch_size",
        ),
        (estimator("bloo") | NINE, "is too small, use --data.max_samples 8: bloo needs"),
        (
            {**NINE, **ONE_RESPONSE, "train.batch_size": "1", "train.micro_batch_size": "1"},
            "is too small, use --data.max_samples 8: js needs",
        ),
        ({"rollout.vllm_generate_batch_size": "3"}, "would train on rollouts of 3 prompts"),
        ({"rollout.batch_size": "16"}, "there are 8 prompts, fewer than one rollout"),
        ({"ds.tensor_parallel_size": "2"}, "--ds.ring_attn_size x --ds.tensor_parallel_size = 2"),
        # the gradient
        ({**VARIANCE, "ds.param_dtype": "fp16"}, "--ds.param_dtype fp16, only with bf16"),
        ({**VARIANCE, "actor.optim": "muon"}, "--actor.optim muon, only with adam"),
        ({**VARIANCE, "ds.deepcompile": ""}, "--ds.deepcompile"),
        (
            {**VARIANCE, "train.micro_batch_size": "8"},
            "is 1: use a smaller --train.micro_batch_size",
        ),
        ({**GROUPS, "train.dynamic_batch_enable": ""}, "forms micro-batches by length"),
        (
            {**GROUPS, "rollout.n_samples_per_prompt": "8", "train.batch_size": "16"},
            "size 4 is not a multiple of --rollout.n_samples_per_prompt = 8: use 8",
        ),
        (
            {**TWO_NINE, **GROUPS, "train.batch_size": "8", **ALLOWED},
            "prompts of a rollout: 1 is not a multiple of the actor's ranks = 2: change",
        ),
    ],
    ids=str,
)
def test_what_does_not_is_one_line(changes, said):
    assert said in the_problem(changes)


def test_a_gpu_is_refused_where_the_stack_has_none(monkeypatch):
    monkeypatch.setattr(checks.run, "find_device", lambda: ("cpu", checks.run.CPU_STACK))
    assert "the installed stack is the one for CPU" in the_problem({"js.device": "gpu"})
    assert problems({}) == []


def test_the_critic_has_ranks_of_its_own():
    found = problems(estimator("gae", critic__num_gpus_per_node="3"))
    assert found and all("of the critic" in line for line in found)


def test_the_program_prints_all_problems_and_ends_with_status_2():
    command = [sys.executable, "-m", "openrlhf_js.cli.train"]
    bad = argv({"actor.model_name_or_path": "./none", "data.input_key": "q"})
    done = subprocess.run([*command, *bad], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "./none" in done.stderr and "there are question, answer" in done.stderr


# --- prompt files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "cannot be read (StopIteration)"),
        (b'{"question": "1", "answer": "1"}\nnot json\n', "cannot be read (JSON parse error"),
        (
            b'{"question": "1", "answer": "1"}\n{"prompt": "2", "answer": "2"}\n',
            "1 rows have no 'question' (--data.input_key), such as row 2",
        ),
        (b'{"question": "1"}\n', "no column 'answer' (--data.label_key); there are question"),
        (b'{"question": null, "answer": "1"}\n', "1 rows have no 'question'"),
        (b'{"question": "3", "answer": "1"}\n{"question": 3, "answer": "1"}\n', "holds int, not"),
        (b"\xff\xfe\x00", "cannot be read ("),
    ],
)
def test_a_bad_prompt_file(content, said):
    Path("bad.jsonl").write_bytes(content)
    line = the_problem({"data.prompt_dataset": "bad.jsonl"})
    assert line.startswith("--data.prompt_dataset bad.jsonl: ") and said in line


def test_a_csv_is_read_as_upstream_reads_it():
    Path("numbers.csv").write_text("question,answer\n1,1\n")
    said = the_problem({"data.prompt_dataset": "numbers.csv"})
    assert "'question' holds int, not text" in said
    Path("numbers.csv").write_text("question,answer\n")
    assert "corresponds to no data" in the_problem({"data.prompt_dataset": "numbers.csv"})


@pytest.mark.parametrize("datasource", ["sudoku/4", "default", None])
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_datasource_that_no_task_grades(datasource, ending, monkeypatch):
    import pyarrow as pa
    from pyarrow.parquet import write_table

    monkeypatch.setattr(checks.run, "load_problem", lambda *_: None)
    sources = ["maze", "math/amc23"] * 3 + ["countdown", datasource]
    rows = [{"question": "1", "answer": "1", "datasource": source} for source in sources]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    write_table(pa.Table.from_pylist(rows), "rows.parquet")
    flag = {"data.prompt_dataset": f"rows.{ending}"}
    assert problems(flag) == []  # another reward file does not care
    said = the_problem({**flag, "reward.remote_url": "mixed.py"})
    expected = f"no task grades the datasource {datasource!r}"
    assert (expected if datasource else "1 rows have no 'datasource'") in said


# --- a reward model in Ray ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = tiny.make_tokenizer(TASKS["sort"])
    tiny.save(tiny.make_model(tokenizer, seed=0), tokenizer, folder)
    return folder


def reward_model(policy: Path, folder: Path, task: str = "sort") -> Path:
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    config = AutoConfig.from_pretrained(policy, num_labels=1)
    scorer = AutoModelForSequenceClassification.from_config(config)
    scorer.to(torch.bfloat16).save_pretrained(folder)
    tiny.make_tokenizer(TASKS[task]).save_pretrained(folder)
    return folder


def in_ray(folder: Path, policy: Path, normalize: bool = False) -> list[str]:
    return list(checks.reward_model_problems(str(folder), str(policy), "score", normalize))


def test_a_reward_model_with_the_policys_tokens_passes(policy, tmp_path):
    folder = reward_model(policy, tmp_path / "rm")
    assert in_ray(folder, policy) == []
    (said,) = in_ray(folder, policy, normalize=True)
    assert "mean and std" in said
    (said,) = in_ray(policy, policy)
    assert said.startswith("--reward.model_name_or_path: ") and "no value head" in said
    own_code = tmp_path / "policy"
    own_code.mkdir()
    (own_code / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", null]}}'
    )
    assert in_ray(folder, own_code) == []


def test_other_tokens_would_be_read_as_other_text(policy, tmp_path):
    (said,) = in_ray(reward_model(policy, tmp_path / "other", task="countdown"), policy)
    assert "which would read other text" in said and "rm serve" in said
