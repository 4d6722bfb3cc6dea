"""A tiny model in TRL's trainers with our advantages, which several test files share."""

from pathlib import Path
from typing import Any

import pytest
import torch

M = 4
# What `make` hands to the trainer; all else is for its settings.
TRAINERS_OWN = ("estimator", "shrinkage", "peft_config", "environment_factory", "rollout_func")


def norms_by_hand(trainer: Any, output: dict[str, Any]) -> torch.Tensor:
    """(B,) sum of (1 - pi)^2 over the tokens of each response, of the model's own logits."""
    completions = output["completion_ids"]
    ids = torch.cat([output["prompt_ids"], completions], 1)
    mask = torch.cat([output["prompt_mask"], output["completion_mask"]], 1)
    with torch.no_grad():
        logits = trainer.model(input_ids=ids, attention_mask=mask).logits
    before = logits[:, -completions.shape[1] - 1 : -1] / trainer.args.temperature
    chosen = before.double().softmax(-1).gather(-1, completions[..., None])[..., 0]
    written = output["completion_mask"] * output.get("tool_mask", 1)
    return ((1 - chosen).square() * written).sum(1)


def make(folder: Path, kind: str, *rewards: Any, **given: Any) -> Any:
    """A trainer of 20 steps, whose `seen` fills with the advantages of each batch, `batches` with
    what the estimator sees, and `norms` with the weights by hand.

    `given` are settings of TRL, arguments of the trainer, or `tokenizer`, `prompts`, `columns`,
    `responses`.
    """
    trl = pytest.importorskip("trl", reason="TRL needs Python 3.11")
    import trl.import_utils as available

    available.is_vllm_available = lambda *_, **__: False  # an import of many seconds
    from datasets import Dataset

    import openrlhf_js.trainers.trl as ours
    from baseline_research.tiny import model
    from baseline_research.tiny.tasks import TASKS

    class Noting(getattr(ours, f"Shrinkage{kind}Trainer")):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = super()._generate_and_score_completions(inputs)
            self.seen.append(output["advantages"])
            return output

        def _batch(self, rewards: Any, mask: Any, output: Any) -> Any:
            self.batches.append(super()._batch(rewards, mask, output))
            if "prompt_ids" in output:
                self.norms.append(norms_by_hand(self, output))
            return self.batches[-1]

    own = {name: given.pop(name) for name in TRAINERS_OWN if name in given}
    responses = given.pop("responses", None)
    tokenizer = given.pop("tokenizer", None) or model.make_tokenizer(TASKS["sort"].tokens)
    columns = given.pop("columns", {})
    prompts = given.pop("prompts", [f"sort({number})=" for number in range(10, 24)])
    sizes = {"num_generations": M, "per_device_train_batch_size": 32, "max_completion_length": 6}
    speed = {"max_steps": 20, "learning_rate": 1e-2, "use_cpu": True, "bf16": False}
    quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True}
    needed = {"scale_rewards": "none"} if kind == "GRPO" else {"beta": 0.0}
    model.make_model(tokenizer, 0, width=32, layers=1).save_pretrained(folder / "policy")
    config = getattr(trl, f"{kind}Config")(str(folder), **sizes | speed | quiet | needed | given)
    if responses is not None:  # which TRL's settings refuse to be 1
        config.num_generations = responses
    data = Dataset.from_dict({"prompt": prompts} | columns)
    places = (str(folder / "policy"), list(rewards), config, data, data.select(range(2)))
    trainer = Noting(*places, processing_class=tokenizer, **own)
    trainer.seen, trainer.batches, trainer.norms = [], [], []
    return trainer


def sevens(completions: list[str], **_: Any) -> list[float]:
    """The share of sevens: what the model can learn in 20 steps."""
    return [each.count("7") / max(len(each), 1) for each in completions]
