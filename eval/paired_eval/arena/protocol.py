"""A judge's settings and prompts, and how they differ from the official protocol."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]
from pydantic import field_validator

from answer_graders.programs.files import write_json
from answer_graders.programs.settings import Field, Settings, SettingsError
from paired_eval.arena.data import BENCHES, TEMPLATE, Bench, Folder, file_name
from paired_eval.arena.verdicts import PATTERNS

Messages = list[dict[str, str]]

TEXTS = ("QUESTION", "ANSWER_A", "ANSWER_B")  # of a template
PLACES = r"\{(" + "|".join(TEXTS) + r")\}"
IGNORED_KEYS = ("reference", "regex_pattern", "model_list")  # of the official settings files
PROMPTS_FILE = "judge_prompts.json"  # beside the questions: the official texts, from a clone
# an official judge's name is still the same model with these suffixes: gemini-2.5-pro, a date
SAME_MODEL = r"(-pro)?(-preview|-exp)?(-[\d-]+)?"

# Our own wording, used if the official texts are missing.
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


class Price(Settings):
    """Dollars for a million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)


class JudgeSettings(Settings):
    """A judge's settings: the keys of the official files, prices, and request parameters."""

    judge_model: str
    temperature: float | None = Field(None, ge=0)  # None: not sent
    max_tokens: int | None = Field(16000, ge=1)
    parameters: dict[str, Any] = Field({})  # further request fields; null removes one of the above
    bench_name: str = ""
    prompt_template: str = ""
    system_prompt: str = ""
    prices: dict[str, Price] = Field({})
    concurrency: int = Field(32, ge=1)
    timeout_seconds: float = Field(600.0, gt=0)

    @field_validator("prompt_template")
    @classmethod
    def _template(cls, value: str) -> str:
        """ValueError unless the template has a place for each text."""
        for name in TEXTS if value else ():
            if value.count(f"{{{name}}}") != 1:
                raise ValueError(f"the template must hold {{{name}}} once")
        return value

    def request(self) -> dict[str, Any]:
        """The parameters of a request."""
        parameters = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        parameters |= self.parameters
        return {name: value for name, value in parameters.items() if value is not None}

    def price(self, name: str) -> Price | None:
        """The price of the judge, by its model or its name in the results."""
        return self.prices.get(self.judge_model) or self.prices.get(name)


def read_settings(path: Path) -> JudgeSettings:
    """A judge's settings from a YAML file: an official one, or one like those in eval/."""
    try:
        values = dict(yaml.safe_load(path.read_bytes()))
        if values.pop("regex_patterns", list(PATTERNS)) != list(PATTERNS):
            raise SettingsError(f"other patterns than the official {PATTERNS} are not supported")
        return JudgeSettings(
            **{
                name: value
                for name, value in values.items()
                if value is not None and name not in IGNORED_KEYS
            }
        )
    except SettingsError as error:
        raise ValueError(f"{path}: {error}") from None
    except (yaml.YAMLError, TypeError, ValueError):  # whose message may quote a key
        raise ValueError(f"{path}: not YAML of 'name: value' lines") from None


def fetch_texts(folder: Folder, bench: Bench, clone: Path) -> None:
    """Copies the official judge's texts, if the clone has them, to the folder of the questions.

    Only string constants are read from the clone's Python; the texts are found by their hashes.
    """
    settings = clone / "config" / f"{bench.name}.yaml"
    code = clone / "utils" / "judge_utils.py"
    if not (settings.is_file() and code.is_file()):
        return
    template = read_settings(settings).prompt_template
    texts = {digest(text): text for text in _text_constants(code)}
    system = {
        name: texts[category.system_sha256]
        for name, category in bench.categories.items()
        if category.system_sha256 in texts
    }
    if template and system:
        prompts = {"template": template, "system": system, "source": str(clone)}
        write_json(folder.root / PROMPTS_FILE, prompts)


def _text_constants(code: Path) -> list[str]:
    """The string constants of a Python file."""
    nodes = ast.walk(ast.parse(code.read_bytes()))
    values = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return [value for value in values if isinstance(value, str)]


class JudgePrompt(NamedTuple):
    """The prompt of a category's judge."""

    system: str
    template: str

    def messages(self, question: str, answer_a: str, answer_b: str) -> Messages:
        """The messages to send; the texts are inserted as they are, whatever they contain."""
        texts = {"QUESTION": question, "ANSWER_A": answer_a, "ANSWER_B": answer_b}
        user = re.sub(PLACES, lambda place: texts[place[1]], self.template)
        return [{"role": "system", "content": self.system}, {"role": "user", "content": user}]


def prompt_of(folder: Folder, category: str, settings: JudgeSettings) -> JudgePrompt:
    """The prompt of a category: from the settings, else the fetched official one, else our own."""
    path = folder.root / PROMPTS_FILE
    fetched: Any = {"system": {}, "template": ""}
    if path.exists():
        fetched = json.loads(path.read_bytes())
    return JudgePrompt(
        settings.system_prompt or fetched["system"].get(category) or _OWN_SYSTEM,
        settings.prompt_template or fetched["template"] or _OWN_TEMPLATE,
    )


def digest(value: Any) -> str:
    """The hexadecimal sha256 of a text, or of another value as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def identity_of(
    bench: Bench, category: str, judge: str, settings: JudgeSettings, prompt: JudgePrompt
) -> dict[str, Any]:
    """The settings that judgments of one category depend on; those of two settings never mix."""
    return {
        "judge": judge,
        "category": category,
        "judge_model": settings.judge_model,
        "parameters": settings.request(),
        "system_sha256": digest(prompt.system),
        "template_sha256": digest(prompt.template),
        "baseline": file_name(bench.category(category).baseline),
    }


def deviations(
    bench: Bench, category: str, identities: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """How judging deviates from the official protocol; [] if it does not.

    `identities` holds `identity_of` each judge, {} for one without recorded settings.
    """
    if not bench.judges:
        return [f"{bench.name} is no official benchmark"]
    official = BENCHES[bench.name].category(category)
    baseline = file_name(bench.category(category).baseline)
    official_judges = max(1, len(official.judges))
    lines = []
    if baseline != official.baseline:
        lines.append(f"the baseline is {baseline}; officially {official.baseline}")
    if len(identities) != official_judges:
        lines.append(f"the number of judges is {len(identities)}; officially {official_judges}")
    for judge, identity in identities.items():
        if judge not in bench.judges:
            lines.append(f"the judge is {judge}; officially {' or '.join(bench.judges)}")
        elif identity:
            lines += _judge_deviations(judge, identity, bench, category)
    return lines


def _judge_deviations(
    judge: str, identity: Mapping[str, Any], bench: Bench, category: str
) -> list[str]:
    """How a judge's request, model or texts differ from the official ones."""
    lines = []
    request = identity["parameters"]
    if request != bench.judges[judge]:
        lines.append(f"{judge}'s request is {request}; officially {bench.judges[judge]}")
    model = file_name(identity["judge_model"])
    if not re.fullmatch(re.escape(judge) + SAME_MODEL, model):
        lines.append(f"{judge} is the model {model}")
    texts = (identity["system_sha256"], identity["template_sha256"])
    if texts != (bench.category(category).system_sha256, TEMPLATE):
        lines.append(f"{judge}'s prompt for {category} is not the official one")
    return lines
