"""Puzzles have one solution, read from their text alone; answers are read as a person would."""

import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Callable

import pytest

from answer_graders.tasks import knights_knaves

SIZES = range(2, 10)
World = dict[str, str]  # name -> role


def text_of(item) -> str:
    [message] = knights_knaves.prompt(item)
    assert message["role"] == "user"
    return message["content"]


def meaning(sentence: str) -> Callable[[World], bool]:
    """What an English sentence of the puzzles says, read from its words alone."""
    for pattern, holds in COMPOUNDS.items():
        compound = re.fullmatch(pattern, sentence)
        if compound:
            left, right = map(meaning, compound.groups())
            return lambda world: holds(left(world), right(world))
    [(name, role)] = re.findall(r"^(\w+) is an? (\w+)\W?$", sentence)
    return lambda world: world[name] == role


COMPOUNDS = {  # whose pattern must not be tried before those above it
    r"(.+) if and only if (.+)": lambda left, right: left == right,
    r"[Ii]f (.+) then (.+)": lambda left, right: right if left else True,
    r"(.+?) or (.+?)(?:, or both)?": lambda left, right: left or right,
    r"(.+) and (.+)": lambda left, right: left and right,
}


def solutions_of(text: str) -> list[World]:
    """Every solution of a puzzle, by trying all roles in its text."""
    truthful, lying = re.search(r"ho is an? (\w+) and who is an? (\w+)\?", text).groups()
    rule = rf"{truthful}e?s always tell the truth, and {lying}e?s always lie\."
    assert re.search(rule, text, re.I)
    puzzle = re.search(r"You meet (\d) (?:of them|inhabitants): (.*?)\. (.*) (?:So w|W)ho is", text)
    size, people, story = puzzle.groups()
    names = [name for name in re.findall(r"\w+", people) if name != "and"]
    assert int(size) == len(set(names))
    statements = statements_of(story, names)
    solutions = []
    for roles in itertools.product((truthful, lying), repeat=len(names)):
        world = dict(zip(names, roles, strict=True))
        if all((world[speaker] == truthful) == holds(world) for speaker, holds in statements):
            solutions.append(world)
    return solutions


def statements_of(story: str, names: list[str]) -> list[tuple[str, Callable[[World], bool]]]:
    """Who says what in a story, in which everybody speaks once."""
    story = re.sub(r"told you that (.*?\.)", r'told you "\1"', story)  # the paper's, unquoted
    meanings = [meaning(quote.rstrip(".,")) for quote in re.findall(r'"(.*?)"', story)]
    around_quotes = re.sub(r'".*?"', "", story)
    speakers = [word for word in re.findall(r"\w+", around_quotes) if word in names]
    assert sorted(speakers) == sorted(names)
    return list(zip(speakers, meanings, strict=True))


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


def test_puzzles_of_a_seed_are_evenly_spread_and_graded_right():
    puzzles = list(knights_knaves.generate(1400, 5, people=(3, 6)))
    assert [len(item["people"]) for item in puzzles[:4]] == [3, 6, 3, 6]
    assert puzzles[:20] == list(knights_knaves.generate(20, 5, people=(3, 6)))
    assert puzzles[:20] != list(knights_knaves.generate(20, 6, people=(3, 6)))
    pairs = Counter(tuple(item["roles"]) for item in puzzles)
    assert set(pairs) == set(knights_knaves.ROLES)
    assert min(pairs.values()) > 140  # of 200 expected
    kinds = Counter(statement[0] for item in puzzles for statement in item["statements"])
    assert set(kinds) == set(knights_knaves.KINDS) == set(knights_knaves.STATEMENTS)
    assert min(kinds.values()) > 0.15 * kinds.total()
    counts = Counter()  # any number of people may lie
    for item in puzzles:
        label = knights_knaves.label(item)
        roles = list(json.loads(label).values())
        _, lying = item["roles"]
        counts[len(roles), roles.count(lying)] += 1
        assert_no_statement_is_empty(item)
        assert knights_knaves.score(knights_knaves.right_response(label), label).value == 1.0
        assert knights_knaves.score(knights_knaves.wrong_response(label), label).status == "wrong"
    assert set(counts) == {(size, liars) for size in (3, 6) for liars in range(size + 1)}
    assert max(counts.values()) < 350


