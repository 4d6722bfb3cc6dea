"""What an estimator remembers in checkpoints."""

import json
import math

import pytest
import torch
from kit import upstream_args
from PIL import Image

from openrlhf_js.estimators import LiveEstimator, key_of, make_batch
from openrlhf_js.trainers.openrlhf.memory import ESTIMATOR, keep_memory, resume_memory
from openrlhf_js.trainers.openrlhf.records import Label, prompt_key
from openrlhf_js.trainers.openrlhf.upstream import BadInput


def test_a_prompt_is_known_by_its_text_label_datasource_and_images(tmp_path):
    labels = [Label(*pair) for pair in [("4", "maze"), ("4", ""), ("5", ""), (None, "maze")]]
    keys = {prompt_key("a", label) for label in labels} | {prompt_key("b", labels[0])}
    keys |= {prompt_key("a", labels[0], [image]) for image in ("1.png", "2.png", b"1")}
    assert len(keys) == 8
    assert prompt_key("a", labels[0], "1.png") == prompt_key("a", labels[0], ["1.png"])
    pictures = [Image.new("L", (1, 1), color) for color in (0, 9)]
    assert prompt_key("a", labels[0], pictures[:1]) != prompt_key("a", labels[0], pictures[1:])
    for name in ("here.png", "there.png"):  # copies of one image
        (tmp_path / name).write_bytes(b"1")
        file = str(tmp_path / name)
        assert prompt_key("a", labels[0], [file]) == prompt_key("a", labels[0], [{"bytes": b"1"}])
    assert prompt_key("a", Label(4, "maze")) == prompt_key("a", labels[0])
    assert prompt_key("a", labels[0]) == key_of("a", "4", "maze")
    assert prompt_key("a", labels[3]) == key_of("a", None, "")


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
    assert "js_grad begins with an empty memory" in capsys.readouterr().out
    del loaded[ESTIMATOR]["state"]["moments"]
    with pytest.raises(BadInput, match="of another estimator or version, not that of js_grad"):
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


def test_a_resumed_run_begins_with_an_empty_memory_only_if_told_to(capsys):
    states = {}
    for forgetful in (None, LiveEstimator("js")):
        keep_memory(states, forgetful, ARGS)
        resume_memory(states, forgetful, ARGS)
    assert states == {}
    fresh = LiveEstimator("js_grad")
    with pytest.raises(BadInput, match="holds no memory, not that of js_grad: resume it as it was"):
        resume_memory(states, fresh, ARGS)
    resume_memory(states, fresh, upstream_args(js__changed=["algo.advantage.estimator"]))
    assert "js_grad begins with an empty memory" in capsys.readouterr().out
