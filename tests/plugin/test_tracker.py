"""--js.tracker: what upstream logs to W&B goes to MLflow or trackio."""

import sys
from types import SimpleNamespace as Names

import pytest
import ray
from kit import upstream_args
from openrlhf.trainer import ppo_trainer

from openrlhf_js.plugin.learner import actors
from openrlhf_js.plugin.trainer import shrinkage_trainer
from openrlhf_js.plugin.upstream import plain_class

CALLS = {
    "mlflow": ["set_experiment math", "start_run run_name=js-1", "log_metrics", "end_run"],
    "trackio": ["init project=math name=js-1", "log", "finish"],
}


class Recorder:
    """A module that writes down what is called."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, function):
        def call(*args, **named):
            words = [function, *map(str, args), *(f"{k}={v}" for k, v in named.items())]
            self.calls.append(" ".join(words))

        return call


class Upstreams:
    """A trainer of upstream's that has started."""

    def __init__(self, pretrain, strategy):
        self.args = strategy.args
        self.wandb_logger = None
        self.experience_maker = Names(live_estimator="js")
        self.actor_model_group = None


@pytest.mark.parametrize("name", CALLS)
def test_a_tracker_gets_what_upstream_logs_to_wandb(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, module := Recorder())
    monkeypatch.setattr(actors, "confirm", lambda group: None)
    for replaced in ("RemoteExperienceMaker", "PromptDataset", "blending_datasets"):  # and put back
        monkeypatch.setattr(ppo_trainer, replaced, getattr(ppo_trainer, replaced))
    names = {"logger__wandb__project": "math", "logger__wandb__run_name": "js-1"}
    args = upstream_args(algo__advantage__estimator="js", js__tracker=name, **names)
    trainer = plain_class(shrinkage_trainer(ray.remote(Upstreams)))("model", Names(args=args))
    logged = {"reward": 1, "kl": None, "generated_samples": ("text", 1.0)}
    trainer.wandb_logger.log_train(7, logged)
    trainer.wandb_logger.log_eval(8, {"math_pass1": 0.5})
    trainer.wandb_logger.close()
    *start, log, end = CALLS[name]
    train = "{'train/reward': 1.0} step=7"
    evaluation = "{'eval/math_pass1': 0.5} step=8"
    assert module.calls == [*start, f"{log} {train}", f"{log} {evaluation}", end]
