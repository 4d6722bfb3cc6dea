import importlib.util
import json
import random
from dataclasses import replace

import pytest
import torch
from transformers import AutoTokenizer, Qwen2ForCausalLM

from openrlhf_js.tiny import evaluate, model, training, warm_start
from openrlhf_js.tiny.tasks import END, TASKS, sort

SORT = sort.TASK


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    tokenizer = model.make_tokenizer(SORT)
    model.save(model.make_model(tokenizer, seed=0), tokenizer, path)
    return path


def test_the_saved_tokenizer_writes_back_the_very_text(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True, use_fast=True)
    text = sort.prompt("94107") + sort.label("94107") + END
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(tokens) == len(text) - len(END) + 1
    assert tokenizer.decode(tokens, skip_special_tokens=False) == text
    assert tokens[-1] == tokenizer.eos_token_id != tokenizer.pad_token_id


def test_the_saved_model_is_small_and_in_bfloat16(folder):
    loaded = Qwen2ForCausalLM.from_pretrained(folder, dtype="auto")
    assert loaded.dtype == torch.bfloat16
    assert 0.6e6 < loaded.num_parameters() < 0.7e6
    assert loaded.config.max_position_embeddings >= max(t.max_tokens for t in TASKS.values())


def test_a_seed_names_a_model():
    tokenizer = model.make_tokenizer(SORT)
    first, again, other = (model.make_model(tokenizer, seed).lm_head.weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_only_the_response_is_imitated():
    tokenizer, careful = model.make_tokenizer(SORT), replace(SORT, slip=0)
    digits = ["72", "94107"]
    tokens, targets = warm_start._demonstrations(tokenizer, careful, digits, random.Random(0))
    for row, asked_for in enumerate(digits):
        learned = targets[row][targets[row] != warm_start.IGNORED]
        assert tokenizer.decode(learned) == sort.label(asked_for) + END
        asked = tokens[row][: len(sort.prompt(asked_for))]
        assert tokenizer.decode(asked) == sort.prompt(asked_for)
        place = int((targets[row] != warm_start.IGNORED).nonzero()[0])
        assert targets[row, place] == tokens[row, place + 1]


def test_imitation_lowers_the_loss_and_repeats_itself():
    def losses():
        tokenizer, found = model.make_tokenizer(SORT), []
        warm_start.imitate(
            model.make_model(tokenizer, 0),
            tokenizer,
            replace(SORT, warm_start_steps=12),
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


def test_evaluation_scores_every_prompt_and_repeats_itself(folder, tmp_path):
    digits = sort.split(0, 200).held_out[::20]
    scores = evaluate.sample_scores(folder, SORT, digits, samples=3, seed=0, batch=4)
    assert [len(row) for row in scores] == [3] * len(digits)
    assert {score for row in scores for score in row} <= {0.0, 1.0}
    assert scores == evaluate.sample_scores(folder, SORT, digits, samples=3, seed=0, batch=4)
    evaluate.write_scores(tmp_path / "scores.json", digits, scores)
    first = json.loads((tmp_path / "scores.json").read_text())[0]
    assert first == {"prompt": digits[0], "scores": scores[0]}


def test_a_perfect_model_would_get_full_marks(folder, monkeypatch):
    """The sampler's way from tokens to scores, with right answers in the place of sampled ones."""

    def perfect(self, input_ids, num_return_sequences, **_):
        tokenizer = model.make_tokenizer(SORT)
        asked = tokenizer.batch_decode(input_ids, skip_special_tokens=True)
        said = [sort.label(text[5:-2]) + END for text in asked]
        tokens = tokenizer(said, padding=True, padding_side="right", return_tensors="pt").input_ids
        return torch.cat([input_ids, tokens], 1).repeat_interleave(num_return_sequences, 0)

    monkeypatch.setattr(Qwen2ForCausalLM, "generate", perfect)
    scores = evaluate.sample_scores(folder, SORT, ["72", "94107", "33"], samples=2, seed=0)
    assert scores == [[1.0, 1.0]] * 3


def test_the_grader_answers_as_openrlhf_asks():
    spec = importlib.util.spec_from_file_location("reward_model", training.GRADERS / SORT.grader)
    grader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(grader)
    graded = grader.reward_func(["sort(72)=27<eos>"], ["sort(72)="], ["27"])
    assert torch.tensor([graded["rewards"]]).tolist() == [1.0]
    assert graded["scores"].tolist() == [1.0]
    assert graded["extra_logs"] == {}
