"""The tiny model: its size, what it learns by imitation, and that programs take it."""

from dataclasses import replace

import pytest
import torch
from kit import read_lines, save_policy
from transformers import Qwen2ForCausalLM

from answer_graders.tasks import task_of
from baseline_research.tiny import model
from baseline_research.tiny.tasks import END, TASKS, sort, write_prompts


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
        tokenizer = model.make_tokenizer(sort.tokens)
        losses = []
        model.imitate(
            model.make_model(tokenizer, 0),
            tokenizer,
            replace(sort, warm_start_steps=12),
            sort.split(0, 200).train,
            seed=0,
            batch_size=16,
            on_step=lambda step, loss: losses.append(loss),
        )
        return losses

    first = losses()
    assert len(first) == 12
    assert first[-1] < first[0] - 0.3
    assert losses() == first


@pytest.mark.parametrize("name", ["sort", "countdown"])
def test_rows_name_their_task_which_grades_as_the_quickstart_does(name, tmp_path):
    task = TASKS[name]
    write_prompts(tmp_path / "one.jsonl", task, task.split(0, 40).held_out[:1], name)
    (row,) = read_lines(tmp_path / "one.jsonl")
    label = row["label"]
    response = task.right_response(label)
    assert task.score(response + END, label).value == 1
    grader = task_of(row["datasource"])
    assert grader.score(response, label).value == 1
    assert grader.score(response + END, label).value == 1
    assert grader.score(response[:-1], label).value == 0


def test_messages_become_the_prompt_of_the_task():
    tokenizer = model.make_tokenizer(sort.tokens)
    question = {"role": "user", "content": sort.prompt("72")}
    answer = {"role": "assistant", "content": sort.label("72")}
    assert tokenizer.apply_chat_template([question], tokenize=False) == "sort(72)="
    conversation = tokenizer.apply_chat_template([question, answer], tokenize=False)
    assert conversation == f"sort(72)=27{END}"
    assert set(tokenizer.encode("Why me?")) == {tokenizer.pad_token_id}
