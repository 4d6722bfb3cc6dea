"""docs/upstream.md: its patches fit the installed files, and its adapters then do what ours do.

verl's patch is tried in verl_checks.py.
"""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from kit import upstream_args
from trl_kit import make, sevens

from openrlhf_js.estimators import LiveEstimator, key_of, squared_score_norms

DOCS = Path(__file__).parents[2] / "docs"


def code_of(section: str) -> str:
    """What a section of the page says in Python, behind what all sections begin with."""
    page = (DOCS / "upstream.md").read_text()
    (first,) = re.findall(r"begin with:\n\n```python\n(.*?)```", page, re.S)
    (code,) = re.findall(rf"## {section}\n[^#]*?```python\n(.*?)```", page, re.S)
    return first + code


def patched(folder: Path, patch: str, package: Path, wanted: str) -> ModuleType:
    """A module of a package, after a patch of copies of the installed files."""
    difference = (DOCS / patch).read_text()
    for name in re.findall(r"^--- a/[a-z]+/(.*)$", difference, re.M):
        copy = folder / package.name / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(package / name, copy)
    command = ["patch", "-p1", "--fuzz=0"]
    subprocess.run(command, cwd=folder, input=difference, text=True, check=True)
    for name in re.findall(r"^--- a/([a-z]+/.*)$", difference, re.M):
        compile((folder / name).read_text(), name, "exec")
    file = (folder / package.name / wanted.replace(".", "/")).with_suffix(".py")
    spec = importlib.util.spec_from_file_location(f"{package.name}.{wanted}_patched", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def test_openrlhfs_hook_makes_our_advantages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two prompts with two responses each, which come in another order, in two steps."""
    openrlhf = pytest.importorskip("openrlhf")
    from openrlhf.trainer.ppo_utils.experience import Experience

    wanted = "trainer.ppo_utils.experience_maker"
    folder = Path(openrlhf.__file__).parent
    module = patched(tmp_path, "openrlhf-0.11.2-hook.patch", folder, wanted)
    (tmp_path / "adapter.py").write_text(code_of("OpenRLHF"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "adapter", raising=False)
    args = upstream_args(
        algo__advantage__estimator="adapter:js_grad", rollout__n_samples_per_prompt=2
    )
    nothing = [None] * 4
    strategy = SimpleNamespace(args=args)
    maker = module.RemoteExperienceMaker(*nothing, SimpleNamespace(value=0.0), strategy, None)

    live = LiveEstimator("js_grad")
    seed = torch.manual_seed(0)
    places = torch.tensor([2, 0, 3, 1])
    mask = torch.arange(5) < torch.tensor([5, 3, 4, 2])[:, None]
    for _ in range(2):
        rewards = torch.rand(4, generator=seed)
        log_probs = -torch.rand(4, 5, generator=seed)
        experiences = [
            Experience(
                index=places[rows].tolist(),
                rewards=rewards[places[rows]],
                action_log_probs=log_probs[places[rows]],
                action_mask=mask[places[rows]],
                prompts=[f"prompt {place // 2}" for place in places[rows].tolist()],
                kl=torch.zeros(2, 5),
            )
            for rows in (slice(0, 2), slice(2, 4))
        ]
        made = maker.compute_advantages_and_returns(experiences)
        batch = live.batch(
            rewards.view(2, 2),
            squared_score_norms=squared_score_norms(log_probs, mask).view(2, 2),
            keys=torch.tensor([key_of("prompt 0"), key_of("prompt 1")]),
        )
        expected = live.estimate(batch).advantages.flatten().float()
        live.learn(batch)
        found = torch.cat([each.advantages for each in made])
        torch.testing.assert_close(found, expected[places, None] * mask[places])
