"""What the judge of an answer is told: the official texts where they are there, or our own."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import NamedTuple

from openrlhf_js.evaluation.arena.benches import EVERY, TEMPLATE, Bench
from openrlhf_js.evaluation.arena.files import Folder
from openrlhf_js.evaluation.arena.settings import JudgeSettings

PROMPTS_FILE = "judge_prompts.json"  # beside the questions: the official texts, as fetched

# Our own wording, for when the official one was not fetched.
_TASK = """You compare two answers, A and B, that two assistants gave to the same request of a \
user, and decide which of them serves that user better.
"""
_OWN_ANSWER = """
First work out how you would answer the request yourself, and write that down before you look at \
either answer for its worth. Then hold both answers against it.
"""
_RULES = """
Check each answer for mistakes and put them right. Ask whether it does what was requested, whether \
all of it belongs to the matter, whether it leaves out something the user would need, and whether \
it is longer than it has to be. Where the request can be understood in several ways, asking back \
may be worth more than a guess. Where the request calls for it, count originality too. Neither the \
order of the answers nor their length by itself is a reason.

Explain your judgment briefly. Then end with exactly one of these five labels, in its brackets:

[[A>>B]] if A is much better
[[A>B]] if A is a little better
[[A=B]] if they are about equally good
[[B>A]] if B is a little better
[[B>>A]] if B is much better
"""
_OWN_SYSTEM = _TASK + _OWN_ANSWER + _RULES
_OWN_CREATIVE_SYSTEM = _TASK + _RULES
_OWN_TEMPLATE = """The user's request:
<request>
{QUESTION}
</request>

<answer_A>
{ANSWER_A}
</answer_A>

<answer_B>
{ANSWER_B}
</answer_B>"""

_PLACES = re.compile(r"\{(QUESTION|ANSWER_A|ANSWER_B)\}")


class Prompt(NamedTuple):
    """What the judge of one category is told.

    Attributes:
        system: the system message.
        template: of the user's message, with {QUESTION}, {ANSWER_A} and {ANSWER_B}.
        official: whether both are the official texts of the category, by their hashes.
        sha256: of the system message, a zero byte and the template, as UTF-8.
    """

    system: str
    template: str
    official: bool
    sha256: str


def prompt_of(system: str, template: str, system_sha256: str) -> Prompt:
    """The prompt of two texts.

    Args:
        system: the system message.
        template: of the user's message.
        system_sha256: of the category's official system message, "" where there is none.
    """
    official = sha256(system) == system_sha256 and sha256(template) == TEMPLATE
    return Prompt(system, template, official, sha256(f"{system}\0{template}"))


def sha256(text: str) -> str:
    """The hash of a text as UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def own_prompt(category: str) -> Prompt:
    """The prompt of our own wording."""
    creative = category == "creative_writing"
    return prompt_of(_OWN_CREATIVE_SYSTEM if creative else _OWN_SYSTEM, _OWN_TEMPLATE, "")


def prompts(
    folder: Folder, bench: Bench, categories: Iterable[str], settings: JudgeSettings
) -> dict[str, Prompt]:
    """The judge's prompt for each category.

    Each text is that of the settings, or else the one fetched with the questions, or else our own.

    Args:
        folder: may hold what was fetched.
        bench: has the categories.
        categories: those wanted.
        settings: come first.

    Raises:
        OSError: what was fetched cannot be read. ValueError: it is broken.
    """
    fetched_template, fetched = fetched_texts(folder)
    given = settings.system_prompts
    found = {}
    for name in categories:
        own = own_prompt(name)
        system = given.get(name) or given.get(EVERY) or fetched.get(name) or own.system
        template = settings.prompt_template or fetched_template or own.template
        found[name] = prompt_of(system, template, bench.category(name).system_sha256)
    return found


def fetched_texts(folder: Folder) -> tuple[str, dict[str, str]]:
    """The template and the system messages by category that `fetch` has left; "" and {} if none.

    Raises:
        OSError: the file cannot be read. ValueError: it is broken.
    """
    path = folder.root / PROMPTS_FILE
    if not path.exists():
        return "", {}
    try:
        value = json.loads(path.read_bytes())
        template, systems = value["template"], value["system"]
        texts = [template, *systems.values()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        texts = [None]
    if not all(isinstance(each, str) for each in texts):
        raise ValueError(f"{path} does not hold a template and system messages: fetch it again")
    return template, systems


def messages(prompt: Prompt, question: str, answer_a: str, answer_b: str) -> list[dict[str, str]]:
    """What is sent to the judge. The texts are put in as they are, whatever they hold."""
    texts = {"QUESTION": question, "ANSWER_A": answer_a, "ANSWER_B": answer_b}
    user = _PLACES.sub(lambda place: texts[place[1]], prompt.template)
    return [{"role": "system", "content": prompt.system}, {"role": "user", "content": user}]
