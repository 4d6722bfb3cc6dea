"""What a quickstart run is made of."""

from __future__ import annotations

from dataclasses import dataclass

# Every estimator that needs neither a critic (gae) nor a further flag (js_fixed).
ESTIMATORS = (
    *("js", "js_plus", "js1", "bloo", "remax"),
    *("rloo", "reinforce", "reinforce_baseline", "group_norm", "dr_grpo", "flash_reinforce"),
)


@dataclass(frozen=True)
class Settings:
    """Saved with the results of the run."""

    task: str = "sort"
    estimators: tuple[str, ...] = ("js",)
    seed: int = 0
    steps: int = 50  # of reinforcement learning
    prompts_per_step: int = 64
    responses_per_prompt: int = 4
    learning_rate: float = 3e-4
    held_out: int = 200  # prompts
    evaluation_samples: int = 8  # responses per held-out prompt, before and after
    curve_every: int = 10  # steps between two points of the held-out curve
    curve_samples: int = 2  # responses per held-out prompt and point
