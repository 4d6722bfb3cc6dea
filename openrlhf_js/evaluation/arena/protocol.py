"""What a judge is asked, how its verdict is read, and whether that is the official protocol."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import yaml  # type: ignore[import-untyped]
from pydantic import field_validator

from openrlhf_js.common.files import write_json
from openrlhf_js.common.settings import Field, Settings, SettingsError
from openrlhf_js.evaluation.arena.data import BENCHES, MEANING, TEMPLATE, Bench, Folder, file_name

if TYPE_CHECKING:
    import pandas as pd

Messages = list[dict[str, str]]

TEXTS = ("QUESTION", "ANSWER_A", "ANSWER_B")  # of a template
PATTERNS = (r"\[\[([AB<>=]+)\]\]", r"\[([AB<>=]+)\]")  # the official ones, tried in this order
LONGEST_TEXT = 1 << 20  # characters of a judge's text that are searched, from its end
MUCH_WEIGHT = 3  # rows that a verdict of "much better" counts as
PROMPTS_FILE = "judge_prompts.json"  # beside the questions: the official texts, from a clone
# what may follow an official judge's name and leave it the same model: gemini-2.5-pro, a date
SAME_MODEL = r"(-pro)?(-preview|-exp)?(-[\d-]+)?"

# Our own wording, for where the official texts are not there.
_OWN_SYSTEM = """You compare two answers, A and B, that two assistants gave to the same request of \
a user, and decide which of them serves that user better.

First work out how you would answer the request yourself, and write that down before you look at \
either answer for its worth. Then hold both answers against it.

Check each answer for mistakes. Ask whether it does what was requested, whether all of it belongs \
to the matter, whether it leaves out something the user would need, and whether it is longer than \
it has to be. Where the request can be understood in several ways, asking back may be worth more \
than a guess. Where the request calls for it, count originality too. Neither the order of the \
answers nor their length by itself is a reason.

Explain your judgment briefly. Then end with exactly one of five labels, in its brackets: [[A>>B]] \
if A is much better, [[A>B]] if A is a little better, [[A=B]] if they are about equally good, \
[[B>A]] if B is a little better, [[B>>A]] if B is much better.
"""
_OWN_TEMPLATE = """<request>
{QUESTION}
</request>

<answer_A>
{ANSWER_A}
</answer_A>

<answer_B>
{ANSWER_B}
</answer_B>"""


def parse_verdict(text: str) -> str | None:
    """The verdict in a judge's text, such as "A>>B", or None.

    As upstream: the text is upper-cased, single brackets are tried if double ones hold no verdict,
    the last one wins. Unlike upstream, brackets without a verdict, such as `[[A]]`, are skipped.
    """
    text = text[-LONGEST_TEXT:].upper()
    for pattern in PATTERNS:
        if found := [MEANING[each] for each in re.findall(pattern, text) if each in MEANING]:
            return found[-1]
    return None


class Price(Settings):
    """Dollars for a million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)

    def dollars(self, tokens_in: float, tokens_out: float) -> float:
        """What so many tokens cost."""
        return (tokens_in * self.input + tokens_out * self.output) / 1e6


class JudgeSettings(Settings):
    """A judge: the keys of the official settings files, and prices and request parameters."""

    judge_model: str
    temperature: float | None = Field(None, ge=0)  # None: not sent
    max_tokens: int | None = Field(16000, ge=1)
    parameters: dict[str, Any] = Field({})  # more of a request; null removes one of the above
    bench_name: str = ""
    prompt_template: str = ""
    system_prompt: str = ""
    baseline: str = ""
    model_list: list[str] = Field([])
    prices: dict[str, Price] = Field({})
    batch_discount: float = Field(0.0, ge=0, le=1)  # what --batch takes off the prices
    games: Literal[1, 2] = 2  # for each question; one has its sides by turns
    concurrency: int = Field(32, ge=1)
    timeout_seconds: float = Field(600.0, gt=0)

    @field_validator("prompt_template")
    @classmethod
    def _template(cls, value: str) -> str:
        for name in TEXTS if value else ():
            if value.count(f"{{{name}}}") != 1:
                raise ValueError(f"the template must hold {{{name}}} once")
        return value

    def request(self) -> dict[str, Any]:
        """The parameters of a request."""
        found = {"temperature": self.temperature, "max_tokens": self.max_tokens, **self.parameters}
        return {name: value for name, value in found.items() if value is not None}

    def price(self, name: str) -> Price | None:
        """The price of the judge, by its model or its name in the results."""
        return self.prices.get(self.judge_model) or self.prices.get(name)


def read_settings(path: Path) -> JudgeSettings:
    """The settings of a judge from YAML: the official repository's, or one as in eval/."""
    try:
        values = dict(yaml.safe_load(path.read_bytes()))
        if values.pop("regex_patterns", list(PATTERNS)) != list(PATTERNS):
            raise SettingsError(f"other patterns than the official {PATTERNS} are not supported")
        ignored = {"reference", "regex_pattern", *(k for k, v in values.items() if v is None)}
        return JudgeSettings(**{name: values[name] for name in values.keys() - ignored})
    except SettingsError as error:
        raise ValueError(f"{path}: {error}") from None
    except (yaml.YAMLError, TypeError, ValueError):  # which may quote a key
        raise ValueError(f"{path}: not YAML of 'name: value' lines") from None


