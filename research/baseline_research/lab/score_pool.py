"""A pool of responses, with all inner products of their score gradients.

The policy gradient of a batch is a weighted sum of score gradients, g = sum_ij w_ij s_ij, and the
analyses need only inner products of such sums, w' (S S') v. So each distinct response takes one
pass; more estimators, values of m and batches need no further pass.

Axes: N prompts and M responses of the pool, U distinct responses, K entries of a sketch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from answer_graders.programs.console import progress
from answer_graders.programs.model_folders import model_fingerprint, model_folder
from answer_graders.programs.store import Record, Store
from baseline_research.lab.pool import Samples
from baseline_research.lab.results import Ints
from baseline_research.lab.scores import Score, ScoreSketcher, TokenSequence
from baseline_research.lab.settings import ScoreSettings
from openrlhf_js import __version__
from openrlhf_js.estimators import squared_score_norms
from paired_eval.sampling.settings import DTYPES
from paired_eval.stats.estimate import Floats

ROWS = 1024  # sketches multiplied at a time


class ScorePool(NamedTuple):
    """Responses with their rewards, and the inner products of their score gradients."""

    samples: Samples
    places: Ints
    """(N, M) which of the different responses each one is."""
    gram: NDArray[np.float32]
    """(U, U) inner products of score gradients; the diagonal is exact."""
    weights: Floats
    """(U,) `squared_score_norms` of each response, from its log-probabilities."""

    def at(self, prompts: Sequence[int] | Ints) -> ScorePool:
        """The pool of these prompts."""
        return self._replace(samples=self.samples.at(prompts), places=self.places[prompts])


def different_responses(samples: Samples) -> tuple[list[TokenSequence], Ints]:
    """The U distinct responses, prompt by prompt, and (N, M) the index of each response in them."""
    numbers: dict[tuple[int, bytes], int] = {}
    different: list[TokenSequence] = []
    places = np.zeros(samples.rewards.shape, dtype=np.int64)
    for row, prompt in enumerate(samples.prompts):
        for column, tokens in enumerate(samples.response_tokens[row]):
            key = row, _token_bytes(tokens)
            if key not in numbers:
                numbers[key] = len(different)
                different.append(TokenSequence(prompt.tokens, tokens))
            places[row, column] = numbers[key]
    return different, places


def _token_bytes(tokens: ArrayLike) -> bytes:
    return np.asarray(tokens, dtype="<i4").tobytes()


def open_score_pool(settings: ScoreSettings, samples: Samples) -> ScorePool:
    """The score gradients of all samples, under the model that sampled them."""
    if samples.settings["top_p"] != 1:
        raise ValueError("log-probabilities are of all tokens: sample with --top_p 1, not less")
    trust = settings.trust_remote_code
    folder = Path(samples.settings["model"])
    if model_fingerprint(folder) != samples.settings["model_sha256"]:
        raise ValueError(f"{folder} is not the model that was sampled; give another --out")
    model_folder(folder, trust)
    logging.disable_progress_bar()
    dtype = getattr(torch, DTYPES[settings.gradient_dtype])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, trust_remote_code=trust)
    model = model.to(settings.device_name)
    sketcher = ScoreSketcher(model, samples.settings["temperature"])
    return score_pool(sketcher, samples, settings.out)


def score_pool(sketcher: ScoreSketcher, samples: Samples, out: Path) -> ScorePool:
    """The pool of these samples; resumes from the sketches in `out/gradients`."""
    different, places = different_responses(samples)
    identity = _identity(sketcher, samples, different)
    folder = out / "gradients" / identity["responses_sha256"][:12]
    with Store(folder / "responses.jsonl", identity, ("response",)) as store:
        sketches = _sketches(sketcher, different, store, folder / "sketches.npy")
        records = [store.records[number,] for number in range(len(different))]
    gram = _gram_matrix(sketches, sketcher.model.device)
    np.fill_diagonal(gram, [record["squared_norm"] for record in records])
    weights = np.array([record["weight"] for record in records])
    return ScorePool(samples=samples, places=places, gram=gram, weights=weights)


def _sketches(
    sketcher: ScoreSketcher, different: Sequence[TokenSequence], store: Store, path: Path
) -> NDArray[np.float32]:
    """(U, K) sketches of the responses, on disk; each missing one takes a pass."""
    mode: Any = "r+" if store.records else "w+"
    shape = len(different), sketcher.numbers
    sketches = np.lib.format.open_memmap(path, mode, np.float32, shape)
    with progress("score gradients", len(different), "responses") as bar:
        for number, response in enumerate(different):
            if (number,) not in store:
                score = sketcher(response)
                sketches[number] = score.sketch
                store.append([_record(number, score)])
            bar.advance()
    return sketches


def _record(number: int, score: Score) -> Record:
    """The record that is stored beside a response's sketch."""
    weight = squared_score_norms(score.log_probs, torch.ones_like(score.log_probs))
    return {"response": number, "squared_norm": score.squared_norm, "weight": float(weight)}


def _identity(
    sketcher: ScoreSketcher, samples: Samples, different: Sequence[TokenSequence]
) -> dict[str, Any]:
    """Everything that the sketches depend on."""
    digest = hashlib.sha256()
    for response in different:
        for tokens in response:
            digest.update(_token_bytes(tokens))
            digest.update(b"\xff\xff\xff\xff")  # not a token id
    identity = {
        "openrlhf_js": __version__,
        "model_sha256": samples.settings["model_sha256"],
        "temperature": sketcher.temperature,
        "dtype": str(sketcher.dtype),
        "numbers": sketcher.numbers,
    }
    digest.update(repr(sorted(identity.items())).encode())
    return {**identity, "responses_sha256": digest.hexdigest()}


def _gram_matrix(sketches: NDArray[np.float32], device: torch.device) -> NDArray[np.float32]:
    """(U, U) products of sketches (U, K), block by block; only the lower half is computed."""
    size = len(sketches)
    gram = np.empty((size, size), dtype=np.float32)
    for top in range(0, size, ROWS):
        rows = slice(top, top + ROWS)
        row_sketches = torch.from_numpy(sketches[rows]).to(device)
        for left in range(0, top + 1, ROWS):
            columns = slice(left, left + ROWS)
            column_sketches = torch.from_numpy(sketches[columns]).to(device)
            products = (row_sketches @ column_sketches.T).cpu().numpy()
            gram[rows, columns] = products
            gram[columns, rows] = products.T
    return gram
