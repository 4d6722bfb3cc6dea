"""Sampled responses on disk: what was sampled is kept, and only what is missing is sampled.

FOLDER/samples/ holds `settings.json` (what the samples depend on), `prompts.jsonl` (the prompts in
their order) and parts, each some responses to a few prompts: `sampled-PROMPT-DRAW.npz`, by their
first prompt and draw, and `greedy-PROMPT-DRAW.npz`. A part appears whole or not at all, so that a
run that was killed goes on with what is missing. It says which reward function graded it: with
another one, responses are graded anew, not sampled anew.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openrlhf_js.lab.parts import GREEDY, KINDS, SAMPLED, covered, places, read_parts
from openrlhf_js.sampling.prompts import Prompt
from openrlhf_js.whole_file import whole_file

FOLDER = "samples"
SETTINGS, PROMPTS = "settings.json", "prompts.jsonl"
# Settings that may change: samples do not depend on them, or no more than on a version of torch.
NOTES = ("model", "prompts", "reward", "reward_sha256", "device", "versions")


class Samples(NamedTuple):
    """Responses of a policy with their rewards, everything in prompt order.

    Attributes:
        prompts: n texts as the model was given them, with the chat template if one was asked for.
        labels: n gold labels.
        groups: n data sources, such as `math/level_3`; "" where the file names none.
        prompt_tokens: n lists of token ids.
        response_tokens: n lists of m int32 arrays of token ids, the end token included where the
            model ended. They are views of large arrays, and a tenth of the size of lists of int;
            `torch.from_numpy(each.astype(np.int64))` makes a tensor of one.
        rewards: (n, m) float64, finite.
        finished: (n, m) bool, whether the model ended the response itself.
        greedy_rewards: (n,) float64, the rewards of the likeliest responses; None where there are
            none for every prompt.
        settings: what the samples depend on; `lab.sampling.Policy` and `cli.lab_flags` say what.
    """

    prompts: list[str]
    labels: list[str]
    groups: list[str]
    prompt_tokens: list[list[int]]
    response_tokens: list[list[NDArray[np.int32]]]
    rewards: NDArray[np.float64]
    finished: NDArray[np.bool_]
    greedy_rewards: NDArray[np.float64] | None
    settings: dict[str, Any]

    def first(self, prompts: int, responses: int) -> Samples:
        """The samples of the first prompts, and of these the first responses."""
        greedy = self.greedy_rewards
        return Samples(
            self.prompts[:prompts],
            self.labels[:prompts],
            self.groups[:prompts],
            self.prompt_tokens[:prompts],
            [group[:responses] for group in self.response_tokens[:prompts]],
            self.rewards[:prompts, :responses],
            self.finished[:prompts, :responses],
            None if greedy is None else greedy[:prompts],
            self.settings,
        )


class Store:
    """The folder of samples, held for this process alone; a context manager.

    Args:
        folder: gets or has a folder `samples`.
        settings: what the samples depend on, and `NOTES`.

    Raises:
        ValueError: the samples there depend on something else, or another process writes them.
        OSError: the disk does not take it.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]):
        self.folder = folder / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock: IO[bytes] = (self.folder / ".lock").open("ab")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in self.folder.glob(".*.partial"):  # by a run that was killed
                left.unlink()
            self._compare(json.loads(json.dumps(settings)))
        except BlockingIOError:
            self._lock.close()
            raise ValueError(f"another process samples into {self.folder}: let it end") from None
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def _compare(self, settings: dict[str, Any]) -> None:
        path = self.folder / SETTINGS
        if not any(places(self.folder, kind) for kind in KINDS):  # of a call that never sampled
            path.unlink(missing_ok=True)
            (self.folder / PROMPTS).unlink(missing_ok=True)
        there = _json(path) if path.exists() else settings
        names = [
            name
            for name in sorted({*there, *settings} - {*NOTES})
            if there.get(name) != settings.get(name)
        ]
        if names:
            shown = "\n".join(
                f"  {name}: {there.get(name)!r:.80} there, {settings.get(name)!r:.80} now"
                for name in names
            )
            raise ValueError(
                f"{self.folder} has samples of other settings; give another --out, or delete that "
                f"folder to sample anew:\n{shown}"
            )
        with whole_file(path) as file:
            file.write((json.dumps(settings, indent=2) + "\n").encode())

    def record(self, wanted: Sequence[Prompt]) -> list[Prompt]:
        """Writes down which prompts are sampled, and returns all that ever were, in their order.

        Raises:
            ValueError: those of before are not the first of them.
        """
        path = self.folder / PROMPTS
        there = _read_prompts(path) if path.exists() else []
        shared = min(len(there), len(wanted))
        if there[:shared] != list(wanted[:shared]):
            raise ValueError(
                f"{path} has other prompts; give another --out, or delete {self.folder}"
            )
        if len(wanted) > len(there):
            with whole_file(path) as file:
                file.writelines(
                    json.dumps(each._asdict(), ensure_ascii=False).encode() + b"\n"
                    for each in wanted
                )
        return max(there, list(wanted), key=len)

    def missing(self, kind: str, prompts: int, responses: int) -> NDArray[np.int64]:
        """(prompts,) how many responses of a kind each prompt still lacks."""
        return np.maximum(0, responses - covered(self.folder, kind, prompts))


def open_samples(folder: Path, prompts: int | None = None) -> Samples:
    """The samples of a folder, with as many responses as each of its prompts has.

    Args:
        folder: was given as --out; holds `samples/`.
        prompts: of the first ones only, all if there are fewer; None: of all prompts.

    Raises:
        ValueError: there are none, some prompt has none or some response no reward yet, or a file
            is damaged.
    """
    place = folder / FOLDER
    if not (place / PROMPTS).is_file():
        raise ValueError(
            f"{folder} holds no samples: say with --model and --prompts (or --task) what to sample"
        )
    asked = _read_prompts(place / PROMPTS)[:prompts]
    sampled = read_parts(place, SAMPLED, len(asked))
    greedy = read_parts(place, GREEDY, len(asked))
    responses = min(map(len, sampled.tokens))
    if responses == 0:
        done = sum(map(bool, sampled.tokens))
        raise ValueError(
            f"{place} has responses to {done} of {len(asked)} prompts; give the command that "
            "sampled them again, and it goes on"
        )
    rewards = np.stack([row[:responses] for row in sampled.rewards])
    if np.isnan(rewards).any() or len(sampled.graders | greedy.graders) > 1:
        raise ValueError(
            f"{place} has responses that were not graded, or not all by the same reward function; "
            "give the command that sampled them again, and it goes on"
        )
    return Samples(
        [each.text for each in asked],
        [each.label for each in asked],
        [each.group for each in asked],
        [each.tokens for each in asked],
        [group[:responses] for group in sampled.tokens],
        rewards,
        np.stack([row[:responses] for row in sampled.finished]),
        np.concatenate(greedy.rewards) if all(greedy.tokens) else None,
        _json(place / SETTINGS),
    )


def _read_prompts(path: Path) -> list[Prompt]:
    with path.open("rb") as file:
        try:
            return [Prompt(**json.loads(line)) for line in file]
        except (ValueError, TypeError):
            raise ValueError(f"{path} is damaged: delete {path.parent}") from None


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged: delete {path.parent}")
    return found
