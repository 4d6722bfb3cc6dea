"""A model folder's own Python, which leaves a mark where it runs: no program runs it unasked."""

import json
from pathlib import Path

import pytest
from judged_bench import write_bench
from kit import write_lines
from passk_kit import rows, write_model
from small_models import change_json, save_reward_model

from answer_graders.programs.model_folders import model_folder, own_code
from openrlhf_js.cli.main import main
from paired_eval.arena import style

CODE = """
from pathlib import Path
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Model

Path({mark!r}).touch()

class Config(Qwen2Config):
    model_type = "marked"

class Policy(Qwen2ForCausalLM):
    config_class = Config

class Body(Qwen2Model):
    config_class = Config
"""
CLASSES = {
    "AutoConfig": "own_code.Config",
    "AutoModel": "own_code.Body",
    "AutoModelForCausalLM": "own_code.Policy",
}
SAMPLE = "--model policy --max_new_tokens 4 --device cpu"
TRAIN = (
    "train --actor.model_name_or_path policy --data.prompt_dataset prompts.jsonl "
    "--data.input_key input --data.label_key label --vllm.num_engines 1 --rollout.batch_size 4 "
    "--rollout.n_samples_per_prompt 2 --train.batch_size 4 --train.micro_batch_size 4 "
    "--rollout.micro_batch_size 4 --actor.num_gpus_per_node 1 --ref.num_gpus_per_node 1 "
    "--algo.advantage.estimator js --js.device cpu --js.dry_run"
)
PROGRAMS = {
    "train": f"{TRAIN} --reward.remote_url reward.py",
    "train, reward model": f"{TRAIN} --reward.model_name_or_path scorer".replace("policy", "plain"),
    "rm train": "rm train --model.model_name_or_path policy --data.dataset pairs.jsonl "
    "--eval.dataset pairs.jsonl --data.max_len 96 --train.batch_size 8 --js.device cpu "
    "--js.dry_run",
    "rm eval": "rm eval pairs.jsonl --model scorer --out out",
    "rm serve": "rm serve --reward.model_name_or_path scorer --port 0",
    "eval passk": f"eval passk {SAMPLE} --tasks prompts.jsonl --samples 2 --out out",
    "eval arena": f"eval arena generate {SAMPLE} --data data --bench own --name mine "
    "--prompt_form text",
    "lab": f"lab value {SAMPLE} --prompts prompts.jsonl --reward reward.py --responses 2 --out out",
}


@pytest.fixture
def mark(tmp_path, monkeypatch, undrawn):
    """A folder with all that the programs read; the file that the models' Python would leave."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(style, "load_tokenizer", lambda bench: len)  # is downloaded
    save_reward_model(Path("plain"))
    for folder in (write_model(Path("policy")), save_reward_model(Path("scorer"))):
        (folder / "own_code.py").write_text(CODE.format(mark=str(tmp_path / "mark")))
        change_json(folder / "config.json", model_type="marked", auto_map=CLASSES)
    write_lines("prompts.jsonl", rows(8))
    write_lines("pairs.jsonl", [{"chosen": f"a{'b' * n}", "rejected": "c"} for n in range(64)])
    Path("reward.py").write_text(
        "def reward_func(queries, prompts, labels):\n    return {'rewards': [0.5] * len(queries)}\n"
    )
    questions = [{"uid": word, "category": "all", "prompt": word} for word in ("ab", "cd")]
    write_lines(write_bench(Path("data"), 2) / "question.jsonl", questions)
    return tmp_path / "mark"


def flag_of(words: str) -> str:
    return "--js.trust_remote_code" if "--js." in words else "--trust_remote_code"


@pytest.mark.parametrize("words", PROGRAMS.values(), ids=PROGRAMS)
def test_no_program_runs_it_unasked(words, mark, capsys):
    assert main(words.split()) == 2
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "its own Python" in line]
    assert "would run its own Python (config.json: own_code.Config, own_code.Body, " in said
    assert f"read it, then allow it with {flag_of(words)}, or take a copy" in said
    assert not mark.exists()


@pytest.mark.parametrize("name", ["rm eval", "eval passk"])
def test_a_program_runs_it_where_it_is_allowed(name, mark):
    words = PROGRAMS[name]
    assert main([*words.split(), flag_of(words)]) == 0
    assert mark.exists()


@pytest.mark.parametrize(
    ("file", "content", "code"),
    [
        ("config.json", {"auto_map": CLASSES}, "own_code.Config, own_code.Body, own_code.Policy"),
        ("config.json", {"auto_map": {"AutoConfig": "a/b--c.D"}}, "a/b--c.D"),
        ("config.json", {"inner": [{"auto_map": {"AutoModel": "a.B"}}]}, "a.B"),
        ("config.4.0.0.json", {"auto_map": {"AutoModel": "a.B"}}, "a.B"),
        ("tokenizer_config.json", {"auto_map": ["a.Slow", None]}, "a.Slow"),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": [None, "a.Fast"]}}, "a.Fast"),
        ("processor_config.json", {"auto_map": {"AutoProcessor": "a.P"}}, "a.P"),
        ("preprocessor_config.json", {"auto_map": {"AutoImageProcessor": "a.I"}}, "a.I"),
        ("video_preprocessor_config.json", {"auto_map": {"AutoVideoProcessor": "a.V"}}, "a.V"),
    ],
)
def test_it_is_found_in_every_file_that_can_call_for_it(file, content, code, tmp_path):
    written = json.dumps(content).replace("auto_map", "auto_\\u006dap")
    (tmp_path / file).write_text(written)
    assert list(own_code(tmp_path)) == [f"{file}: {code}"]
    with pytest.raises(ValueError, match="would run its own Python"):
        model_folder(tmp_path, trust_remote_code=False)
    assert model_folder(tmp_path, trust_remote_code=True) == tmp_path


def test_python_that_nothing_calls_for_is_no_reason(tmp_path):
    (tmp_path / "convert.py").write_text("")
    (tmp_path / "config.json").write_text('{"auto_map": {}, "architectures": ["auto_map"]}')
    (tmp_path / "generation_config.json").write_text("{not JSON")
    assert list(own_code(tmp_path)) == []
    (tmp_path / "custom_generate").mkdir()
    (tmp_path / "custom_generate" / "generate.py").write_text("")
    assert list(own_code(tmp_path)) == ["custom_generate/generate.py"]
