"""docs/upstream.md: its patch fits TRL, whose runs with the page's adapter are then ours.

OpenRLHF's is tried in openrlhf/test_upstream.py, verl's in verl_checks.py.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from trl_kit import make, sevens
from upstream_kit import code_of, patched


def test_trls_hook_makes_the_run_of_our_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In which a response without a score is left out; without the adapter it is TRL's own."""
    trl = pytest.importorskip("trl")

    def some(completions: list[str], **_: Any) -> list[float | None]:
        return [None, *sevens(completions)[1:]]

    ours = make(tmp_path, "GRPO", some, max_steps=4, per_device_train_batch_size=16)
    ours.train()
    folder = Path(trl.__file__).parent
    module = patched(tmp_path, "trl-1.16.0.patch", folder, "trainer.grpo_trainer")
    monkeypatch.setattr(trl, "GRPOTrainer", module.GRPOTrainer)
    names: dict[str, Any] = {}
    exec(code_of("TRL"), names)
    in_loss: list[torch.Tensor] = []

    class Noting(names["JSGradTrainer"]):  # type: ignore[misc]
        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
            in_loss.append(inputs["advantages"].sort().values)
            return super()._compute_loss(model, inputs)

    trainer = Noting(
        str(tmp_path / "policy"),
        [some],
        ours.args,
        ours.train_dataset,
        processing_class=ours.processing_class,
    )
    trainer.train()
    for found, expected in zip(in_loss, ours.seen, strict=True):
        torch.testing.assert_close(found, expected.sort().values, rtol=1e-3, atol=1e-5)
