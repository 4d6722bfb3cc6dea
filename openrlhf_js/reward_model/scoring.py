"""Scores the texts of all pairs, part by part, each part saved as soon as it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from openrlhf_js.reward_model.score_file import Rewards, ScoreFile, is_reward

Texts = Sequence[tuple[str, str]]  # chosen and rejected text of every pair
Scorer = Callable[[Sequence[str]], Sequence[float]]  # one reward for each text
Progress = Callable[[int], None]  # called with the number of pairs that have rewards


class ScoringFailed(RuntimeError):
    """A reward cannot be had, or is none. What was scored before is on disk."""


def score_pairs(
    texts: Texts, scorer: Scorer, file: ScoreFile, at_once: int, progress: Progress
) -> None:
    """Scores every pair whose rewards the file does not hold yet, and adds them to it.

    Args:
        texts: of every pair.
        scorer: gives the rewards of the texts of `at_once` pairs.
        file: gets the rewards of each call.
        at_once: pairs per call.
        progress: told after each call.

    Raises:
        ScoringFailed: the scorer gave wrong counts, or a reward that is no finite number.
    """
    for part in open_parts(texts, file, at_once):
        file.append(checked(part, scorer(texts_of(part, texts))))
        progress(len(file.rewards))


def open_parts(texts: Texts, file: ScoreFile, at_once: int) -> Iterator[list[int]]:
    """Numbers of pairs that have no rewards yet, `at_once` at a time."""
    pairs = [pair for pair in range(len(texts)) if pair not in file.rewards]
    return (pairs[start : start + at_once] for start in range(0, len(pairs), at_once))


def texts_of(part: Sequence[int], texts: Texts) -> list[str]:
    """Chosen and rejected text of each pair in turn."""
    return [text for pair in part for text in texts[pair]]


def checked(part: Sequence[int], rewards: Sequence[float]) -> Mapping[int, Rewards]:
    """The rewards of `texts_of` by pair.

    Raises:
        ScoringFailed: they are not as many as the texts, or one is no finite number.
    """
    if len(rewards) != 2 * len(part):
        raise ScoringFailed(f"{2 * len(part)} texts got {len(rewards)} rewards")
    for place, reward in enumerate(rewards):
        if not is_reward(reward):
            raise ScoringFailed(
                f"the {('chosen', 'rejected')[place % 2]} response of pair {part[place // 2] + 1} "
                f"got the reward {reward!r:.40}, which is no finite number"
            )
    return {
        pair: Rewards(float(rewards[2 * i]), float(rewards[2 * i + 1]))
        for i, pair in enumerate(part)
    }
