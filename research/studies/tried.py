"""Other forms of `js_grad` that were tried, and not taken (docs/report.md).

python research/studies/tried.py OUT [TASK ...]      # OUT: a study's folder, with its warm starts

Prints how far the weighted squared error sum w (r - b)^2 of each form is below RLOO's, in percent,
in batches of the start's responses. It stands for the noise of the gradient, with the weights as
they are estimated. The forms are own baselines, which a study takes, too:

openrlhf-js study --estimators rloo js_grad research/studies/tried.py:Wider ...
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from baseline_research.markdown_table import print_table
from openrlhf_js.estimators.group_stats import ratio, sum_of_others

if TYPE_CHECKING:
    from torch import Tensor

    from openrlhf_js.estimators.batch import Batch

TASKS = ("walk_60", "swaps_60", "product_60")
ESTIMATORS = ("weighted_rloo", "no_baseline", "js_grad")
FORMS = ("Wider", "LongMemory", "OwnKappa")
PROMPTS = 64
RESPONSES = (2, 4)
STEPS = 50
FIRST_STEPS = 10  # which teach the forms, and are not judged
PRIOR = 0.25
RLOO_PROMPTS = 1.5
RIDGE = 1e-9  # of the trace, where a regressor does not vary


class Wider:
    """A regression on x, v, v^2 and v x, with a memory of 256 prompts.

    v is the log of the mean weight of the prompt's other responses. As in `js_grad`, nothing of a
    response enters its own baseline, and 1.5 pseudo-prompts pull towards RLOO.
    """

    past_prompts = 256.0
    regressors = 4

    def __init__(self) -> None:
        size = self.regressors + 2  # with 1 in front and the reward behind
        self.moments = torch.zeros(size, size, dtype=torch.float64)
        self.squares = torch.zeros((), dtype=torch.float64)
        self.responses = 0.0

    def baseline(self, batch: Batch) -> Tensor:
        """(n, m) predictions; RLOO's in the first batch."""
        if not self.responses:
            return batch.statistics.loo_prompt_mean
        features, rest = self._features(batch)
        products, squares = self._sums(batch, features)
        known = sum_of_others(products, 0) + self.moments  # (n, f, f)
        known = known * (known[:, 0, 0] / (sum_of_others(squares, 0) + self.squares))[:, None, None]
        mean = known[:, 0] / known[:, 0, :1]
        sums = known - known[:, :1, :1] * mean[:, :, None] * mean[:, None, :]
        distance = features[..., 1:-1] - mean[:, None, 1:-1]  # (n, m, regressors)
        pull = RLOO_PROMPTS * ratio(rest, torch.full_like(rest, self._mean_weight))
        outer = distance[..., :, None] * distance[..., None, :]
        left = sums[:, None, 1:-1, 1:-1] + pull[..., None, None] * outer
        trace = left.diagonal(dim1=-2, dim2=-1).sum(-1)
        left = left + (RIDGE * trace + 1e-30)[..., None, None] * torch.eye(self.regressors)
        right = sums[:, None, 1:-1, -1] + (pull * distance[..., 0])[..., None] * distance
        slopes = torch.linalg.solve(left, right)
        return mean[:, None, -1] + (slopes * distance).sum(-1)

    def learn(self, batch: Batch) -> None:
        """Adds a batch."""
        if not self.responses:  # x needs earlier steps, so the first batch gives none
            self._mean_reward = float((batch.weights * batch.rewards).sum() / batch.weights.sum())
            self._mean_weight = float(batch.weights.mean())
        features, _ = self._features(batch)
        products, squares = self._sums(batch, features)
        self.moments = self.moments + products.sum(0)
        self.squares = self.squares + squares.sum()
        self.responses += batch.mask.sum().item()
        prompts = float(self.moments[0, 0] ** 2 / self.squares)
        kept = min(1.0, self.past_prompts / prompts)
        self.moments = kept * self.moments
        self.squares = kept * self.squares
        self.responses *= kept
        self._mean_weight = float(self.moments[0, 0]) / self.responses
        self._mean_reward = float(self.moments[0, -1] / self.moments[0, 0])

    def _features(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(n, m, f) of 1, the regressors and the reward; (n, m) mean weight of the others."""
        weight = sum_of_others(batch.weights, 1)
        total = sum_of_others(batch.weights * batch.rewards, 1)
        count = sum_of_others(batch.mask.double(), 1)
        kappa = self._kappa(ratio(weight, count))
        x = (total + kappa * self._mean_reward) / (weight + kappa)
        rest = ratio(weight, count)
        v = ((weight + kappa) / (count + PRIOR) / self._mean_weight).log()
        columns = [x, v, v * v, v * x][: self.regressors]
        return torch.stack([torch.ones_like(x), *columns, batch.rewards], -1), rest

    def _kappa(self, rest: Tensor) -> Tensor:
        """(n, m) how much the mean reward of earlier steps weighs in x."""
        return torch.full_like(rest, PRIOR * self._mean_weight)

    def _sums(self, batch: Batch, features: Tensor) -> tuple[Tensor, Tensor]:
        """(n, f, f) weighted products, and (n,) squared weights, of each prompt."""
        weighted = batch.weights[..., None] * features
        return weighted.transpose(1, 2) @ features, batch.weights.sum(1).square()


class LongMemory(Wider):
    """A regression on x alone, with a memory of 256 prompts."""

    regressors = 1


class OwnKappa(LongMemory):
    """The same, where kappa is a quarter of the mean weight of the prompt's other responses."""

    def _kappa(self, rest: Tensor) -> Tensor:
        return PRIOR * rest


def weighted_errors(task: str, mix: str, responses: int, out: Path) -> dict[str, float]:
    """sum w (r - b)^2 of each estimator, in batches of the start's responses."""
    from baseline_research.study.design import InlineStudy
    from baseline_research.study.inline.prompts import policy_in, training_batches, warm_start
    from baseline_research.study.inline.rollout import sample
    from baseline_research.study.inline.training import keys_of
    from baseline_research.study.runs import Run
    from baseline_research.tiny import tasks
    from openrlhf_js.estimators import LiveEstimator, squared_score_norms

    settings = InlineStudy(out=out, tasks=[task], mixes=[mix], width=64, layers=2, steps=STEPS)
    run = Run(task, mix, PROMPTS, responses, estimator="rloo", learning_rate=1e-4, seed=0)
    policy = policy_in(warm_start(task, settings), settings)
    live = {name: LiveEstimator(name) for name in ("rloo", *ESTIMATORS)}
    live |= {form: LiveEstimator(f"{Path(__file__)}:{form}") for form in FORMS}
    errors = dict.fromkeys(live, 0.0)
    for step, problems in enumerate(training_batches(run, settings)):
        rollout = sample(policy, tasks.TASKS[task], problems, responses, policy.generator(step))
        weights = squared_score_norms(rollout.log_probs, rollout.valid)
        weights = weights.view(PROMPTS, responses)
        for name, estimator in live.items():
            batch = estimator.batch(
                rollout.rewards, squared_score_norms=weights, keys=keys_of(problems), step=step
            )
            advantages = estimator.estimate(batch).advantages
            estimator.learn(batch)
            if step >= FIRST_STEPS:
                errors[name] += float((weights * advantages.square()).sum())
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder of a study, with its warm starts")
    parser.add_argument("tasks", nargs="*", default=TASKS, metavar="TASK")
    arguments = parser.parse_args()
    settings = itertools.product(arguments.tasks, ("natural", "mixed"), RESPONSES)
    rows = (row_of(*setting, arguments.out) for setting in settings)
    print_table(("task", "m", *ESTIMATORS, *FORMS), rows)


def row_of(task: str, mix: str, responses: int, out: Path) -> list[str]:
    """One setting: how far each error is below RLOO's, in percent."""
    errors = weighted_errors(task, mix, responses, out)
    below = [100 * (1 - errors[name] / errors["rloo"]) for name in (*ESTIMATORS, *FORMS)]
    return [f"{task}, {mix}", str(responses), *(f"{value:.0f}" for value in below)]


if __name__ == "__main__":
    main()
