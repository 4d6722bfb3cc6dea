"""The history of js_plus is saved with checkpoints, restored, and never mixed up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from openrlhf_js import estimators
from openrlhf_js.plugin.errors import BadInput
from openrlhf_js.plugin.history import resumed_history, with_history

BEGUN = {"global_step": 3}


@pytest.fixture
def history():
    return estimators.update_history(estimators.start_history(20), torch.rand(4, 3))


def test_saved_with_real_files_and_restored(tmp_path, history):
    upstreams = {"global_step": 3, "episode": 1}
    states = with_history(upstreams, history)
    assert states is upstreams  # upstream goes on using it
    torch.save(states, tmp_path / "states.pt")
    loaded = torch.load(tmp_path / "states.pt", weights_only=True)
    assert resumed_history(loaded, estimators.start_history(20)) == history


def test_a_run_that_begins_begins_empty(history):
    fresh = estimators.start_history(20)
    assert resumed_history({"global_step": 0, "episode": 0}, fresh) == fresh
    assert with_history({"episode": 0}, None) == {"episode": 0}
    assert with_history(None, None) is None
    assert with_history(None, history) == {"js_history": history._asdict()}


def test_a_run_without_a_history_resumes_as_it_was():
    assert resumed_history(BEGUN, None) is None


@pytest.mark.parametrize(
    ("saved", "now", "said"),
    [
        (None, 20, "had no --js.half_life, this one has --js.half_life 20: leave it out"),
        (20, None, "had --js.half_life 20, this one has no --js.half_life: give --js.half_life 20"),
        (20, 50, "had --js.half_life 20, this one has --js.half_life 50: give --js.half_life 20"),
    ],
)
def test_another_setting_is_refused(saved, now, said):
    states = dict(BEGUN)
    if saved is not None:
        with_history(states, estimators.start_history(saved))
    with pytest.raises(BadInput, match=said):
        resumed_history(states, None if now is None else estimators.start_history(now))


def test_the_trainer_saves_and_restores_it(monkeypatch, history):
    import ray
    from openrlhf.trainer import ppo_trainer

    from openrlhf_js.plugin import trainer
    from openrlhf_js.plugin.upstream import plain_class

    class Upstream:
        """What of upstream's trainer the checkpoints need; `disk` is what it saved last."""

        def __init__(self, pretrain, strategy):
            self.experience_maker = SimpleNamespace(live_estimator="js_plus", history=None)
            self.actor_model_group = SimpleNamespace(_actor_handlers=[])
            self.disk = {"global_step": 0}

        def save_logs_and_checkpoints(self, global_step, logs_dict=None, client_states=None):
            self.disk = {**client_states, "global_step": global_step}

        def save_best_checkpoint(self, eval_metrics, global_step, client_states=None):
            self.disk = {**client_states, "global_step": global_step}

        def init_checkpoint_states(self):
            return self.disk

    for name in ("PromptDataset", "RemoteExperienceMaker"):
        monkeypatch.setattr(ppo_trainer, name, None)
    algo = SimpleNamespace(advantage=SimpleNamespace(estimator="js_plus"))
    strategy = SimpleNamespace(args=SimpleNamespace(algo=algo))
    actor = plain_class(trainer.shrinkage_trainer(ray.remote(Upstream)))("model", strategy)
    maker = actor.experience_maker
    for save in (
        lambda: actor.save_logs_and_checkpoints(7, {}, {"episode": 0}),
        lambda: actor.save_best_checkpoint({}, 7, {"episode": 0}),
    ):
        maker.history = history
        save()
        maker.history = estimators.start_history(20)
        assert actor.init_checkpoint_states()["episode"] == 0
        assert maker.history == history
    maker.history = None
    with pytest.raises(BadInput, match=r"give --js\.half_life 20"):
        actor.init_checkpoint_states()
