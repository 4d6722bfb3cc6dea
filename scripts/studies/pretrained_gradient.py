"""How far the gradients of small batches of the pretrained model are from the precise one.

.venv/bin/python scripts/studies/pretrained_gradient.py runs/smollm2/lab docs/data/NAME.csv

The folder is that of `openrlhf-js lab mse`: a model, its questions, and responses with rewards. The
same command resumes; a few dozen minutes of one core.

`lab gradient` sums up a whole gradient for each batch and baseline. Here each different response
has its score gradient s = grad log pi(y | x) taken once, and kept as a sketch: K sums of its
numbers with random signs, so that inner products of sketches are unbiased for those of gradients,
with a standard deviation of about |s| |s'| / sqrt(K). The gradient of a batch is a weighted sum
g = sum w s, and all that is asked of it are products of such sums, w' (S S') v. So every baseline,
every m and thousands of batches cost no further pass.

A batch is n questions with m responses each, drawn from N questions with M. Two halves of the
responses that are not in it give G_1 and G_2, which are unbiased for the gradient grad J over the
N questions, and independent of each other and of g:

    E ||g - grad J||^2 = E (||g||^2 - <g, G_1 + G_2> + <G_1, G_2>)

Axes: N questions and M responses of the pool, U different responses; B batches; e estimators.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from grid import show
from transformers import AutoModelForCausalLM

from openrlhf_js.common.console import progress
from openrlhf_js.estimators import Batch, Estimator, estimate, find_estimator
from openrlhf_js.lab.mse import names_of
from openrlhf_js.lab.policy_gradient import ScoreSum, TokenSequence, Vector, terms
from openrlhf_js.lab.pool import Samples, open_samples
from openrlhf_js.lab.results import REFERENCE, Ints
from openrlhf_js.stats.estimate import Estimate, Floats, t_estimate

QUESTIONS = 16  # n, of a batch
RESPONSES = (2, 4, 8)  # every m
BATCHES = 4000
CHUNK = 500  # batches at a time
PARTS = 16  # of the questions, each left out once, for intervals over questions
NUMBERS = 1 << 18  # K, of a sketch
SCALED = ("grpo", "js_fixed")  # has another true gradient; has a coefficient to choose


class Sketch:
    """Random signs for all parameters, and sums over every K-th of them."""

    def __init__(self, parameters: int, device: torch.device, seed: int = 0):
        generator = torch.Generator().manual_seed(seed)
        bits = torch.randint(0, 2, (parameters,), generator=generator, dtype=torch.int8)
        self.signs = (bits * 2 - 1).float().to(device)
        self.signed = torch.zeros(parameters + -parameters % NUMBERS, device=device)

    def __call__(self, vector: Vector) -> torch.Tensor:
        """(K,)"""
        numbers = self.signed[: len(self.signs)]
        torch.cat([part.flatten() for part in vector], out=numbers)
        numbers.mul_(self.signs)
        return self.signed.view(-1, NUMBERS).sum(0)


def different_responses(pool: Samples) -> tuple[list[TokenSequence], Ints]:
    """The U different responses, question by question, and (N, M) which of them each one is."""
    numbers: dict[tuple[int, bytes], int] = {}
    different = []
    places = np.zeros(pool.rewards.shape, dtype=np.int64)
    for row, prompt in enumerate(pool.prompts):
        for column, tokens in enumerate(pool.response_tokens[row]):
            key = row, np.asarray(tokens, dtype="<i4").tobytes()
            if key not in numbers:
                numbers[key] = len(different)
                different.append(TokenSequence(prompt.tokens, tokens))
            places[row, column] = numbers[key]
    return different, places


def gram_matrix(scores: ScoreSum, different: Sequence[TokenSequence], path: Path) -> Floats:
    """(U, U) inner products of score gradients, from their sketches, which the file keeps."""
    shape = len(different), NUMBERS
    mode = "r+" if path.is_file() else "w+"
    sketches = np.lib.format.open_memmap(path, mode, np.float32, shape)
    parameters = sum(part.numel() for part in scores.total)
    sketch = Sketch(parameters, scores.model.device)
    with progress("score gradients", len(different), "responses") as bar:
        for row, response in enumerate(different):
            if not sketches[row].any():
                scores.clear()
                scores.add(terms([response], np.ones(1)))
                sketches[row] = sketch(scores.total).cpu().numpy()
            bar.advance()
    sketches.flush()
    return (sketches @ sketches.T).astype(np.float64)


def estimators_of(pool: Samples) -> list[Estimator]:
    """Those whose gradient can be compared."""
    names = names_of(pool, QUESTIONS)
    return [find_estimator(name) for name in names if name not in SCALED]


class Drawn(NamedTuple):
    """Batches, and what is known of their responses. Columns are those of the pool, in random
    order for each batch and question."""

    questions: Ints
    """(B, n)"""
    order: Ints
    """(B, N, M) columns; a batch takes the first m."""


def draws(questions: int, responses: int, seed: int = 0) -> Iterator[Drawn]:
    """All batches, some at a time."""
    generator = np.random.default_rng(seed)
    for _ in range(0, BATCHES, CHUNK):
        chosen = generator.random((CHUNK, questions)).argsort(1)[:, :QUESTIONS]
        order = generator.random((CHUNK, questions, responses)).argsort(2)
        yield Drawn(chosen, order)


def baselines(
    estimators: Sequence[Estimator], rewards: Floats, greedy_rewards: Floats, lengths: Ints
) -> Floats:
    """(B, e, n, m) of batches: rewards (B, n, m), greedy rewards (B, n), lengths (B, n, m)."""

    def of_one(
        rewards: torch.Tensor, greedy_rewards: torch.Tensor, lengths: torch.Tensor
    ) -> torch.Tensor:
        batch = Batch(
            rewards=rewards,
            mask=torch.ones_like(rewards, dtype=torch.bool),
            greedy_rewards=greedy_rewards,
            lengths=lengths,
        )
        return torch.stack([estimate(estimator, batch).baseline for estimator in estimators])

    arrays = (torch.from_numpy(array) for array in (rewards, greedy_rewards, lengths))
    return torch.vmap(of_one)(*arrays).numpy()


class ScorePool(NamedTuple):
    """A pool of responses, and the products of their score gradients.

    A gradient is given by its weights (U,): how often each score gradient is in the sum.
    """

    samples: Samples
    lengths: Floats
    """(N, M) tokens of the responses."""
    places: Ints
    """(N, M) which of the different responses each one is."""
    gram: Floats
    """(U, U)"""

    def at(self, questions: Ints) -> ScorePool:
        """That of some questions."""
        return ScorePool(
            samples=self.samples.at(questions),
            lengths=self.lengths[questions],
            places=self.places[questions],
            gram=self.gram,
        )

    def summed(self, weights: Floats, questions: Ints, columns: Ints) -> Floats:
        """(B, U) gradients: weights (B, n, m) of the responses at these questions and columns."""
        sums = np.zeros((len(weights), len(self.gram)))
        batches = np.arange(len(weights))[:, None, None]
        np.add.at(sums, (batches, self.places[questions, columns]), weights)
        return sums

    def product(self, left: Floats, right: Floats) -> float:
        """The mean inner product of gradients (B, U)."""
        return float(np.einsum("bu,bu->b", left @ self.gram, right).mean())

    def true_gradients(self, columns: Ints) -> Floats:
        """(B, U) unbiased estimates of grad J, with rloo on these columns (B, N, k)."""
        questions = np.arange(len(self.places))[None, :, None]
        rewards = self.samples.rewards[questions, columns]
        advantages = rewards - rewards.mean(2, keepdims=True)
        weights = advantages / (rewards.shape[2] - 1) / rewards.shape[1]
        return self.summed(weights, questions, columns)

    def batch_gradients(
        self, drawn: Drawn, m: int, estimators: Sequence[Estimator]
    ) -> Iterator[Floats]:
        """(B, U) the gradients of batches with m responses, by each estimator in turn."""
        questions = drawn.questions[:, :, None]
        columns = np.take_along_axis(drawn.order, questions, 1)[:, :, :m]
        rewards = self.samples.rewards[questions, columns]
        greedy_rewards = self.samples.greedy_rewards[drawn.questions]
        lengths = self.lengths[questions, columns]
        of_estimators = baselines(estimators, rewards, greedy_rewards, lengths)
        for place in range(len(estimators)):
            weights = (rewards - of_estimators[:, place]) / rewards[0].size
            yield self.summed(weights, questions, columns)


class Moments(NamedTuple):
    """Means over batches."""

    squared_norms: Floats
    """(m, e) of ||g||^2"""
    products: Floats
    """(m, e) of <g, grad J>"""
    signal: float
    """of ||grad J||^2"""

    @property
    def distances(self) -> Floats:
        """(m, e) of ||g - grad J||^2"""
        return self.squared_norms - 2 * self.products + self.signal

    @property
    def cosines(self) -> Floats:
        """(m, e) <g, grad J>^2 / (||g||^2 ||grad J||^2): free of the length of g."""
        return self.products**2 / self.squared_norms / self.signal


def moments(pool: ScorePool, estimators: Sequence[Estimator]) -> Moments:
    """What gradients of batches of these questions come to."""
    chunks = [moments_of(pool, drawn, estimators) for drawn in draws(*pool.places.shape)]
    return Moments._make(np.mean(field, axis=0) for field in zip(*chunks, strict=True))


def moments_of(pool: ScorePool, drawn: Drawn, estimators: Sequence[Estimator]) -> Moments:
    """The same of some batches, each with true gradients from responses that are not in it."""
    rest = drawn.order[:, :, max(RESPONSES) :]
    half = rest.shape[2] // 2
    first = pool.true_gradients(rest[:, :, :half])
    second = pool.true_gradients(rest[:, :, half : 2 * half])
    true = (first + second) / 2
    squared_norms = []
    products = []
    for m in RESPONSES:
        gradients = list(pool.batch_gradients(drawn, m, estimators))
        squared_norms.append([pool.product(gradient, gradient) for gradient in gradients])
        products.append([pool.product(gradient, true) for gradient in gradients])
    return Moments(np.array(squared_norms), np.array(products), pool.product(first, second))


def jackknife(whole: Floats, parts: Sequence[Floats]) -> list[Estimate]:
    """Each figure with its 95 % interval, from the same figures without each part."""
    without = np.stack(parts)
    deviations = without - without.mean(0)
    errors = np.sqrt((len(parts) - 1) / len(parts) * (deviations**2).sum(0))
    degrees = len(parts) - 1
    pairs = zip(whole.tolist(), errors.tolist(), strict=True)
    return [t_estimate(value, error, degrees) for value, error in pairs]


def against(figures: Floats, reference: int) -> Floats:
    """(m, e) by how many percent figures are below the reference's."""
    return 100 * (1 - figures / figures[:, [reference]])