def fetch_texts(folder: Folder, bench: Bench, clone: Path) -> None:
    """Copies the official judge's texts from a clone, if it has them, to the questions.

    Of the clone's Python only the text constants are read, and known by their hashes.
    """
    path, code = clone / "config" / f"{bench.name}.yaml", clone / "utils" / "judge_utils.py"
    if not (path.is_file() and code.is_file()):
        return
    template = read_settings(path).prompt_template
    values = [getattr(each, "value", None) for each in ast.walk(ast.parse(code.read_bytes()))]
    texts = {digest(value): value for value in values if isinstance(value, str)}
    hashes = {name: each.system_sha256 for name, each in bench.categories.items()}
    system = {name: texts[each] for name, each in hashes.items() if each in texts}
    if template and system:
        found = {"template": template, "system": system, "source": str(clone)}
        write_json(folder.root / PROMPTS_FILE, found)


class JudgePrompt(NamedTuple):
    """What the judge of a category is told."""

    system: str
    template: str

    def messages(self, question: str, answer_a: str, answer_b: str) -> Messages:
        """What is sent; the texts are put in as they are, whatever they hold."""
        texts = dict(zip(TEXTS, (question, answer_a, answer_b), strict=True))
        user = re.sub(rf"\{{({'|'.join(TEXTS)})\}}", lambda place: texts[place[1]], self.template)
        return [{"role": "system", "content": self.system}, {"role": "user", "content": user}]


def prompt_of(folder: Folder, category: str, settings: JudgeSettings) -> JudgePrompt:
    """The prompt of a category: of the settings, or official as fetched, or our own."""
    path, none = folder.root / PROMPTS_FILE, {"system": {}, "template": ""}
    fetched: Any = json.loads(path.read_bytes()) if path.exists() else none
    return JudgePrompt(
        settings.system_prompt or fetched["system"].get(category) or _OWN_SYSTEM,
        settings.prompt_template or fetched["template"] or _OWN_TEMPLATE,
    )


def digest(value: Any) -> str:
    """The sha256 of text, or of anything as JSON, in hexadecimal."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def identity_of(
    bench: Bench, category: str, judge: str, settings: JudgeSettings, prompt: JudgePrompt
) -> dict[str, Any]:
    """The settings that judgments of one category depend on, and may not mix."""
    return {
        "judge": judge,
        "category": category,
        "judge_model": settings.judge_model,
        "parameters": settings.request(),
        "system_sha256": digest(prompt.system),
        "template_sha256": digest(prompt.template),
        "baseline": file_name(bench.category(category).baseline),
        **({"games": 1} if settings.games == 1 else {}),
    }


def deviations(
    bench: Bench,
    category: str,
    judges: Sequence[str],
    recorded: Mapping[str, Mapping[str, Any]],
    judged: pd.DataFrame | None = None,
    much_weight: float = MUCH_WEIGHT,
) -> list[str]:
    """In what judging is not as officially, or what of it is not known; [] if it is followed.

    `recorded` is `identity_of` each judge; `judged` has columns judge, model, settings (hash).
    """
    if not bench.judges:
        return [f"{bench.name} is no official benchmark"]
    own, official = bench.category(category), BENCHES[bench.name].category(category)
    texts = [own.system_sha256, TEMPLATE]
    found: list[str] = []
    compared: list[tuple[str, Any, Any]] = [
        ("the number of judges", len(judges), max(1, len(own.judges))),
        ("the baseline", file_name(own.baseline), official.baseline),
        ("the weight of much better", much_weight, MUCH_WEIGHT),
    ]
    for judge in judges:
        ours = recorded.get(judge)
        if judge not in bench.judges:
            compared.append(("the judge", judge, " or ".join(bench.judges)))
        elif ours:
            model = file_name(ours["judge_model"])
            if not re.fullmatch(re.escape(judge) + SAME_MODEL, model):
                found.append(f"{judge} is the model {model}")
            compared.append((f"{judge}'s request", ours["parameters"], bench.judges[judge]))
            compared.append((f"{judge}'s number of games", ours.get("games", 2), 2))
            if [ours[f"{name}_sha256"] for name in ("system", "template")] != texts:
                found.append(f"{judge}'s prompt for {category} is not the official one")
        if judged is not None:
            known = judged.settings == (digest(ours) if ours else None)
            unknown = judged.model[(judged.judge == judge) & ~known].unique()
            if len(unknown):
                found.append(f"nothing tells how {judge} judged {', '.join(sorted(unknown)[:5])}")
    return [f"{what} is {v}; officially {w}" for what, v, w in compared if v != w] + found
