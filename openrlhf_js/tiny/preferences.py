"""Preferences with a known truth: echo three letters, `hea=` -> `hea`; a near one counts half.

Every response has a true score, and of two responses to one prompt the first is chosen with the
probability of Bradley and Terry (1952), sigmoid of the difference of their true scores. So no model
can foresee every label, and how many the true scores themselves foresee is known: that is the mark
for a reward model, and the true score of its responses is the mark for a policy trained with it.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from openrlhf_js.tasks.base import Score
from openrlhf_js.tiny.tasks import END, Split, TinyTask, draw

LETTERS = "abcdefgh"
ASKED = 3  # letters of a prompt
LONGEST = 4  # letters of a response
SCALE = 1.5  # sets the true scores so far apart that they foresee 85 to 90 % of the labels
HELD_OUT_SHARE = 4  # one prompt in so many
HELD_OUT_PROMPTS = 128  # of those
SAME = 1e-9  # scores that differ by less are the same, but for rounding


@dataclass(frozen=True)
class Preference:
    """One line of a preference file, in the columns that OpenRLHF reads, and the truth.

    Attributes:
        prompt: such as `hea=`.
        chosen: the preferred response, with its end, as a policy writes it.
        rejected: the other one, never the same.
        subset: how many different letters the prompt has.
        chosen_score: true score of the chosen one, in units of log-odds.
        rejected_score: of the rejected one; the larger of the two where the label is a slip.
    """

    prompt: str
    chosen: str
    rejected: str
    subset: str
    chosen_score: float
    rejected_score: float


def prompt(letters: str) -> str:
    """The prompt that asks for these letters."""
    return f"{letters}="


def true_score(letters: str, response: str) -> float:
    """The true score of a response, in units of log-odds; defined for any text.

        scale * (sum over places of 1 - distance / 2 - letters that are missing or too many)

    The distance is in the alphabet, between the letter at a place and the one that was asked for
    there; what is no letter is as far as can be.

    Args:
        letters: what the prompt asks for.
        response: a text; one end of it is not counted.
    """
    said = response.removesuffix(END)
    near = sum(1 - _distance(*pair) / 2 for pair in zip(letters, said, strict=False))
    return SCALE * (near - abs(len(said) - len(letters)))


def _distance(asked: str, said: str) -> int:
    known = said in LETTERS
    return abs(LETTERS.index(asked) - LETTERS.index(said)) if known else len(LETTERS) - 1


def split(seed: int, held_out: int) -> Split:
    """Divides all prompts in two, so that none is in both.

    Args:
        seed: of the shuffle that decides which prompts are held out.
        held_out: how many of those to give.

    Raises:
        ValueError: fewer than 1, or more than there are.
    """
    every = ["".join(letters) for letters in product(LETTERS, repeat=ASKED)]
    random.Random(f"split/{seed}").shuffle(every)
    border = len(every) // HELD_OUT_SHARE
    if not 1 <= held_out <= border:
        raise ValueError(f"held_out is {held_out}; give 1 to {border}")
    return Split([every[border:]], every[:held_out])


def preferences(prompts: list[list[str]], count: int, seed: int) -> Iterator[Preference]:
    """Pairs of responses with labels drawn from their true scores; no pair comes twice.

    Args:
        prompts: letters of prompts, by kind; every kind is equally likely.
        count: how many pairs.
        seed: of everything that is drawn.
    """
    rng = random.Random(f"preferences/{seed}")
    seen: set[tuple[str, frozenset[str]]] = set()
    for letters in draw(prompts, count, rng):
        first, second = _response(letters, rng), _response(letters, rng)
        while first == second or (letters, frozenset((first, second))) in seen:
            first, second = _response(letters, rng), _response(letters, rng)
        seen.add((letters, frozenset((first, second))))
        gap = true_score(letters, first) - true_score(letters, second)
        if rng.random() >= 1 / (1 + math.exp(-gap)):
            first, second = second, first
        yield Preference(
            prompt(letters),
            first + END,
            second + END,
            _subset(letters),
            true_score(letters, first),
            true_score(letters, second),
        )


def write(folder: Path, *, seed: int = 0, train: int = 20_000, held_out: int = 4_000) -> None:
    """Writes `train.jsonl` and `held_out.jsonl`, whose prompts are disjoint, for reward training.

    Args:
        folder: made if it is not there.
        seed: of prompts, responses and labels.
        train: pairs to train on.
        held_out: pairs to measure on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = split(seed, HELD_OUT_PROMPTS)
    for name, prompts, count in (
        ("train", parts.train, train),
        ("held_out", [parts.held_out], held_out),
    ):
        lines = (json.dumps(asdict(each)) for each in preferences(prompts, count, seed))
        text = "".join(f"{line}\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def accuracy_of_truth(path: Path) -> float:
    """The share of a file's labels that its true scores foresee; the same score is half of one."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        gap = row["chosen_score"] - row["rejected_score"]
        found.append(0.5 if abs(gap) < SAME else float(gap > 0))
    return sum(found) / len(found)


def _response(letters: str, rng: random.Random) -> str:
    """A response of any quality, so that a policy finds no kind that was never compared."""
    right = rng.random()
    said = [each if rng.random() < right else rng.choice(LETTERS) for each in letters]
    if rng.random() < 0.3:  # cut off, or gone on with
        said = (said + rng.choices(LETTERS, k=LONGEST))[: rng.randint(1, LONGEST)]
    return "".join(said)


def _subset(letters: str) -> str:
    different = len(set(letters))
    return f"{different} different letter{'s' * (different > 1)}"


def _score(response: str, letters: str) -> Score:
    value = true_score(letters, response)
    return Score(value, "correct", f"{response!r:.40} for {letters}: {value:.2f}")


# A careless policy to begin with: it echoes, but often slips.
TASK = TinyTask(
    tokens=("=", *LETTERS),
    slips=tuple(LETTERS),
    slip=0.5,
    warm_start_steps=300,
    max_prompt_tokens=ASKED + 1,
    max_new_tokens=LONGEST + 1,
    grader="",
    split=split,
    prompt=prompt,
    label=str,
    right_response=str,
    score=_score,
)