def score_pool(folder: Path) -> ScorePool:
    """The pool of a folder of the lab."""
    samples = open_samples(folder)
    different, places = different_responses(samples)
    model = AutoModelForCausalLM.from_pretrained(samples.settings["model"], dtype=torch.float32)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    scores = ScoreSum(model.to(device), samples.settings["temperature"])
    digest = hashlib.sha256(samples.settings["model_sha256"].encode())
    for response in different:
        digest.update(np.asarray(response.response, dtype="<i4").tobytes())
    path = folder / f"sketches-{digest.hexdigest()[:12]}.npy"
    return ScorePool(
        samples=samples,
        lengths=samples.lengths.astype(np.float64),
        places=places,
        gram=gram_matrix(scores, different, path),
    )


def print_lengths(pool: ScorePool) -> None:
    """How long the score gradients of right and wrong responses are, and what follows."""
    rewards = pool.samples.rewards
    squared = pool.gram.diagonal()[pool.places]
    right = rewards == 1
    ratio = squared[right].mean() / squared[~right].mean()
    least = (squared * rewards).sum() / squared.sum()
    print(
        f"{len(pool.gram)} different responses of {rewards.size}; mean reward {rewards.mean():.3f}"
    )
    print(f"Squared length of score gradients, right over wrong responses: {ratio:.2f}")
    print(f"The constant baseline whose terms have the least mean square: {least:.3f}")


