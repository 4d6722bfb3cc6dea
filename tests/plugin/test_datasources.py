"""A row's datasource reaches the reward function, and nothing else changes on the way."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

ROWS = [
    {"input": "a", "label": "gold", "datasource": "maze/easy"},
    {"input": "b", "label": 5, "datasource": "maze"},
    {"input": "c", "label": "gold", "datasource": None},
    {"input": "d", "label": "gold"},
]


@pytest.fixture
def data():
    from openrlhf_js.plugin.datasources import SourcedPrompts

    data = SimpleNamespace(input_key="input", label_key="label", image_key="images")
    strategy = SimpleNamespace(args=SimpleNamespace(data=data), is_rank_0=lambda: False)
    return SourcedPrompts(ROWS, tokenizer=None, strategy=strategy)


def test_a_text_label_bears_the_datasource_and_stays_the_text_that_it_was(data):
    import ray.cloudpickle

    source, prompt, label, images = data[0]
    assert (source, prompt, label, images) == ("maze/easy", "a", "gold", None)
    sent = ray.cloudpickle.loads(ray.cloudpickle.dumps(label))
    assert sent.datasource == label.datasource == "maze/easy"
    assert json.dumps([sent, f"{sent}", sent + "!"]) == '["gold", "gold", "gold!"]'
    assert {"gold": 1}[sent] == 1 and type(str(sent)) is str


def test_other_labels_pass_as_they_are(data):
    assert data[1] == ("maze", "b", 5, None)
    assert type(data[2][2]) is str  # a null in the file is no datasource
    assert data[3][2].datasource == "default"  # upstream's word for a row without one


@pytest.mark.parametrize("workers", [0, 1])
def test_the_datasource_survives_upstreams_loader_and_its_draw(data, workers):
    from openrlhf.trainer.ppo_utils.samples_generator import _collect_prompt_batch
    from torchdata.stateful_dataloader import StatefulDataLoader

    loader = StatefulDataLoader(data, 1, collate_fn=data.collate_fn, num_workers=workers)
    prompts, labels, _, _ = _collect_prompt_batch(iter(loader), 1)
    assert (prompts, labels) == (["a"], ["gold"])
    assert labels[0].datasource == "maze/easy"


def test_both_actors_that_read_prompts_do_it_with_our_data_set(monkeypatch):
    """The synchronous trainer, and the half of the asynchronous one that generates."""
    import ray
    from openrlhf.trainer import ppo_trainer, ppo_trainer_async

    assert ppo_trainer_async.prepare_datasets is ppo_trainer.prepare_datasets
    assert "PromptDataset" in ppo_trainer.prepare_datasets.__code__.co_names

    from openrlhf_js.plugin import trainer
    from openrlhf_js.plugin.datasources import SourcedPrompts
    from openrlhf_js.plugin.upstream import plain_class

    class Reader:
        def __init__(self, pretrain, strategy):
            self.data_set = ppo_trainer.PromptDataset
            self.experience_maker = SimpleNamespace(live_estimator="js")
            self.actor_model_group = SimpleNamespace(_actor_handlers=[])

    strategy = SimpleNamespace(
        args=SimpleNamespace(algo=SimpleNamespace(advantage=SimpleNamespace(estimator="js")))
    )
    for ours in (trainer.shrinkage_trainer, trainer.sourced_generator):
        for name in ("PromptDataset", "RemoteExperienceMaker"):
            monkeypatch.setattr(ppo_trainer, name, None)
        actor = plain_class(ours(ray.remote(Reader)))
        assert actor("model", strategy).data_set is SourcedPrompts
