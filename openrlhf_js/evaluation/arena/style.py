"""What an answer looks like: the thinking before it, its style counts, and style control.

Style control is a logistic regression of the games on the models and on how the two answers differ
in style, with errors clustered by question. Of the model's answer a and the baseline's b:

    length              (a - b) / (a + b), of tokens
    header, list, bold  (d_a - d_b) / (d_a + d_b + 1), of densities d = count / tokens

each z-scored over the weighted rows, as in v2.0's show_result.py.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import partial
from multiprocessing.pool import ThreadPool
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from openrlhf_js.stats import Estimate
from openrlhf_js.stats.estimate import t_estimate

if TYPE_CHECKING:
    import pandas as pd
    import torch

Floats: TypeAlias = NDArray[np.float64]
CountTokens = Callable[[str], int]

# What models write around their thinking, always at the beginning.
TAGS = (
    ("<think>", "</think>"),  # DeepSeek-R1, Qwen3, QwQ
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
    ("[THINK]", "[/THINK]"),  # Magistral
    ("◁think▷", "◁/think▷"),  # Kimi
    ("<|begin_of_thought|>", "<|end_of_thought|>"),  # Sky-T1
    ("<|channel|>analysis<|message|>", "<|end|>"),  # gpt-oss
)
# What stands around the answer itself in some of these.
AROUND = (
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
    ("<|start|>assistant<|channel|>final<|message|>", "<|return|>"),
    ("<|channel|>final<|message|>", "<|return|>"),
)


def split_thinking(text: str, thinking: str = "") -> tuple[str, str]:
    """The answer and the thinking before it; the answer is "" where the thinking never ended.

    A closing tag without its opening one counts too where a line begins or ends with it: chat
    templates write the opening one into the prompt. `thinking` is what the endpoint has split off.
    """
    thoughts, rest = [thinking], text
    while pair := next((pair for pair in TAGS if rest.lstrip().startswith(pair[0])), None):
        thought, _, rest = rest.lstrip()[len(pair[0]) :].partition(pair[1])
        thoughts.append(thought.strip())
    if rest is text and not thinking:
        for start, end in TAGS[:-1]:
            thought, closed, after = rest.partition(end)
            if closed and start not in thought and not _mentioned(thought, after):
                thoughts.append(thought.strip())
                rest = after
                break
    if rest is not text:
        rest = rest.strip()
        for start, end in AROUND:
            if rest.startswith(start):
                rest = rest[len(start) :].removesuffix(end).strip()
    return rest, "\n\n".join(filter(None, thoughts))


def _mentioned(before: str, after: str) -> bool:
    """Whether a tag between these is only mentioned: quoted, in code, or within a line."""
    quoted = before.endswith(("`", '"', "'")) or before.count("```") % 2 == 1
    ends = not before.strip(" \t") or before.endswith("\n") or after[:1] in ("", "\n", "\r")
    return quoted or not ends


STYLE = ("tokens", "headers", "lists", "bold")  # counts of an answer, and their official names
COUNTS = ("token_len", "header_count", "list_count", "bold_count")
_CODE = re.compile(r"```([^`]*)```")
_HEADERS = {f"h{level}": re.compile(rf"^#{{{level}}}\s", re.MULTILINE) for level in range(1, 7)}
# The official patterns let space before an item run over line ends: the same items, in quadratic
# time.
_LISTS = {
    "ordered": re.compile(r"^[^\S\n]*\d+\.\s", re.MULTILINE),
    "unordered": re.compile(r"^[^\S\n]*[-*+]\s", re.MULTILINE),
}
_BOLD = {"**": re.compile(r"\*\*[^*\n]+\*\*"), "__": re.compile(r"__[^_\n]+__")}


def metadata(text: str, count_tokens: CountTokens) -> dict[str, Any]:
    """The counts of an answer as the official repository makes them, and in its order."""
    plain = without_code(text)
    counts = (
        {name: sum(1 for _ in each.finditer(plain)) for name, each in patterns.items()}
        for patterns in (_HEADERS, _LISTS, _BOLD)
    )
    return dict(zip(COUNTS, (count_tokens(text), *counts), strict=True))


def without_code(text: str) -> str:
    """The text without what is between fences; as in the official code, wherever that stands."""
    for inside in _CODE.findall(text):
        text = text.replace(inside, "")
    return text


def style_of(metadata: Any) -> tuple[int, ...] | None:
    """The counts of `STYLE` in an answer's `metadata`; None where there are none."""
    try:
        values = [metadata[name] for name in COUNTS]
        return tuple(int(sum(v.values()) if isinstance(v, dict) else v) for v in values)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def load_tokenizer(bench: str) -> CountTokens:
    """Counts tokens as the official repository does for this bench; raises if none comes."""
    import tiktoken

    name = "cl100k_base" if bench == "arena-hard-v0.1" else "o200k_base"  # gpt-3.5's; gpt-4o's
    loading = ThreadPool(1).apply_async(tiktoken.get_encoding, [name])
    encoding = loading.get(60)  # seconds; its threads do not keep the program from ending
    return lambda text: len(encoding.encode(text, disallowed_special=()))


