from dataclasses import replace

import pytest
import torch
from kit import read_lines, save_policy
from transformers import Qwen2ForCausalLM

from openrlhf_js.cli import eval as cli_eval
from openrlhf_js.cli import lab as cli_lab
from openrlhf_js.lab.pool import open_samples
from openrlhf_js.tasks import task_of
from openrlhf_js.tiny import model
from openrlhf_js.tiny.tasks import END, TASKS, sort, write_prompts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_policy(tmp_path_factory.mktemp("model"))


def test_the_saved_model_is_small_and_in_bfloat16(folder):
    loaded = Qwen2ForCausalLM.from_pretrained(folder, dtype="auto")
    assert loaded.dtype == torch.bfloat16
    assert 0.6e6 < loaded.num_parameters() < 0.7e6
    assert loaded.config.max_position_embeddings >= max(t.max_tokens for t in TASKS.values())


def test_imitation_lowers_the_loss_and_repeats_itself():
    def losses():
        tokenizer, found = model.make_tokenizer(sort), []
        model.imitate(
            model.make_model(tokenizer, 0),
            tokenizer,
            replace(sort, warm_start_steps=12),
            sort.split(0, 200).train,
            seed=0,
            batch_size=16,
            on_step=lambda step, loss: found.append(loss),
        )
        return found

    first = losses()
    assert len(first) == 12
    assert first[-1] < first[0] - 0.3
    assert losses() == first


@pytest.mark.parametrize("name", ["sort", "countdown"])
def test_rows_name_their_task_which_grades_as_the_quickstart_does(name, tmp_path):
    task = TASKS[name]
    write_prompts(tmp_path / "one.jsonl", task, task.split(0, 40).held_out[:1], name)
    (row,) = read_lines(tmp_path / "one.jsonl")
    said, grader = task.right_response(row["label"]), task_of(row["datasource"])
    assert task.score(said + END, row["label"]).value == 1
    for text, right in ((said, 1), (said + END, 1), (said[:-1], 0)):
        assert grader.score(text, row["label"]).value == right


@pytest.mark.usefixtures("undrawn")
def test_programs_take_the_data_without_further_flags(tmp_path):
    tokenizer = model.make_tokenizer(sort)
    small = model.make_model(tokenizer, 0, width=16, layers=1)  # answers may be long
    model.save(small, tokenizer, tmp_path / "model")
    write_prompts(tmp_path / "one.jsonl", sort, sort.split(0, 40).held_out[:1], "sort")
    given = ["--model", str(tmp_path / "model"), "--device", "cpu"]
    passk = [*given, "--tasks", str(tmp_path / "one.jsonl"), "--out", str(tmp_path / "passk")]
    assert cli_eval.main(["passk", *passk, "--samples", "2"]) == 0
    lab = [*given, "--prompts", str(tmp_path / "one.jsonl"), "--out", str(tmp_path / "lab")]
    assert cli_lab.main(["value", *lab, "--responses", "4"]) == 0
    assert open_samples(tmp_path / "lab").settings["reward"] == "the tasks of the rows"


def test_messages_become_the_prompt_of_the_task():
    tokenizer = model.make_tokenizer(sort)
    asked = [{"role": "user", "content": sort.prompt("72")}]
    said = [*asked, {"role": "assistant", "content": sort.label("72")}]
    assert tokenizer.apply_chat_template(asked, tokenize=False) == "sort(72)="
    assert tokenizer.apply_chat_template(said, tokenize=False) == f"sort(72)=27{END}"
    assert set(tokenizer.encode("Why me?")) == {tokenizer.pad_token_id}
