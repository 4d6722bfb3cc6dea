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

    def __init__(self, parameters: int, seed: int = 0):
        generator = torch.Generator().manual_seed(seed)
        bits = torch.randint(0, 2, (parameters,), generator=generator, dtype=torch.int8)
        self.signs = (bits * 2 - 1).float()
        self.signed = torch.zeros(parameters + -parameters % NUMBERS)

    def __call__(self, vector: Vector) -> torch.Tensor:
        """(K,)"""
        numbers = self.signed[: len(self.signs)]
        torch.cat([part.flatten() for part in vector], out=numbers)
        numbers.mul_(self.signs)
        return self.signed.view(-1, NUMBERS).sum(0)


class Responses(NamedTuple):
    """The different responses of a pool."""

    different: list[TokenSequence]
    """U of them."""
    places: Ints
    """(N, M) which of them each response is."""


def different_responses(pool: Samples) -> Responses:
    """Each response once for each prompt that it was given to."""
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
    return Responses(different, places)


def gram_matrix(scores: ScoreSum, different: Sequence[TokenSequence], path: Path) -> Floats:
    """(U, U) inner products of score gradients, from their sketches, which the file keeps."""
    shape = len(different), NUMBERS
    mode = "r+" if path.is_file() else "w+"
    sketches = np.lib.format.open_memmap(path, mode, np.float32, shape)
    sketch = Sketch(sum(part.numel() for part in scores.total))
    with progress("score gradients", len(different), "responses") as bar:
        for row, response in enumerate(different):
            if not sketches[row].any():
                scores.clear()
                scores.add(terms([response], np.ones(1)))
                sketches[row] = sketch(scores.total).numpy()
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


def summed(weights: Floats, places: Ints, different: int) -> Floats:
    """(B, U) weights (B, ...) of the responses at these places, those of equal responses added."""
    sums = np.zeros((len(weights), different))
    rows = np.arange(len(weights)).repeat(weights[0].size)
    np.add.at(sums, (rows, places.ravel()), weights.ravel())
    return sums


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


def moments(pool: Samples, places: Ints, gram: Floats, estimators: Sequence[Estimator]) -> Moments:
    """What gradients of batches of these questions come to."""
    chunks = []
    largest = max(RESPONSES)
    lengths = pool.lengths.astype(np.float64)
    for drawn in draws(*pool.rewards.shape):
        count = len(drawn.order)
        every = np.arange(len(pool.rewards))[None, :, None]
        rest = drawn.order[:, :, largest:]
        half = rest.shape[2] // 2
        sums = []
        for columns in (rest[:, :, :half], rest[:, :, half : 2 * half]):
            rewards = pool.rewards[every, columns]
            weights = rewards - rewards.mean(2, keepdims=True)
            weights /= (half - 1) * len(pool.rewards)
            sums.append(summed(weights.reshape(count, -1), places[every, columns], len(gram)))
        toward = (sums[0] + sums[1]) / 2 @ gram
        signal = np.einsum("bu,bu->b", sums[0] @ gram, sums[1]).mean()
        rows = drawn.questions[:, :, None]
        order = np.take_along_axis(drawn.order, rows, 1)
        norms = np.zeros((len(RESPONSES), len(estimators)))
        products = np.zeros_like(norms)
        for at_m, m in enumerate(RESPONSES):
            columns = order[:, :, :m]
            rewards = pool.rewards[rows, columns]
            found = baselines(
                estimators,
                rewards,
                pool.greedy_rewards[drawn.questions],
                lengths[rows, columns],
            )
            for at_estimator in range(len(estimators)):
                weights = (rewards - found[:, at_estimator]) / rewards[0].size
                weights = weights.reshape(count, -1)
                batch = summed(weights, places[rows, columns], len(gram))
                norms[at_m, at_estimator] = np.einsum("bu,bu->b", batch @ gram, batch).mean()
                products[at_m, at_estimator] = np.einsum("bu,bu->b", batch, toward).mean()
        chunks.append(Moments(norms, products, float(signal)))
    return Moments._make(np.mean(field, axis=0) for field in zip(*chunks, strict=True))


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


def main() -> None:
    folder, table = map(Path, sys.argv[1:])
    pool = open_samples(folder)
    responses = different_responses(pool)
    model = AutoModelForCausalLM.from_pretrained(pool.settings["model"], dtype=torch.float32)
    scores = ScoreSum(model, pool.settings["temperature"])
    digest = hashlib.sha256(pool.settings["model_sha256"].encode())
    for response in responses.different:
        digest.update(np.asarray(response.response, dtype="<i4").tobytes())
    path = folder / f"sketches-{digest.hexdigest()[:12]}.npy"
    gram = gram_matrix(scores, responses.different, path)
    estimators = estimators_of(pool)
    names = [estimator.name for estimator in estimators]
    reference = names.index(REFERENCE)
    whole = moments(pool, responses.places, gram, estimators)
    without = []
    with progress("without each part of the questions", PARTS, "parts") as bar:
        for part in range(PARTS):
            kept = np.flatnonzero(np.arange(len(pool.rewards)) % PARTS != part)
            without.append(moments(pool.at(kept), responses.places[kept], gram, estimators))
            bar.advance()
    print(f"{len(responses.different)} different responses of {pool.rewards.size}")
    (signal,) = jackknife(np.array([whole.signal]), [np.array([part.signal]) for part in without])
    print(f"||grad J||^2 = {signal.value:.3g} ({signal.low:.3g} to {signal.high:.3g})")
    noise = whole.distances[:, reference] / whole.signal
    print("rloo's distance over it:", ", ".join(f"{ratio:.1f}" for ratio in noise))
    rows = []
    for quantity in ("distances", "cosines"):
        sign = 1 if quantity == "distances" else -1
        of_whole = sign * against(getattr(whole, quantity), reference)
        of_parts = [sign * against(getattr(part, quantity), reference) for part in without]
        for at_m, m in enumerate(RESPONSES):
            found = jackknife(of_whole[at_m], [of_part[at_m] for of_part in of_parts])
            for name, estimate_of_it in zip(names, found, strict=True):
                rows.append((quantity, m, name, *estimate_of_it))
    columns = ["quantity", "m", "estimator", "percent", "low", "high"]
    frame = pd.DataFrame(rows, columns=columns)
    frame.to_csv(table, index=False, float_format="%.4g")
    for quantity, of_quantity in frame.groupby("quantity", sort=False):
        of_quantity = of_quantity[of_quantity.estimator != REFERENCE]
        show(quantity, of_quantity.round(1).drop(columns="quantity"))


if __name__ == "__main__":
    main()
