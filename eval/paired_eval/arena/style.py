"""Style counts of answers, and style control.

Style control is a logistic regression of the games on the models and on how the two answers differ
in style, with errors clustered by question. For the model's answer a and the baseline's b:

    length              (a - b) / (a + b), of tokens
    header, list, bold  (d_a - d_b) / (d_a + d_b + 1), of densities d = count / tokens

each z-scored over the weighted rows, as in v2.0's show_result.py.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from multiprocessing import TimeoutError
from multiprocessing.pool import ThreadPool
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from answer_graders.programs.console import say
from paired_eval.stats import Estimate
from paired_eval.stats.estimate import t_estimate

if TYPE_CHECKING:
    import pandas as pd

Floats: TypeAlias = NDArray[np.float64]
CountTokens = Callable[[str], int]

STYLE = ("tokens", "headers", "lists", "bold")  # counts of an answer, and their official names
COUNTS = ("token_len", "header_count", "list_count", "bold_count")
_CODE = re.compile(r"```([^`]*)```")
_HEADERS = {f"h{level}": re.compile(rf"^#{{{level}}}\s", re.MULTILINE) for level in range(1, 7)}
# The official patterns let the space before an item cross line ends, which finds the same items in
# quadratic time.
_LISTS = {
    "ordered": re.compile(r"^[^\S\n]*\d+\.\s", re.MULTILINE),
    "unordered": re.compile(r"^[^\S\n]*[-*+]\s", re.MULTILINE),
}
_BOLD = {"**": re.compile(r"\*\*[^*\n]+\*\*"), "__": re.compile(r"__[^_\n]+__")}


def metadata(text: str, count_tokens: CountTokens) -> dict[str, Any]:
    """The counts of an answer as the official repository makes them, and in its order."""
    plain = without_code(text)
    return {
        "token_len": count_tokens(text),
        "header_count": _matches(_HEADERS, plain),
        "list_count": _matches(_LISTS, plain),
        "bold_count": _matches(_BOLD, plain),
    }


def _matches(patterns: Mapping[str, re.Pattern[str]], text: str) -> dict[str, int]:
    """How often each pattern matches."""
    return {name: sum(1 for _ in regex.finditer(text)) for name, regex in patterns.items()}


def without_code(text: str) -> str:
    """The text without fenced code; as in the official script, every copy of that code goes."""
    for inside in _CODE.findall(text):
        text = text.replace(inside, "")
    return text


def style_of(metadata: Any) -> tuple[int, ...] | None:
    """The counts of `STYLE` in an answer's `metadata`; None where there are none."""
    try:
        return tuple(_total(metadata[name]) for name in COUNTS)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _total(count: Any) -> int:
    """One count, or the sum of those of several kinds."""
    return int(sum(count.values()) if isinstance(count, dict) else count)


def load_tokenizer(bench: str) -> CountTokens | None:
    """Counts tokens as the official repository does for this bench; None if no tokenizer loads."""
    import tiktoken

    name = "cl100k_base" if bench == "arena-hard-v0.1" else "o200k_base"  # gpt-3.5's; gpt-4o's
    loading = ThreadPool(1).apply_async(tiktoken.get_encoding, [name])
    try:
        encoding = loading.get(60)  # seconds; its threads do not keep the program from ending
    except (OSError, TimeoutError):
        why = "tiktoken cannot download its tokenizer; try again later"
        say(f"style is not counted: {why}", error=True)
        return None
    return lambda text: len(encoding.encode(text, disallowed_special=()))


FEATURES = ("length", "header", "list", "bold")
SMALLEST_DEVIATION = 1e-9  # of a feature that varies


def differences(ours: Floats, theirs: Floats) -> Floats:
    """Differences (rows, 4) of two answers' counts (rows, 4), in the order of `FEATURES`."""
    our_tokens = ours[:, :1]
    their_tokens = theirs[:, :1]
    our_density = ours[:, 1:] / np.maximum(our_tokens, 1)  # (rows, 3) headers, lists, bold texts
    their_density = theirs[:, 1:] / np.maximum(their_tokens, 1)
    length = (our_tokens - their_tokens) / np.maximum(our_tokens + their_tokens, 1)
    markup = (our_density - their_density) / (our_density + their_density + 1)
    return np.concatenate([length, markup], axis=1)


def control(games: pd.DataFrame) -> dict[str, Estimate]:
    """Scores in [0, 1] at the pool's mean style difference, with intervals by question.

        P(model wins) = 1 / (1 + exp(-(theta_model + beta z)))

    is fitted over all models. `games` has columns model, uid, points in [0, 1], weight, and the
    features' differences; every model has won and lost something.
    """
    weight = games.weight.to_numpy(float)
    model_number, models = games.model.factorize(sort=True)
    one_hot = np.eye(len(models))[model_number]
    features = _standardised(games[list(FEATURES)], weight)
    fit = _fit(games, design=np.column_stack([one_hot, features]), weight=weight)
    questions = games.groupby("model").uid.nunique()
    scores = {}
    for model, theta, error in zip(models, fit.params, fit.bse, strict=False):  # beta comes last
        degrees = questions[model] - 1
        score, low, high = special.expit(t_estimate(theta, error, degrees)).tolist()
        scores[str(model)] = Estimate(score, low, high)
    return scores


def _fit(games: pd.DataFrame, design: Floats, weight: Floats) -> Any:
    """The logistic regression of points, with errors by question; ValueError if there is none."""
    import statsmodels.api as sm

    if np.linalg.matrix_rank(design) < design.shape[1]:
        raise ValueError("too few games to tell style from strength: judge more questions")
    regression = sm.GLM(games.points.to_numpy(), design, sm.families.Binomial(), var_weights=weight)
    questions = games.uid.factorize()[0]
    with warnings.catch_warnings():  # of weights with clusters, which our tests cover
        warnings.simplefilter("ignore")
        fit = regression.fit(scale=1.0, cov_type="cluster", cov_kwds={"groups": questions})
    if not (fit.converged and np.isfinite(fit.bse).all()):
        raise ValueError("style decides every game, so it cannot be held equal")
    return fit


def _standardised(features: pd.DataFrame, weight: Floats) -> Floats:
    """z-scores over weighted rows; a constant feature has no coefficient, and is left out."""
    values = features.to_numpy(float)
    mean = np.average(values, axis=0, weights=weight)
    squares = weight[:, None] * (values - mean) ** 2
    deviation = np.sqrt(squares.sum(axis=0) / max(1, weight.sum() - 1))
    varies = deviation > SMALLEST_DEVIATION
    standardised: Floats = (values[:, varies] - mean[varies]) / deviation[varies]
    return standardised