def table_of(
    whole: Moments, without: Sequence[Moments], estimators: Sequence[Estimator]
) -> pd.DataFrame:
    """By how many percent distances are below rloo's, and squared cosines above, with intervals."""
    names = [estimator.name for estimator in estimators]
    reference = names.index(REFERENCE)
    rows = []
    for quantity, sign in (("distances", 1), ("cosines", -1)):
        of_whole = sign * against(getattr(whole, quantity), reference)
        of_parts = [sign * against(getattr(part, quantity), reference) for part in without]
        for place, m in enumerate(RESPONSES):
            intervals = jackknife(of_whole[place], [of_part[place] for of_part in of_parts])
            for name, interval in zip(names, intervals, strict=True):
                rows.append((quantity, m, name, *interval))
    return pd.DataFrame(rows, columns=["quantity", "m", "estimator", "percent", "low", "high"])


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    folder, path = map(Path, sys.argv[1:])
    pool = score_pool(folder)
    print_lengths(pool)
    estimators = estimators_of(pool.samples)
    whole = moments(pool, estimators)
    without = []
    with progress("without each part of the questions", PARTS, "parts") as bar:
        for part in range(PARTS):
            kept = np.flatnonzero(np.arange(len(pool.places)) % PARTS != part)
            without.append(moments(pool.at(kept), estimators))
            bar.advance()
    signals = [np.array([part.signal]) for part in without]
    (signal,) = jackknife(np.array([whole.signal]), signals)
    print(f"||grad J||^2 = {signal.value:.3g} ({signal.low:.3g} to {signal.high:.3g})")
    table = table_of(whole, without, estimators)
    table.to_csv(path, index=False, float_format="%.4g")
    for quantity, rows in table[table.estimator != REFERENCE].groupby("quantity", sort=False):
        show(quantity, rows.round(1).drop(columns="quantity"))


if __name__ == "__main__":
    main()
