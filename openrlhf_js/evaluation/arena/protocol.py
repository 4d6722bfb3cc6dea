"""Whether a run of judging followed the official protocol, and the record of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from openrlhf_js.evaluation.arena.benches import Bench
from openrlhf_js.evaluation.arena.files import Folder
from openrlhf_js.evaluation.arena.judge_prompts import Prompt
from openrlhf_js.evaluation.arena.records import file_name
from openrlhf_js.whole_file import whole_file

FILE = "protocol.json"  # beside a judge's judgments
# what may stand behind an official judge's name and leave it the same model: gemini-2.5-pro, a date
_SAME_MODEL = r"(-pro)?(-preview|-exp)?(-[\d-]+)?"
_OF_PROMPT, _OF_BASELINE = "the judge's prompt for {} is ", "the baseline of {} is "


class Run(NamedTuple):
    """How judgments of one judge were made.

    Attributes:
        judge: its name.
        model: what the endpoint was asked for.
        temperature: None: it was not sent.
        max_tokens: of a reply.
        prompts: `Prompt.sha256` by category.
        baselines: by category.
        deviations: from the official protocol, in plain words; none if it was followed.
        models: whose answers this program has had judged so, as their files are called.
    """

    judge: str
    model: str
    temperature: float | None
    max_tokens: int
    prompts: Mapping[str, str]
    baselines: Mapping[str, str]
    deviations: tuple[str, ...]
    models: tuple[str, ...] = ()


def run_of(
    bench: Bench,
    judge: str,
    model: str,
    temperature: float | None,
    max_tokens: int,
    told: Mapping[str, Prompt],
) -> Run:
    """The run that judges so, with what the official protocol has otherwise.

    Args:
        bench: has the baselines.
        judge: its name.
        model: what the endpoint is asked for.
        temperature: as sent.
        max_tokens: as sent.
        told: the prompt of each category that is judged.
    """
    return Run(
        judge,
        model,
        temperature,
        max_tokens,
        {name: prompt.sha256 for name, prompt in told.items()},
        {name: bench.category(name).baseline for name in told},
        tuple(followed(bench, judge, model, temperature, max_tokens, told)),
    )


def followed(
    bench: Bench,
    judge: str,
    model: str,
    temperature: float | None,
    max_tokens: int,
    told: Mapping[str, Prompt],
) -> list[str]:
    """What is not as in the official protocol, in plain words; empty if it is followed.

    Args: as of `run_of`.
    """
    found = []
    official = {each.name: each for each in bench.judges}
    if not official:
        return [f"{bench.name} is no official benchmark"]
    if judge not in official:
        found.append(f"the judge is {judge}; officially {' or '.join(official)}")
    else:
        same = official[judge]
        if not re.fullmatch(re.escape(judge) + _SAME_MODEL, file_name(model)):
            found.append(f"the judge {judge} is the model {model}")
        if temperature != same.temperature:
            said = "the endpoint's own" if temperature is None else f"{temperature:g}"
            found.append(f"the judge's temperature is {said}; officially {same.temperature:g}")
        if max_tokens != same.max_tokens:
            found.append(f"the judge may say {max_tokens} tokens; officially {same.max_tokens}")
    for name, prompt in told.items():
        category = bench.category(name)
        if not prompt.official:
            found.append(_OF_PROMPT.format(name) + "not the official one")
        if category.baseline != category.official_baseline:
            found.append(
                _OF_BASELINE.format(name)
                + f"{category.baseline}; officially {category.official_baseline}"
            )
    return found


class Protocol(NamedTuple):
    """How all judgments in a judge's folder were made, as far as they are recorded."""

    runs: tuple[Run, ...]

    @property
    def deviations(self) -> list[str]:
        """From the official protocol, in plain words; none if it was followed throughout."""
        found = list(dict.fromkeys(each for run in self.runs for each in run.deviations))
        if self.mixed:
            found.append("its judgments were not all made in the same way")
        return found

    def of(self, category: str) -> Protocol:
        """How those of one category were made, without what is said of others."""
        runs = []
        for run in self.runs:
            if category not in run.prompts:
                continue
            others = tuple(
                words.format(name)
                for name in run.prompts
                if name != category
                for words in (_OF_PROMPT, _OF_BASELINE)
            )
            said = tuple(each for each in run.deviations if not each.startswith(others))
            told = {category: run.prompts[category]}
            runs.append(run._replace(prompts=told, deviations=said))
        return Protocol(tuple(runs))

    @property
    def mixed(self) -> bool:
        """Whether runs differ in what they have in common: parameters, or a category's prompt."""
        ways = {(run.model, run.temperature, run.max_tokens) for run in self.runs}
        told = [
            {(name, run.prompts[name], run.baselines.get(name)) for name in run.prompts}
            for run in self.runs
        ]
        pairs = set().union(*told)
        return len(ways) > 1 or len({name for name, *_ in pairs}) < len(pairs)


def protocol_of(folder: Folder, judge: str) -> Protocol | None:
    """How a judge's judgments were made; None where another program made them.

    Raises:
        OSError: the record cannot be read. ValueError: it is broken.
    """
    path = folder.judged_by(judge) / FILE
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return Protocol(tuple(_run(**run) for run in json.loads(text)["runs"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError(f"{path} is no record of this program: move it away") from None


def _run(**given: Any) -> Run:
    """A run of the record; ValueError or TypeError where it is none."""
    lists = {name: tuple(given.get(name, ())) for name in ("deviations", "models")}
    found = Run(**{**given, **lists})
    texts = (
        *(found.judge, found.model, *found.deviations, *found.models),
        *(text for part in (found.prompts, found.baselines) for text in dict(part).values()),
    )
    numbers = (found.temperature or 0, found.max_tokens)
    if not all(isinstance(each, str) for each in texts) or not all(
        isinstance(each, int | float) for each in numbers
    ):
        raise ValueError
    return found


def add_run(folder: Folder, run: Run, models: Sequence[str] = ()) -> None:
    """Records how judgments are made from now on, beside them; the same way once.

    Args:
        folder: of the bench.
        run: how.
        models: whose answers are judged so. Not recorded is one that has judgments which nothing
            is recorded of: they may be another program's.

    Raises:
        OSError: it cannot be written. ValueError: what is there is broken.
    """
    runs = list((protocol_of(folder, run.judge) or Protocol(())).runs)
    known = {name for each in runs for name in each.models}
    ours = [
        name
        for name in map(file_name, models)
        if name in known or not folder.judgments(run.judge, name).exists()
    ]
    same = [each for each in runs if each._replace(models=()) == run._replace(models=())]
    before = same[0] if same else run
    after = before._replace(models=tuple(dict.fromkeys((*before.models, *ours))))
    if after in runs:
        return
    runs = [after if each is before else each for each in runs] + ([] if same else [after])
    path = folder.judged_by(run.judge) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"runs": [each._asdict() for each in runs]}, indent=1, ensure_ascii=False)
    with whole_file(path) as file:
        file.write(text.encode() + b"\n")
