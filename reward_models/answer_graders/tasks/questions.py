"""Questions: seven kinds of small ones, for small language models; only the bare answer is right.

Some kinds are easy for such a model and some hard, so that prompts differ in value without
tuning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from answer_graders.answers import without_end_marks
from answer_graders.marks import without_reply_marks
from answer_graders.record import (
    BenchmarkRecord,
    GeneratedProblems,
    Item,
    Message,
    Option,
    Score,
    Split,
    Task,
    in_turn,
    is_new,
    random_of,
    scored,
    split_of,
    with_text_label,
)
from answer_graders.thinking import after_thinking

NAME = "questions"
TRIES = 2000  # draws in a row without a new question of a kind
BRIEFLY = "Answer briefly."
WORDS = """\
apple arm army baby bag ball bank bath beach bear bed bell bird boat body bone book bottle bowl
box boy branch bread bridge brother bus butter cake camera camp cap car card cat chair cheese child
church circle city class clock cloud coat coffee cook copper corn country cow cup desk dinner dog
door dream dress drum duck ear earth egg engine eye face family farm father field finger fire fish
floor flower foot forest fork friend frog fruit game garden gate girl glass gold goat grass hair
hall hand hat head heart hill home horse hotel house ice island jacket king kitchen knee knife lake
lamp leaf leg letter lion lunch machine map market meal meat milk mirror money moon morning mother
mountain mouth music nail neck needle night nose ocean office oil orange oven page paper park party
pen pencil person picture pig plane planet plant plate pocket potato queen rabbit radio rain ring
river road rock roof room rope rose salt sand school sea seat shadow sheep ship shirt shoe shop
silver sister skin sky snow soap soup spoon spring square star station stone storm street sugar sun
table tail teacher team tent ticket tiger town toy train tree truck uncle village voice wall water
week wheel wind window wine winter wolf woman wood world yard year
"""


Question = tuple[str, str]  # a question and its only answer


def _next(random: Random) -> Question:
    number = random.randint(1, 998)
    return f"What number comes after {number}?", str(number + 1)


def _product(random: Random) -> Question:
    left = random.randint(2, 9)
    right = random.randint(2, 19)
    return f"What is {left} times {right}?", str(left * right)


def _digit_sum(random: Random) -> Question:
    digits = [random.randint(1, 9) for _ in range(3)]
    return f"What is {' + '.join(map(str, digits))}?", str(sum(digits))


def _largest(random: Random) -> Question:
    numbers = random.sample(range(10, 100), 3)
    return f"What is the largest of {', '.join(map(str, numbers))}?", str(max(numbers))


def _last_letter(random: Random) -> Question:
    word = random.choice(WORDS.split())
    return f"What is the last letter of {word}?", word[-1]


def _sum(random: Random) -> Question:
    left = random.randint(10, 99)
    right = random.randint(10, 99)
    return f"What is {left} + {right}?", str(left + right)


def _difference(random: Random) -> Question:
    left = random.randint(20, 99)
    right = random.randint(10, left - 1)
    return f"What is {left} - {right}?", str(left - right)


KINDS: dict[str, Callable[[Random], Question]] = {
    "next": _next,
    "product": _product,
    "digit_sum": _digit_sum,
    "largest": _largest,
    "last_letter": _last_letter,
    "sum": _sum,
    "difference": _difference,
}


def generate(
    count: int,
    seed: int,
    split: Split = "train",
    kinds: Sequence[str] = tuple(KINDS),
) -> Iterator[Item]:
    """Questions {"question", "answer", "kind"}, all different, and equally many of each kind.

    Products and words are limited: test has some 20 and 30. Raises ValueError for an unknown kind.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"unknown kind {kind!r}; choose from {', '.join(KINDS)}")
    random = random_of(NAME, split, seed)
    seen = set[int]()

    def draw(kind: str) -> Item | None:
        question, answer = KINDS[kind](random)
        if split_of(question) != split or not is_new(seen, question):
            return None
        return {"question": question, "answer": answer, "kind": kind}

    yield from in_turn(draw, kinds, count, TRIES, f"{split} questions of kind {{}}")


def prompt(item: Item) -> list[Message]:
    """One user message, such as `What is 7 times 12? Answer briefly.`."""
    return [{"role": "user", "content": f"{item['question']} {BRIEFLY}"}]


def label(item: Item) -> str:
    """The answer."""
    return str(item["answer"])


@with_text_label
def score(response: str, label: str) -> Score:
    """Only the bare answer is correct; ValueError if the label is no number or letter."""
    if not label.isalnum():
        raise ValueError(f"a label is a number or a letter, got {label!r:.80}")
    answer = answer_of(response)
    if not answer:
        return scored("no_answer", "nothing that follows the thoughts")
    right = answer == label
    return scored("correct" if right else "wrong", f"{answer!r:.40}, expected {label}")


def answer_of(response: str) -> str:
    """The text after the thoughts, without end tokens."""
    return without_reply_marks(without_end_marks(after_thinking(response)))


def right_response(label: str) -> str:
    """The answer."""
    return label


def wrong_response(label: str) -> str:
    """The answer in a sentence."""
    return f"It is {label}."


TASK = Task(
    name=NAME,
    summary="Questions: seven kinds of small ones, for small language models",
    right_if="it is the answer, and nothing but the answer",
    label_form="the answer, a number or a letter",
    problems=GeneratedProblems(
        generate=generate,
        default_counts={"train": 5000, "test": 350},
        options={
            "kinds": Option(
                tuple[str, ...], f"kinds of questions, equally many of each: {', '.join(KINDS)}"
            ),
        },
    ),
    prompt=prompt,
    label=label,
    score=score,
    right_response=right_response,
    wrong_response=wrong_response,
    kind=lambda item: str(item["kind"]),
    reward_file="questions.py",
    voted_answer=answer_of,
    benchmarks={
        "questions": BenchmarkRecord(count=350, samples=4, temperature=1.0, max_new_tokens=6),
    },
)
