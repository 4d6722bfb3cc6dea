"""GSM8K: grade-school word problems whose answer is one number, after `####` in the data set."""

from __future__ import annotations

import re
from collections.abc import Iterator

from openrlhf_js.tasks import answers, hub, math
from openrlhf_js.tasks.equivalence import grader
from openrlhf_js.tasks.hub import text
from openrlhf_js.tasks.record import (
    SOURCE,
    BenchmarkRecord,
    Item,
    Message,
    PublishedProblems,
    Score,
    Task,
    with_text_label,
)

NAME = "gsm8k"
HUB_ID = "openai/gsm8k"
SPLITS: tuple[str, ...] = ("train", "test")

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_TEXT = r"((?:[^.!?]|\.(?=[0-9])){1,300}?)"  # of a sentence
_ANSWER = rf"[\s:*]{{0,9}}{_TEXT}[\s.*]{{0,20}}"
_SUBJECT = r"(?:the |my )?(?:final )?answer"
_HEADING = re.compile(rf"\**{_SUBJECT}[\s:*]*", re.IGNORECASE)
_HEADED = re.compile(rf"\**{_SUBJECT}(?![a-z])(?: is)?{_ANSWER}", re.IGNORECASE)
_BEFORE = r"(?:.*[.!?:;]\s)?\W{0,4}"  # other sentences, and marks such as those of bold text
_CONCLUSION = r"(?:so|thus|hence|therefore),?\s"
_SENTENCE = re.compile(
    rf"{_BEFORE}(?:{_CONCLUSION})?{_SUBJECT}\**(?: is|:){_ANSWER}", re.IGNORECASE
)
_CONCLUDING = re.compile(rf"{_BEFORE}{_CONCLUSION}{_TEXT}\.[\s*]{{0,20}}", re.IGNORECASE)
_LONGEST_SENTENCE = 600  # characters, with the marks around it
_BOLD = re.compile(r"(?<![\w)*])\*\*(?=[^\s*])([^*]+)\*\*(?![\w(*])")

# What a sentence may say behind its answer, to explain it.
_FIGURE = r"(?:\\?\$|[€£¥₹])?-?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?"
_COUNT = "one|two|three|four|five|six|seven|eight|nine|ten"
_PART = "half|third|quarter|fourth|fifth|sixth|seventh|eighth|ninth|tenth"
_NOTE = re.compile(r"\s\(([^()]*)\)")
_DENIAL = re.compile(
    rf"(?:^|,?\s)(?:and |but )?(?:not|rather than|instead of) ({_FIGURE})((?: [a-z]+)*)(?=,|$)",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"(?:(?:,| [-–—]{1,2}) (?:which|because|since|as|so|given that|that is|that's)"  # noqa: RUF001
    r"| (?:which|because|since)"
    rf"|, (?:(?:an?|{_COUNT})[ -](?:{_PART})s? of|half|twice|double|triple"
    r"|the (?:sum|product|difference|quotient|average|mean|same)"
    rf"|(?:{_FIGURE}|{_COUNT})(?: times| (?:more|less|fewer) than|(?: percent|%|/[0-9]+) of)))"
    r"(?![\w'])",
    re.IGNORECASE,
)
_EQUATION = re.compile(  # which names another number than the answer, or the same one
    rf"\W*(?:which|that|so (?:it|this|that)) (?:is|equals|makes|gives|means) ({_FIGURE})"
    r"(?: [a-z]+)?\W*",
    re.IGNORECASE,
)
_QUANTITY = re.compile(rf"\S*|{_FIGURE}(?: (?!each|apiece)[a-z]+)?", re.IGNORECASE)
_DOUBT = re.compile(
    r"[:;]|\b(?:not?|never|none|cannot|\w+n't|or|n?either|nor|if|unless|but|however|though"
    r"|although|except|otherwise|actually|wait|oh|hmm+|sorry|maybe|perhaps|probably|possibly"
    r"|rather|instead|wrong|incorrect|false|mistaken?|error|corrected|correction|should|would|could"
    r"|might|may|doubt\w*|unsure|sure|guess\w*|assum\w+|provided|yet|also|well|long|too|answers?)\b",
    re.IGNORECASE,
)
_ANOTHER = re.compile(r"\b(?:total|altogether|overall|final\w*|in all)\b", re.IGNORECASE)

# A conclusion without "the answer", such as "So she pays 35 in all", holds one number.
_ALONE = re.compile(rf"(?<![\w.,/-]){_FIGURE}%?(?![\w/-])")
_PLAIN_WORD = re.compile(r"[A-Za-zÀ-ÖØ-öø-ɏ]+(?:['’-][A-Za-zÀ-ÖØ-öø-ɏ]+)*")  # noqa: RUF001
_UNSETTLED = re.compile(  # other numbers, relations between numbers, and steps on the way
    rf"% of|\b(?:{_COUNT}|{_PART}|percent of|[b-hj-z]|eleven|twelve|\w+teen|\w+ty|hundred|thousand"
    r"|million|billion|dozens?|pairs?|couple|zero|once|twice|double|triple|first|second|last|times"
    r"|than|least|most|about|around|almost|nearly|roughly|approximately|over|under|above|below"
    r"|between|both|plus|minus|add|subtract|multiply|divided?|multiplied|calculate|compute|find"
    r"|solve|know|let|let's|set|suppose|check|step|question|next|now|then|we|i|far|much|many"
    r"|what|how|why|who|when)\b",
    re.IGNORECASE,
)