FEATURES = ("length", "header", "list", "bold")
FAR = 0.5  # standard deviations of the pool between its mean and nearly all answers of a model
OFFICIAL_STEPS, OFFICIAL_ROUNDS = 50, 100  # of each fit, and fits to resampled rows


def differences(ours: Floats, theirs: Floats) -> Floats:
    """Differences (rows, 4) of two answers' counts (rows, 4), in the order of `FEATURES`."""
    tokens = ours[:, :1] + theirs[:, :1]
    length = (ours[:, :1] - theirs[:, :1]) / np.where(tokens == 0, 1, tokens)
    a, b = (side[:, 1:] / np.maximum(side[:, :1], 1) for side in (ours, theirs))
    return np.concatenate([length, (a - b) / (a + b + 1)], axis=1)


def control(games: pd.DataFrame) -> dict[str, Estimate]:
    """Scores in [0, 1] at the pool's mean difference of style, with intervals by question.

        P(model wins) = 1 / (1 + exp(-(theta_model + beta z)))

    is fitted over all models. `games` has columns model, uid, points in [0, 1], weight, and the
    features' differences; every model has won and lost something.
    """
    import pandas as pd
    import statsmodels.api as sm

    weight = games.weight.to_numpy(float)
    x = games[list(FEATURES)].to_numpy(float)
    mean = np.average(x, axis=0, weights=weight)
    deviation = np.sqrt((weight[:, None] * (x - mean) ** 2).sum(0) / max(1, weight.sum() - 1))
    varies = deviation > 1e-9  # a constant feature has no coefficient
    x = (x[:, varies] - mean[varies]) / deviation[varies]
    clusters, questions = pd.factorize(games.uid)
    place, models = pd.factorize(games.model, sort=True)
    design = np.column_stack([np.eye(len(models))[place], x])
    with warnings.catch_warnings():  # of weights with clusters, less tested there but tested here
        warnings.simplefilter("ignore")
        model = sm.GLM(games.points.to_numpy(), design, sm.families.Binomial(), var_weights=weight)
        fit = model.fit(scale=1.0, cov_type="cluster", cov_kwds={"groups": clusters})
    if not (fit.converged and np.isfinite(fit.bse).all()):
        raise ValueError("style decides every game, so it cannot be held equal")
    pairs = zip(fit.params[: len(models)], fit.bse, strict=False)
    found = [t_estimate(*each, len(questions) - 1) for each in pairs]
    return {m: Estimate(*special.expit(e).tolist()) for m, e in zip(models, found, strict=True)}


def extrapolated(games: pd.DataFrame) -> set[str]:
    """The models whose answers are hardly ever near the pool's mean difference of style."""
    x = games[list(FEATURES)]
    mean, deviation = np.average(x, axis=0, weights=games.weight), x.std().to_numpy()
    by_model = x.groupby(games.model)
    low, high = by_model.quantile(0.025) - mean, by_model.quantile(0.975) - mean
    far = (low > FAR * deviation) | (high < -FAR * deviation)
    return set(far.index[far.any(axis=1)])


def official_control(games: pd.DataFrame, seed: int = 0) -> dict[str, Estimate]:
    """Scores with style control, and 90 % intervals by row, as v2.0's show_result.py prints them.

    Medians over fits to resampled rows, which end after 50 steps of L-BFGS, converged or not;
    `control` converges. The official script is unseeded.
    """
    import pandas as pd
    import torch

    rows = games.loc[games.index.repeat(games.weight.round().astype(int))]
    x = rows[list(FEATURES)].to_numpy()
    place, models = pd.factorize(rows.model, sort=True)
    deviation = x.std(axis=0, ddof=1)
    scaled = (x - x.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    columns = [np.eye(len(models))[place], -np.ones(len(rows)), scaled]
    design = torch.tensor(np.column_stack(columns), dtype=torch.float32)
    points = torch.tensor(rows.points.to_numpy(), dtype=torch.float32)
    rng, drawn, n = np.random.default_rng(seed), [], len(models)
    for _ in range(OFFICIAL_ROUNDS):
        chosen = torch.from_numpy(rng.integers(0, len(rows), len(rows)))
        theta = torch.full((design.shape[1],), 0.5, requires_grad=True)
        fit = torch.optim.LBFGS(
            [theta], max_iter=OFFICIAL_STEPS, tolerance_grad=1e-9, tolerance_change=1e-9
        )
        fit.step(partial(_loss, theta, design[chosen], points[chosen]))
        drawn.append(torch.sigmoid(theta[:n] - theta[n]).tolist())
    found = np.quantile(drawn, (0.5, 0.05, 0.95), axis=0).T.tolist()
    return {str(model): Estimate(*each) for model, each in zip(models, found, strict=True)}


def _loss(theta: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

    theta.grad = None
    found = cross_entropy(x @ theta, y, reduction="sum")
    found.backward()
    return found
