"""A preference file as evaluation needs it: texts to score, and what their rewards are held to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from openrlhf_js.reward_model.evaluate import ScoredPairs
from openrlhf_js.reward_model.preferences import Pair, Side, Template, rendered
from openrlhf_js.reward_model.score_file import Rewards


@dataclass(frozen=True)
class HeldOut:
    """The pairs of a preference file, in its order.

    Attributes:
        texts: chosen and rejected text of each, as the model is trained on them but for their end.
        responses: chosen and rejected response of each, for their lengths.
        prompts: what tells prompts apart.
        subsets: the name of the group that each belongs to, or "".
    """

    texts: list[tuple[str, str]]
    responses: list[tuple[str, str]]
    prompts: list[str]
    subsets: list[str]

    def hash(self) -> str:
        """Changes with any text that is scored."""
        found = hashlib.sha256()
        for pair in self.texts:
            found.update(json.dumps(pair).encode())
        return found.hexdigest()

    def scored(
        self,
        rewards: Sequence[Rewards],
        lengths: Callable[[Sequence[str]], Sequence[int]],
        length_unit: str,
    ) -> ScoredPairs:
        """With the rewards of each pair, and the lengths of its responses.

        Raises:
            ValueError: a reward is not finite, or not every pair has rewards.
        """
        chosen, rejected = zip(*self.responses, strict=True)
        return ScoredPairs(
            chosen=np.array([each.chosen for each in rewards], dtype=np.float64),
            rejected=np.array([each.rejected for each in rewards], dtype=np.float64),
            chosen_lengths=np.array(lengths(chosen), dtype=np.float64),
            rejected_lengths=np.array(lengths(rejected), dtype=np.float64),
            prompts=self.prompts,
            subsets=self.subsets,
            length_unit=length_unit,
        )


def held_out(
    pairs: Iterable[Pair], template: Template | None = None, input_template: str | None = None
) -> HeldOut:
    """Takes in the pairs of a file; templates are those of training, see `preferences.texts`.

    Raises:
        ValueError: a pair does not fit its template; names the line.
    """
    found = HeldOut([], [], [], [])
    for number, pair in enumerate(pairs):
        try:
            made = rendered(pair, template, input_template)
        except ValueError as error:
            raise ValueError(f"line {pair.line}: {error}") from None
        found.texts.append((made.chosen, made.rejected))
        found.responses.append((_response(pair.chosen), _response(pair.rejected)))
        found.prompts.append(_prompt(pair, number))
        found.subsets.append(pair.subset)
    return found


def _response(side: Side) -> str:
    """The response alone; a text that holds its prompt too is longer by the same on both sides."""
    return side if isinstance(side, str) else side[-1]["content"]


def _prompt(pair: Pair, number: int) -> str:
    """What tells prompts apart; a pair whose texts hold their prompt is by itself."""
    if pair.prompt is not None:
        return json.dumps(pair.prompt, sort_keys=True)
    if isinstance(pair.chosen, str):
        return f"pair {number}"
    return json.dumps(pair.chosen[:-1], sort_keys=True)