def load(split: str, source: str = HUB_ID) -> Iterator[Item]:
    """The items of the data set's own split, each question once: `question` and `answer`.

    `answer` is a worked solution that ends in `#### ` and the number; `source` as in `hub.rows`.
    """
    return hub.distinct(
        rows=hub.rows(source, split, ("question", "answer"), "main"),
        name=source,
        item=lambda row: {"question": text(row, "question"), "answer": text(row, "answer")},
        problem=lambda item: item["question"],
        gold=label,
    )


def prompt(item: Item) -> list[Message]:
    """Messages that ask for the answer in a box, as in the other mathematics of the paper."""
    return math.prompt_for(item["question"])


def label(item: Item) -> str:
    """The number after the last `####`, without thousands commas."""
    gold = (answers.last_hashes(item["answer"]) or "").replace(",", "")
    if not _NUMBER.fullmatch(gold):
        raise ValueError(f"an answer must end in '#### ' and a number, not in {gold[-40:]!r}")
    return gold


@with_text_label
def score(response: str, label: str) -> Score:
    """Grades the number that `answer_of` finds; ValueError if the label is no number."""
    if not _NUMBER.fullmatch(label.replace(",", "")):
        raise ValueError(
            f"the label must be a number such as 7, not {label!r:.80}; of a worked solution give "
            "what follows its last ####"
        )
    return grader.grade(answer_of(response), label)


def answer_of(response: str) -> str | None:
    """The answer in the last box, else in `<answer>`, else after `####`, else in the last sentence.

    The prompt asks for the box, so it counts even before a `####`, which may be a Markdown heading.
    """
    response = answers.without_end_marks(response)
    return answers.stated_answer(
        response, answers.last_boxed, answers.last_answer_tag, _after_hashes, _in_last_sentence
    )


def _after_hashes(response: str) -> str | None:
    """What follows the last `####`; below a heading such as `Final Answer`, all that is there."""
    line = answers.last_hashes(response)
    if not line or not _HEADING.match(line):
        return line and _stated(line)
    headed = _HEADED.fullmatch(response[response.rindex(line) :][:_LONGEST_SENTENCE])
    if headed:
        return _stated(headed[1])
    return None if _HEADING.fullmatch(line) else line


def _in_last_sentence(response: str) -> str | None:
    """What the response ends in stating: "The answer is 7, ...", "So she has 7 pens."."""
    line = _BOLD.sub(r"\1", response[-_LONGEST_SENTENCE:].rpartition("\n")[2])
    sentence = _SENTENCE.fullmatch(line)
    if sentence:
        return _stated(sentence[1])
    conclusion = _CONCLUDING.fullmatch(line)
    return conclusion and _only_number(conclusion[1])


def _stated(statement: str) -> str:
    """What a statement says before it explains that: 35 of "35, which is 5 times 7".

    It may say in brackets, in a clause, or by what the answer is not. Where any of that could
    also take the answer back, all of the statement is returned, which is no number.
    """
    *notes, text = [*_NOTE.findall(statement), _NOTE.sub("", statement)]
    denials = [denial for part in (*notes, text) for denial in _DENIAL.findall(part)]
    if any(_QUANTITY.fullmatch(note) for note in notes):
        return statement
    *notes, text = [_DENIAL.sub("", part) for part in (*notes, text)]
    clause = _CLAUSE.search(text)
    start = clause.start() if clause else len(text)
    explanations = [*notes, text[start:], *(words for _, words in denials)]
    stated = text[:start].strip(" *,")
    values = {_value(figure) for figure in re.findall(_FIGURE, stated)}
    equation = _EQUATION.fullmatch(text, start)
    is_denied = any(_value(figure) in values for figure, _ in denials)
    is_clear = values and not is_denied and (not equation or _value(equation[1]) in values)
    in_doubt = any(_DOUBT.search(text) or _ANOTHER.search(text) for text in explanations)
    return stated if is_clear and not in_doubt else statement


def _only_number(sentence: str) -> str | None:
    """The number of a sentence that has one and leaves nothing open, or None."""
    stated = _stated(sentence)
    numbers = _ALONE.findall(stated)
    if len(numbers) != 1 or _DOUBT.search(stated) or _UNSETTLED.search(stated):
        return None
    words = stated.replace(numbers[0], " ").replace(",", " ").split()
    return numbers[0] if all(map(_PLAIN_WORD.fullmatch, words)) else None


def _value(figure: str) -> str:
    """A figure without its currency and thousands commas."""
    return figure.lstrip("\\$€£¥₹").replace(",", "")


TASK = Task(
    name=NAME,
    summary="GSM8K: grade-school word problems whose answer is one number",
    right_if="the number in its last `\\boxed{}` equals the gold one; without a box the last "
    '`<answer>` counts, then what follows the last `####`, then a last sentence "The answer is '
    '..."',
    label_form="the gold number",
    problems=PublishedProblems(load=load, splits=SPLITS, options={"source": SOURCE}),
    prompt=prompt,
    label=label,
    score=score,
    right_response=math.right_response,
    wrong_response=math.wrong_response,
    reward_file="gsm8k.py",
    voted_answer=answer_of,
    same_answer=math.same_answer,
    benchmarks={
        # The test split, 1,319 problems (Cobbe et al., 2021). The paper validates on it with 10
        # samples at temperature 0.5, unlike everything else. It asks with the "official template of
        # GSM8K", of which it says no more; the prompt here asks for the answer in \boxed{}, as in
        # all mathematics.
        "gsm8k": BenchmarkRecord(samples=10, temperature=0.5),
    },
)
