"""Scores against a slow second way: each text by itself, its token ids made by hand."""

import math
from pathlib import Path

import pytest
import torch
from small_models import LONG, TEXTS, change_json, save_reward_model
from transformers import AutoModel

from openrlhf_js.reward_model.checkpoint import read_tensors
from openrlhf_js.reward_model.model import RewardModel, micro_batches

MAX_LEN = 20
EOS = 1
IDS = {token: number for number, token in enumerate("sort()=0123456789", 2)}


def ids_by_hand(text: str, max_len: int = MAX_LEN, side: str = "right") -> list[int]:
    """The tiny tokenizer knows 17 characters and EOS, and drops all else."""
    text = text.rstrip("\n")
    parts = (text if text.endswith("<eos>") else text + "<eos>").split("<eos>")[:-1]
    ids = [id_ for part in parts for id_ in [*(IDS[c] for c in part if c in IDS), EOS]]
    cut = ids[:max_len] if side == "right" else ids[-max_len:]
    return [*cut[:-1], EOS]


def score_by_hand(folder: Path, text: str, **cut: int | str) -> float:
    backbone = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor([ids_by_hand(text, **cut)])
    with torch.no_grad():
        hidden = backbone(ids).last_hidden_state[0, -1]
    return float(read_tensors(folder)["score.weight"][0] @ hidden)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_reward_model(tmp_path_factory.mktemp("reward_model"), mean=0.25, std=1.5)


@pytest.fixture(scope="module")
def model(folder: Path) -> RewardModel:
    return RewardModel.load(folder, MAX_LEN, dtype="float32")


@pytest.mark.parametrize("text", [*TEXTS, LONG])
def test_a_score_is_the_heads_output_at_eos(folder: Path, model: RewardModel, text: str) -> None:
    assert model.score([text])[0] == pytest.approx(score_by_hand(folder, text), abs=1e-4)


def test_a_batch_changes_no_score(model: RewardModel) -> None:
    texts = [*TEXTS, LONG, *TEXTS]
    alone = [model.score([text])[0] for text in texts]
    assert max(alone) - min(alone) > 0.1  # else nothing would be shown
    assert model.score(texts) == pytest.approx(alone, abs=1e-4)
    for sizes in [(1, 64), (40, 3), (10_000, 1)]:
        assert model.scores(texts, *sizes) == pytest.approx(alone, abs=1e-4)
        lengths = [len(ids_by_hand(text)) for text in texts]
        for batch in micro_batches(lengths, *sizes):
            longest = max(lengths[index] for index in batch)
            assert len(batch) == 1 or len(batch) * longest <= sizes[0]
            assert len(batch) <= sizes[1]
    assert model.score([]) == []


def test_the_tokenizers_truncation_side(folder: Path, tmp_path: Path) -> None:
    save_reward_model(tmp_path)
    change_json(tmp_path / "tokenizer_config.json", truncation_side="left")
    model = RewardModel.load(tmp_path, MAX_LEN, dtype="float32")
    left = score_by_hand(tmp_path, LONG, side="left")
    assert model.score([LONG])[0] == pytest.approx(left, abs=1e-4)
    assert abs(left - score_by_hand(tmp_path, LONG)) > 1e-3
    assert model.description["truncation_side"] == "left"


def test_normalisation(folder: Path, model: RewardModel) -> None:
    normalized = RewardModel.load(folder, MAX_LEN, dtype="float32", normalize=True)
    expected = [(score - 0.25) / 1.5 for score in model.score(TEXTS)]
    assert normalized.score(TEXTS) == pytest.approx(expected, abs=1e-5)
    assert normalized.description.items() > {"mean": 0.25, "std": 1.5, "normalized": True}.items()
    assert not model.description["normalized"]


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt_neox", "gpt2"])
def test_architectures(tmp_path: Path, kind: str) -> None:
    save_reward_model(tmp_path, kind)
    model = RewardModel.load(tmp_path, MAX_LEN, dtype="float32")
    expected = [score_by_hand(tmp_path, text) for text in TEXTS]
    assert model.score(TEXTS) == pytest.approx(expected, abs=1e-3)


def test_a_score_that_is_no_number(tmp_path: Path, model: RewardModel) -> None:
    save_reward_model(tmp_path, tensors={"score.weight": torch.full((1, 32), math.nan)})
    broken = RewardModel.load(tmp_path, MAX_LEN, dtype="float32")
    with pytest.raises(ValueError, match="the score nan of"):
        broken.score(TEXTS)
    unknown = "sort(1)=<|endoftext|>"  # the tokenizer knows it, the embeddings do not
    with pytest.raises(ValueError, match=r"the score nan of .*endoftext"):
        model.score(["sort(1)=", unknown])
    first, second = model.scores([unknown, "21"])
    assert math.isnan(first)
    assert [second] == model.score(["21"])
