import json
import math
import re
from collections import defaultdict
from itertools import product

import pytest

from openrlhf_js.reward_model.preferences import read_pairs, texts
from openrlhf_js.tiny import preferences
from openrlhf_js.tiny.model import make_tokenizer
from openrlhf_js.tiny.preferences import ASKED, LETTERS, LONGEST, SCALE, TASK, true_score
from openrlhf_js.tiny.tasks import END


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preferences")
    preferences.write(folder, seed=3, train=4000, held_out=2000)
    return folder


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("hbea", 4),
        ("hbeb", 3.5),  # b is next to a
        ("abea", 4 - 7 / 2),
        ("hbe", 3 - 1),
        ("hbeaa", 4 - 1),
        ("abeh", -2.5 + 1 + 1 - 2.5),  # order counts
        ("", -4),
        ("(bea", 4 - 7 / 2),
        ("hbea<pad>", 4 - 5),
    ],
)
def test_true_scores_by_hand(response, score):
    assert true_score("hbea", response) == pytest.approx(SCALE * score)
    assert true_score("hbea", response + END) == pytest.approx(SCALE * score)


def test_the_prompt_itself_is_the_best_response():
    best = max(
        ("".join(each) for size in range(6) for each in product("aceh", repeat=size)),
        key=lambda response: true_score("ceah", response),
    )
    assert best == "ceah"


def test_prompts_are_on_one_side_only(folder):
    train, held_out = ({row["prompt"] for row in rows(folder / f"{n}.jsonl")} for n in SIDES)
    assert train.isdisjoint(held_out)
    assert len(held_out) > 100


SIDES = ("train", "held_out")


@pytest.mark.parametrize("seed", [0, 1])
def test_split_divides_all_prompts(seed):
    (train,), held_out = preferences.split(seed, 128)
    assert len(held_out) == len(set(held_out)) == 128
    assert set(train).isdisjoint(held_out)
    assert len(set(train)) + 128 == len(LETTERS) ** ASKED
    assert preferences.split(seed, 5).held_out == held_out[:5]


@pytest.mark.parametrize("count", [0, 129])
def test_split_says_how_many_can_be_held_out(count):
    with pytest.raises(ValueError, match=f"held_out is {count}; give 1 to 128"):
        preferences.split(0, count)


def test_columns_hold_pairs_with_their_true_scores(folder):
    for row in rows(folder / "train.jsonl"):
        assert re.fullmatch(f"[{LETTERS}]{{{ASKED}}}=", row["prompt"])
        assert row["chosen"] != row["rejected"]
        for side in ("chosen", "rejected"):
            assert re.fullmatch(f"[{LETTERS}]{{1,{LONGEST}}}{END}", row[side])
            assert row[f"{side}_score"] == true_score(row["prompt"][:-1], row[side])
        assert row["subset"].startswith(f"{len(set(row['prompt'][:-1]))} different")
        assert "margin" not in row  # which OpenRLHF would train with


def test_no_pair_comes_twice(folder):
    """In either order: the check before reward training would find it."""
    pairs = [
        (row["prompt"], frozenset((row["chosen"], row["rejected"])))
        for row in rows(folder / "train.jsonl")
    ]
    assert len(set(pairs)) == len(pairs) == 4000


def test_labels_follow_bradley_and_terry(folder):
    """By the gap of true scores: how often is the better one chosen?"""
    right = defaultdict(list)
    for row in rows(folder / "train.jsonl"):
        gap = row["chosen_score"] - row["rejected_score"]
        right[round(abs(gap), 3)].append(gap > 0)
    common = {gap: hits for gap, hits in right.items() if len(hits) > 100 and gap > 0}
    assert len(common) >= 5
    for gap, hits in common.items():
        expected = 1 / (1 + math.exp(-gap))
        error = math.sqrt(expected * (1 - expected) / len(hits))
        assert abs(sum(hits) / len(hits) - expected) < 4 * error


def test_true_scores_foresee_most_labels(folder):
    assert 0.8 < preferences.accuracy_of_truth(folder / "held_out.jsonl") < 0.9


def test_accuracy_of_truth_by_hand(tmp_path):
    gaps = [(2.0, 1.0), (1.0, 2.0), (1.0, 1.0), (3.0, 0.0)]
    lines = [json.dumps({"chosen_score": a, "rejected_score": b}) for a, b in gaps]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    assert preferences.accuracy_of_truth(tmp_path / "pairs.jsonl") == 2.5 / 4


def test_the_seed_decides_everything(folder, tmp_path):
    preferences.write(tmp_path / "same", seed=3, train=4000, held_out=2000)
    preferences.write(tmp_path / "other", seed=4, train=4000, held_out=2000)
    for name in SIDES:
        first = (folder / f"{name}.jsonl").read_text()
        assert (tmp_path / "same" / f"{name}.jsonl").read_text() == first
        assert (tmp_path / "other" / f"{name}.jsonl").read_text() != first


def test_reward_training_gets_what_a_policy_writes(folder):
    """The very tokens: OpenRLHF adds an end only where there is none, and then after a space."""
    tokenizer = make_tokenizer(TASK)
    pair = next(read_pairs(folder / "train.jsonl", "prompt"))
    chosen, rejected = texts(pair, eos_token=tokenizer.eos_token)
    assert chosen == pair.prompt + pair.chosen
    for text in (chosen, rejected):
        ids = tokenizer(text, add_special_tokens=False).input_ids
        assert len(ids) == len(text.replace(END, "!")) <= TASK.max_tokens
        assert tokenizer.decode(ids) == text
        added = text.replace(END, " " + END)
        assert tokenizer(added, add_special_tokens=False).input_ids == ids


def test_the_task_scores_with_the_truth():
    assert TASK.score("hbeb" + END, TASK.label("hbea")).value == true_score("hbea", "hbeb")
    best = TASK.right_response("hea")
    assert TASK.score(best + END, "hea").value == SCALE * ASKED
