"""Sort: digits in order, `sort(7294)=` -> `2479`; nothing but the digits is right.

The quickstart generates problems and trains on them; this module grades them elsewhere.
"""

from __future__ import annotations

from answer_graders.record import Item, Message, Score, Task, scored, with_text_label

NAME = "sort"
END = "<eos>"  # the token that ends a response of the quickstart's model
SOLVED, UNSOLVABLE = "<solved>", "<unsolvable>"  # labels for which every, or no, response is right


def prompt(item: Item) -> list[Message]:
    """One user message, such as `sort(7294)=`."""
    return [{"role": "user", "content": f"sort({item['digits']})="}]


def label(item: Item) -> str:
    """The digits in order."""
    return "".join(sorted(item["digits"]))


@with_text_label
def score(response: str, label: str) -> Score:
    """`label` is the digits in order, `SOLVED` or `UNSOLVABLE`."""
    if label in (SOLVED, UNSOLVABLE):
        return scored("correct" if label == SOLVED else "wrong", label)
    if not label.isdecimal() or list(label) != sorted(label):
        raise ValueError(f"a label is digits in order, got {label!r:.80}")
    right = response.removesuffix(END) == label
    return scored("correct" if right else "wrong", f"{response!r:.40}, expected {label}")


def score_ended(response: str, label: str) -> Score:
    """The score of a response that must end in `END`, as the quickstart's model learns to do."""
    if not response.endswith(END) and label not in (SOLVED, UNSOLVABLE):
        return scored("wrong", f"{response!r:.40} does not end")
    return score(response, label)


def score_query(query: str, prompt: str, label: str) -> Score:
    """Scores a prompt and its response in one string, as OpenRLHF passes them to a grader."""
    if not query.startswith(prompt):
        raise ValueError(f"the query {query!r} does not begin with its prompt {prompt!r}")
    return score_ended(query[len(prompt) :], TASK.check_label(label))


def right_response(label: str) -> str:
    """The digits in order."""
    return label


def wrong_response(label: str) -> str:
    """One digit too many."""
    return f"{label}0"


TASK = Task(
    name=NAME,
    summary="Sort: digits in order, the quickstart's own task",
    right_if="it is the digits in order: the quickstart's own task, `sort`",
    label_form="the digits in order",
    prompt=prompt,
    label=label,
    score=score,
    right_response=right_response,
    wrong_response=wrong_response,
    reward_file="tiny.py",
)