def assert_no_statement_is_empty(item):
    for speaker, (kind, *parts) in enumerate(item["statements"]):
        subjects = [who for who, _ in parts]
        assert len(set(subjects)) == len(subjects) == (1 if kind == "is" else 2)
        assert kind != "is" or subjects != [speaker]


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
        statements = {}
        for speaker, statement in enumerate(item["statements"]):
            statements[order[speaker]] = truth_table(statement, order)
        forms.add(str(sorted(statements.items())))
    return forms


def truth_table(statement, order) -> tuple[list[int], list[bool]]:
    """Whom a statement is about, in an order of the people, and in which cases it holds."""
    kind, *parts = statement
    about = sorted(order[who] for who, _ in parts)
    table = []
    for truths in itertools.product((False, True), repeat=len(parts)):
        world = dict(zip(about, truths, strict=True))
        arguments = [world[order[who]] is truth for who, truth in parts]
        table.append(HOLDS[kind](*arguments))
    return about, table


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
    answer = "Liam and Bob are fools, Owen is not a sage, Eve is a knight. Liam is a sage"
    said = knights_knaves.roles_of_response(f"\\boxed{{{answer}}}")
    assert said == "bob: fool, eve: knight, liam: both, owen: fool"
    for unread in ("Owen is a sage", "\\boxed{Owen is tall}", ""):
        assert not knights_knaves.roles_of_response(unread)


def test_people_whose_name_is_an_article():
    label = json.dumps({"A": "knight", "B": "knave", "An": "knave"})
    for answer, status in [
        ("A is a knight, B is a knave, and An is a knave", "correct"),
        ("B and An are knaves, A = a knight", "correct"),
        ("A is a knave, B is a knave, and An is a knave", "wrong"),
    ]:
        assert knights_knaves.score(f"\\boxed{{{answer}}}", label).status == status


@pytest.mark.parametrize(
    ("name", "answer", "status"),
    [
        ("Zoë", "Zoe\u0308", "correct"),
        ("Zoe\u0308", "ZOË", "correct"),
        ("X\u030can", "X\u030cAN", "correct"),  # in no form one letter
        ("राम", "राम", "correct"),
        ("Zoe", "\uff3aoe", "correct"),
        ("Straße", "STRASSE", "correct"),
        ("Zoë", "Zoe", "malformed"),
        ("Zoë", "Zo\u0308e", "malformed"),
    ],
)
@pytest.mark.parametrize("form", ["%s is a knight, Owen is a knave", "%s | knight\nOwen | knave"])
def test_names_are_compared_by_their_unicode_form(form, name, answer, status):
    label = json.dumps({name: "knight", "Owen": "knave"})
    assert knights_knaves.score(f"\\boxed{{{form % answer}}}", label).status == status
    assert knights_knaves.score(knights_knaves.right_response(label), label).status == "correct"


def test_tables_end_in_bounded_time():
    label = json.dumps({"Owen": "knight", "Liam": "knave"})
    rows = {
        "5,000 rows": "| Owen | knight |\n" * 5_000,
        "5,000 rows of LaTeX": rf"\begin{{array}}{{cc}}{'Owen & knight' * 5_000}\end{{array}}",
        "as many as are read": "| Owen | knight |\n" * 550,
        "columns": "|a" * 4_900,
        "cells": "a|b\n" * 2_400,
        "beginnings": "\\begin{array}" * 700,
        "marks": "\u0323\u0301" * 4_900,
    }
    for name, answer in rows.items():
        began = time.process_time()
        assert knights_knaves.score(f"\\boxed{{{answer}}}", label).value == 0
        assert time.process_time() - began < 5, name
