"""What an estimator remembers: from samples before the run, and from checkpoints."""

import json
import math

import pytest
import torch
from kit import upstream_args, write_lines
from PIL import Image

from openrlhf_js.common.store import Store
from openrlhf_js.estimators import LiveEstimator, key_of, make_batch
from openrlhf_js.plugin.memory import ESTIMATOR, keep_memory, resume_memory, start_estimator
from openrlhf_js.plugin.records import Label, prompt_key
from openrlhf_js.plugin.upstream import BadInput


def test_a_prompt_is_known_by_its_text_label_datasource_and_images(tmp_path):
    """A number and its text are one, since pass@k, whose samples warm it, keeps labels as text."""
    labels = [Label(*pair) for pair in [("4", "maze"), ("4", ""), ("5", ""), (None, "maze")]]
    keys = {prompt_key("a", label) for label in labels} | {prompt_key("b", labels[0])}
    keys |= {prompt_key("a", labels[0], [image]) for image in ("1.png", "2.png", b"1")}
    assert len(keys) == 8
    assert prompt_key("a", labels[0], "1.png") == prompt_key("a", labels[0], ["1.png"])
    pictures = [Image.new("L", (1, 1), color) for color in (0, 9)]
    assert prompt_key("a", labels[0], pictures[:1]) != prompt_key("a", labels[0], pictures[1:])
    for name in ("here.png", "there.png"):  # as pass@k keeps a copy of a data set's images
        (tmp_path / name).write_bytes(b"1")
        file = str(tmp_path / name)
        assert prompt_key("a", labels[0], [file]) == prompt_key("a", labels[0], [{"bytes": b"1"}])
    assert prompt_key("a", Label(4, "maze")) == prompt_key("a", labels[0])
    assert prompt_key("a", labels[0]) == key_of("a", "4", "maze")
    assert prompt_key("a", labels[3]) == key_of("a", None, "")


def test_a_memory_begins_with_samples_of_the_training_prompts(tmp_path):
    samples = tmp_path / "p.jsonl"
    correct = {"a": [True] * 4, "b": [False, True, True]}  # by the prompt's uid
    with Store(samples, {"model": "m"}, ("uid", "draw")) as store:
        store.append(
            {"uid": uid, "draw": draw, "status": "correct" if is_correct else "wrong"}
            for uid, draws in correct.items()
            for draw, is_correct in enumerate(draws)
        )
        # graded again, which counts once; and refused, which counts not at all
        store.append([{"uid": "a", "draw": 0, "status": "correct", "graded_by": "newer"}])
        store.append([{"uid": "b", "draw": 3, "finish_reason": "refused", "refused": "too long"}])
    items = [
        {"uid": uid, "messages": [{"content": f"ask {uid}"}], "label": uid, "datasource": "math"}
        for uid in correct
    ]
    write_lines(tmp_path / "p.items.jsonl", items)
    args = upstream_args(algo__advantage__estimator="js_grad", js__warm_memory=str(samples))
    memory = start_estimator(args, tokenizer=None).memory
    keys = torch.tensor([key_of(f"ask {uid}", uid, "math") for uid in ("a", "b", "unknown")])
    past = memory.recall(make_batch(torch.zeros(3, 1), keys=keys, step=1))
    assert past.past_weight.tolist() == [4, 3, 0]  # responses
    assert past.past_reward.tolist() == [4, 2, 0]


OWN = """
class Lazy:
    def baseline(self, batch):
        return batch.rewards * 0 + getattr(self, "mean", 0.5)

    def learn(self, batch):
        self.mean = float(batch.rewards.mean())

class Other(Lazy):
    pass
"""
ARGS = upstream_args()
SOME = torch.rand(2, 3, generator=torch.Generator().manual_seed(1))


def learnt(name):
    """An estimator that has learnt a batch, and the states of a checkpoint with it."""
    estimator = LiveEstimator(name)
    estimator.learn(make_batch(SOME, keys=torch.tensor([7, 5]), step=3))
    states = {"global_step": 3, "episode": 1}
    keep_memory(states, estimator, ARGS)
    return estimator, states


def test_saved_with_real_files_and_restored(tmp_path, capsys):
    kept, states = learnt("js_grad")
    torch.save(states, tmp_path / "states.pt")
    loaded = torch.load(tmp_path / "states.pt", weights_only=True)
    fresh = LiveEstimator("js_grad")
    resume_memory(loaded, fresh, ARGS)
    keys = torch.tensor([5, 6, 7])
    one, other = (live.batch(torch.zeros(3, 1), keys=keys) for live in (fresh, kept))
    assert json.dumps(one.past, default=torch.Tensor.tolist) == json.dumps(
        other.past, default=torch.Tensor.tolist
    )
    # a loss that divides by lengths weighs responses otherwise: the past would drown the present
    other_loss = LiveEstimator("js_grad")
    resume_memory(loaded, other_loss, upstream_args(js__loss="sequence_mean"))
    assert other_loss.batch(torch.zeros(3, 1), keys=keys).past is None
    assert "js_grad begins with what it knew at the start" in capsys.readouterr().out
    del loaded[ESTIMATOR]["state"]["moments"]
    with pytest.raises(BadInput, match="of another version of openrlhf_js: resume it with that"):
        resume_memory(loaded, fresh, ARGS)


def test_a_class_of_the_users_own_is_restored_and_no_other(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    _, states = learnt(f"{path}:Lazy")
    moved = path.rename(tmp_path / "moved.py")
    fresh = LiveEstimator(f"{moved}:Lazy")
    resume_memory(states, fresh, ARGS)
    assert math.isclose(fresh.memory.object.mean, SOME.mean(), rel_tol=1e-6)
    with pytest.raises(BadInput, match="holds the memory of another estimator"):
        resume_memory(states, LiveEstimator(f"{moved}:Other"), ARGS)


def test_a_resumed_run_does_not_begin_with_an_empty_memory():
    states = {}
    for forgetful in (None, LiveEstimator("js")):
        keep_memory(states, forgetful, ARGS)
        resume_memory(states, forgetful, ARGS)
    assert states == {}
    with pytest.raises(BadInput, match="holds no memory, and js_grad would begin with an empty"):
        resume_memory(states, LiveEstimator("js_grad"), ARGS)
    resume_memory(states, LiveEstimator("js_grad"), upstream_args(js__warm_memory="p.jsonl"))
