"""Puzzles have one solution, read from their text alone; answers are read as a person would."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable

import pytest

from openrlhf_js.tasks import knights_knaves

SIZES = range(2, 10)
World = dict[str, str]  # name -> role


def text_of(item) -> str:
    [message] = knights_knaves.prompt(item)
    assert message["role"] == "user"
    return message["content"]


def meaning(sentence: str) -> Callable[[World], bool]:
    """What an English sentence of the puzzles says, read from its words alone."""
    if both := re.fullmatch(r"(.+) if and only if (.+)", sentence):
        left, right = map(meaning, both.groups())
        return lambda world: left(world) == right(world)
    if both := re.fullmatch(r"[Ii]f (.+) then (.+)", sentence):
        left, right = map(meaning, both.groups())
        return lambda world: right(world) if left(world) else True
    if both := re.fullmatch(r"(.+?) or (.+?)(?:, or both)?", sentence):
        left, right = map(meaning, both.groups())
        return lambda world: left(world) or right(world)
    if both := re.fullmatch(r"(.+) and (.+)", sentence):
        left, right = map(meaning, both.groups())
        return lambda world: left(world) and right(world)
    [(name, role)] = re.findall(r"^(\w+) is an? (\w+)\W?$", sentence)
    return lambda world: world[name] == role


def solutions_of(text: str) -> list[World]:
    """Every solution of a puzzle, by trying all roles in its text."""
    truthful, lying = re.search(r"ho is an? (\w+) and who is an? (\w+)\?", text).groups()
    rule = rf"{truthful}e?s always tell the truth, and {lying}e?s always lie\."
    assert re.search(rule, text, re.I)
    found = re.search(r"You meet (\d) (?:of them|inhabitants): (.*?)\. (.*) (?:So w|W)ho is", text)
    size, people, story = found.groups()
    people = [name for name in re.findall(r"\w+", people) if name != "and"]
    assert int(size) == len(set(people))
    story = re.sub(r"told you that (.*?\.)", r'told you "\1"', story)  # the paper's, unquoted
    says = [meaning(quote.rstrip(".,")) for quote in re.findall(r'"(.*?)"', story)]
    speakers = [word for word in re.findall(r"\w+", re.sub(r'".*?"', "", story)) if word in people]
    assert len(says) == len(speakers) and sorted(speakers) == sorted(people)
    worlds = [
        dict(zip(people, roles, strict=True))
        for roles in itertools.product((truthful, lying), repeat=len(people))
    ]
    told = list(zip(speakers, says, strict=True))
    return [w for w in worlds if all((w[who] == truthful) == holds(w) for who, holds in told)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("wording", ["own", "paper"])
def test_the_text_alone_has_one_solution_which_is_the_label(size, wording):
    for item in knights_knaves.generate(60, 7, people=(size,), wording=wording):
        text = text_of(item)
        assert solutions_of(text) == [json.loads(knights_knaves.label(item))]
        assert text.startswith("A very special island") == (wording == "paper")


@pytest.mark.parametrize(("one", "two"), [(True, False), (False, False)])  # none, and two
def test_a_puzzle_without_one_solution_has_no_label(one, two):
    statements = [["is", [1, one]], ["is", [0, two]]]
    item = {"people": ["Ann", "Bob"], "roles": ["hero", "villain"], "statements": statements}
    with pytest.raises(ValueError, match="one solution"):
        knights_knaves.label(item)


def test_puzzles_are_varied_even_and_graded_right():
    items = list(knights_knaves.generate(1400, 5, people=(3, 6)))
    assert [len(item["people"]) for item in items[:4]] == [3, 6, 3, 6]
    assert items[:20] == list(knights_knaves.generate(20, 5, people=(3, 6)))
    assert items[:20] != list(knights_knaves.generate(20, 6, people=(3, 6)))
    pairs = Counter(tuple(item["roles"]) for item in items)
    assert set(pairs) == set(knights_knaves.ROLES)
    assert min(pairs.values()) > 140  # of 200 expected
    kinds = Counter(statement[0] for item in items for statement in item["statements"])
    assert set(kinds) == set(knights_knaves.KINDS) == set(knights_knaves.STATEMENTS)
    assert min(kinds.values()) > 0.15 * kinds.total()
    liars = Counter()
    for item in items:
        label = knights_knaves.label(item)
        assert knights_knaves.score(knights_knaves.right_response(label), label).value == 1.0
        assert knights_knaves.score(knights_knaves.wrong_response(label), label).status == "wrong"
        liars[len(item["people"]), list(json.loads(label).values()).count(item["roles"][1])] += 1
        for speaker, (kind, *parts) in enumerate(item["statements"]):  # none is empty
            subjects = [who for who, _ in parts]
            assert len(set(subjects)) == len(subjects) == (1 if kind == "is" else 2)
            assert kind != "is" or subjects != [speaker]
    assert set(liars) == {(size, count) for size in (3, 6) for count in range(size + 1)}
    assert max(liars.values()) < 350


HOLDS = {
    "is": lambda a: a,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "if": lambda a, b: b if a else True,
    "iff": lambda a, b: a is b,
}


def nameless(item) -> set[str]:
    """What is said in which cases, without names and words, in every order of the people."""
    forms = set()
    for order in itertools.permutations(range(len(item["people"]))):
        rewritten = {}
        for speaker, (kind, *parts) in enumerate(item["statements"]):
            about = sorted(order[who] for who, _ in parts)
            table = []
            for truths in itertools.product((False, True), repeat=len(parts)):
                world = dict(zip(about, truths, strict=True))
                table.append(HOLDS[kind](*[world[order[who]] is truth for who, truth in parts]))
            rewritten[order[speaker]] = (about, table)
        forms.add(str(sorted(rewritten.items())))
    return forms


@pytest.mark.parametrize("size", [2, 3, 4])
def test_splits_share_no_puzzle_whatever_its_names_order_and_wording(size):
    train = {
        min(nameless(item))
        for seed in range(3)
        for item in knights_knaves.generate(900 // size, seed, "train", (size,))
    }
    for seed in range(3):
        for item in knights_knaves.generate(80 // size, seed, "test", (size,)):
            assert not train & nameless(item)


# Grading


def test_claims_need_no_label():
    said = "\\boxed{Liam and Bob are fools, Owen is not a sage, Eve is a knight. Liam is a sage}"
    assert knights_knaves.claims_of(said) == {
        "liam": "both",
        "bob": "fool",
        "owen": "fool",
        "eve": "knight",
    }
    for unread in ("Owen is a sage", "\\boxed{Owen is tall}", ""):
        assert knights_knaves.claims_of(unread) is None


def test_people_whose_name_is_an_article():
    label = json.dumps({"A": "knight", "B": "knave", "An": "knave"})
    for answer, status in [
        ("A is a knight, B is a knave, and An is a knave", "correct"),
        ("B and An are knaves, A = a knight", "correct"),
        ("A is a knave, B is a knave, and An is a knave", "wrong"),
    ]:
        assert knights_knaves.score(f"\\boxed{{{answer}}}", label).status == status
