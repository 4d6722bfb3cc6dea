import hashlib
import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.tasks import knights_knaves, knights_knaves_text
from openrlhf_js.tasks.base import STATUSES

SIZES = range(2, 10)
TEXT = (
    "Everyone on a small island is either an angel or an egoist. Angels always tell the truth, and "
    "egoists always lie. You meet 3 of them: Owen, Liam, and Eve. "
    '"If Owen is an angel then Eve is an egoist," Owen insisted. '
    '"Liam is an egoist or Owen is an angel, or both," said Liam. '
    'You heard Eve say, "Eve is an angel if and only if Liam is an angel." '
    "Who is an angel and who is an egoist? Think step by step, and put the final answer in "
    "\\boxed{}, with everyone's role, in the form "
    "\\boxed{NAME is an angel, NAME is an egoist, ...}."
)
DIGEST = "5bd879f87ae4ae061684d0c7be84c82a34b16de0e5c57324bb391477a8e5edb4"
World = dict[str, str]  # name -> role
LABEL = json.dumps({"Owen": "sage", "Liam": "fool", "Mary-Ann": "fool"})


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
    if both := re.fullmatch(r"(.+) or (.+), or both", sentence):
        left, right = map(meaning, both.groups())
        return lambda world: left(world) or right(world)
    if both := re.fullmatch(r"(.+) and (.+)", sentence):
        left, right = map(meaning, both.groups())
        return lambda world: left(world) and right(world)
    [(name, role)] = re.findall(r"^(\w+) is an? (\w+)$", sentence)
    return lambda world: world[name] == role


def solutions_of(text: str) -> list[World]:
    """Every solution of a puzzle, by trying all roles in its text."""
    truthful, lying = re.search(r"Who is an? (\w+) and who is an? (\w+)\?", text).groups()
    assert re.search(
        rf"{truthful}e?s always tell the truth, and {lying}e?s always lie\.", text, re.I
    )
    size, people, story = re.search(r"You meet (\d) of them: (.*?)\. (.*) Who is", text).groups()
    people = [name for name in re.findall(r"\w+", people) if name != "and"]
    assert int(size) == len(set(people))
    says = [meaning(quote[:-1]) for quote in re.findall(r'"(.*?)"', story)]
    speakers = [word for word in re.findall(r"\w+", re.sub(r'".*?"', "", story)) if word in people]
    assert len(says) == len(speakers) and sorted(speakers) == sorted(people)
    found = []
    for roles in itertools.product((truthful, lying), repeat=len(people)):
        world = dict(zip(people, roles, strict=True))
        if all(
            (world[who] == truthful) == holds(world)
            for who, holds in zip(speakers, says, strict=True)
        ):
            found.append(world)
    return found


@pytest.mark.parametrize("size", SIZES)
def test_the_text_alone_has_one_solution_which_is_the_label(size):
    for item in knights_knaves.generate(150, 7, people=(size,)):
        assert solutions_of(text_of(item)) == [json.loads(knights_knaves.label(item))]


def test_the_oracle_finds_none_and_several():
    intro = (
        "Each is a hero or a villain. Heroes always tell the truth, and villains always lie. "
        "You meet 2 of them: Ann and Bob. "
    )
    outro = " Who is a hero and who is a villain?"
    paradox = 'Ann said, "Bob is a villain." Bob said, "Ann is a hero."'
    twofold = 'Ann said, "Bob is a villain." Bob said, "Ann is a villain."'
    assert solutions_of(intro + paradox + outro) == []
    assert len(solutions_of(intro + twofold + outro)) == 2


@pytest.mark.parametrize(
    ("statements", "worlds"),
    [
        # Bit w of the set is world w; bit i of w is person i.
        ([["is", [1, False]], ["is", [0, True]]], 0b0000),
        ([["is", [1, False]], ["is", [0, False]]], 0b0110),
        ([["and", [0, False], [1, False]], ["is", [0, False]]], 0b0100),
        ([["or", [0, False], [1, True]], ["is", [0, True]]], 0b1000),
        ([["if", [0, True], [1, True]], ["iff", [0, True], [1, True]]], 0b1000),
        ([["if", [1, False], [0, False]], ["iff", [1, True], [0, False]]], 0b0000),
    ],
)
def test_worlds_of_hand_made_puzzles(statements, worlds):
    assert knights_knaves.worlds(statements) == worlds


@pytest.mark.parametrize(
    "statements",
    [[["is", [1, False]], ["is", [0, True]]], [["is", [1, False]], ["is", [0, False]]]],
    ids=["paradox", "two solutions"],
)
def test_an_item_without_one_solution_has_no_label(statements):
    item = {"people": ["Ann", "Bob"], "roles": ["hero", "villain"], "statements": statements}
    with pytest.raises(ValueError, match="one solution"):
        knights_knaves.label(item)


def test_the_whole_text_of_a_puzzle():
    item = {
        "people": ["Owen", "Liam", "Eve"],
        "roles": ["angel", "egoist"],
        "statements": [
            ["if", [0, True], [2, False]],
            ["or", [1, False], [0, True]],
            ["iff", [2, True], [1, True]],
        ],
    }
    assert text_of(item) == TEXT


def test_own_answers_score_one_and_wrong_ones_zero():
    for item in knights_knaves.generate(2000, 3, people=tuple(SIZES)):
        label = knights_knaves.label(item)
        assert knights_knaves.score(knights_knaves.right_response(label), label).value == 1.0
        wrong = knights_knaves.score(knights_knaves.wrong_response(label), label)
        assert (wrong.value, wrong.status) == (0.0, "wrong")


def test_sizes_take_turns_and_everything_else_is_spread():
    items = list(knights_knaves.generate(1400, 5, people=(3, 6)))
    assert [len(item["people"]) for item in items[:4]] == [3, 6, 3, 6]
    pairs = Counter(tuple(item["roles"]) for item in items)
    assert set(pairs) == set(knights_knaves_text.ROLES)
    assert min(pairs.values()) > 140  # of 200 expected
    kinds = Counter(statement[0] for item in items for statement in item["statements"])
    assert set(kinds) == set(knights_knaves.KINDS) == set(knights_knaves_text.STATEMENTS)
    assert min(kinds.values()) > 0.15 * kinds.total()
    for size in (3, 6):
        liars = Counter(
            sum(
                role == item["roles"][1] for role in json.loads(knights_knaves.label(item)).values()
            )
            for item in items
            if len(item["people"]) == size
        )
        assert set(liars) == set(range(size + 1))
        assert max(liars.values()) < 0.5 * liars.total()


def test_no_statement_is_empty():
    for item in knights_knaves.generate(800, 2, people=tuple(SIZES)):
        for speaker, (kind, *parts) in enumerate(item["statements"]):
            subjects = [who for who, _ in parts]
            assert len(set(subjects)) == len(subjects) == (1 if kind == "is" else 2)
            assert kind != "is" or subjects != [speaker]


def test_items_survive_json_and_are_the_same_whatever_the_count():
    items = list(knights_knaves.generate(60, 1))
    assert json.loads(json.dumps(items)) == items
    assert list(knights_knaves.generate(20, 1)) == items[:20]
    assert list(knights_knaves.generate(20, 2)) != items[:20]


def test_the_same_seed_gives_the_same_bytes_for_ever():
    rows = [
        [item, knights_knaves.prompt(item), knights_knaves.label(item)]
        for split in ("train", "test")
        for item in knights_knaves.generate(24, 0, split, people=tuple(SIZES))
    ]
    assert hashlib.sha256(json.dumps(rows).encode()).hexdigest() == DIGEST


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


def test_the_oracle_of_twins_sees_through_names_order_and_wording():
    def said(*statements):
        return nameless({"people": "AB", "statements": statements})

    one = said(["if", [0, True], [1, True]], ["is", [0, False]])
    assert one == said(["is", [1, False]], ["or", [0, True], [1, False]])
    assert one.isdisjoint(said(["if", [1, True], [0, True]], ["is", [0, False]]))
    both = said(["iff", [0, True], [1, False]], ["is", [0, True]])
    assert both == said(["iff", [1, True], [0, False]], ["is", [0, True]])
    assert both.isdisjoint(said(["iff", [1, True], [0, True]], ["is", [0, True]]))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_splits_share_no_puzzle_whatever_its_names_order_and_wording(size):
    train = {
        min(nameless(item))
        for seed in range(4)
        for item in knights_knaves.generate(400, seed, "train", (size,))
    }
    for seed in range(4):
        for item in knights_knaves.generate(60, seed, "test", (size,)):
            assert not train & nameless(item)


def test_no_puzzle_comes_twice():
    items = list(knights_knaves.generate(4000, 0, people=(2,)))
    assert len({text_of(item) for item in items}) == 4000


def test_asking_for_more_than_there_are_ends_when_all_are_found(monkeypatch):
    monkeypatch.setattr(knights_knaves, "NAMES", ["Ann", "Bob"])
    monkeypatch.setattr(knights_knaves, "ROLES", (("hero", "villain"),))
    parts = [
        ([who, a], [1 - who, b]) for who in (0, 1) for a in (False, True) for b in (False, True)
    ]
    compound = [[kind, *two] for kind in ("and", "or", "if", "iff") for two in parts]
    first = [["is", [1, False]], ["is", [1, True]], *compound]
    second = [["is", [0, False]], ["is", [0, True]], *compound]
    puzzles = sum(
        knights_knaves.worlds(said).bit_count() == 1 for said in itertools.product(first, second)
    )
    found = []
    for split in ("train", "test"):
        with pytest.raises(ValueError, match=rf"in {split} for people \(2,\), got count 9999"):
            found.extend(knights_knaves.generate(9999, 0, split, (2,)))  # what came first is kept
    assert len(found) == 2 * puzzles  # either name may come first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"people": (1, 2)}, r"from 2 to 9.*\(1, 2\)"),
        ({"people": (10,)}, "from 2 to 9"),
        ({"people": ()}, "from 2 to 9"),
        ({"split": "validation"}, "train or test, got 'validation'"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        next(knights_knaves.generate(1, 0, **options))


RIGHT = [
    "Owen is a sage, Liam is a fool, and Mary-Ann is a fool",
    "mary-ann is a FOOL and owen is a Sage and LIAM is a fool.",
    "Liam is a fool; Owen is a sage;\n\n Mary-Ann  is  a fool",
    "Owen is a sage\nLiam is a fool\nMary-Ann is a fool",
    r"\text{Owen is a sage, Liam is a fool, and Mary-Ann is a fool}",
    r"\text{Owen is a }\textbf{sage}, \text{Liam is a fool}, \mathrm{Mary-Ann}\ \text{is a fool}",
    r"Owen \text{ is a sage} \\ Liam \text{ is a fool} \\ Mary-Ann \text{ is a fool}",
    r"\begin{array}{ll} Owen & sage \\ Liam & fool \\ Mary-Ann & fool \end{array}",
    "Owen: sage, Liam: fool, Mary-Ann: fool",
    "Owen = sage, Liam = fool, Mary-Ann = fool",
    r"Owen\ is\ a\ sage,\ Liam\ is\ a\ fool,\ and\ Mary-Ann\ is\;a\,fool",
    r"\text{Owen is a sage. Liam}\text{, and }\textbf{Mary-Ann} \text{ are fools.}",
    "- Owen is **a sage**\n- Liam is **a fool**\n- Mary-Ann is **a fool**",
    "Owen (sage), Liam (fool), Mary-Ann (fool)",
    "Owen -> sage, Liam \u2192 fool, Mary-Ann \u2013 fool",
    "1. Owen is a sage\n2. Liam is a fool\n3) Mary-Ann is a fool",
    "Owen is a sage, while Liam and Mary-Ann are both fools",
    "Owen is the sage, but Liam and Mary-Ann are fools",
    r"Owen is a sage. Liam \& Mary-Ann are fools",
    "Owen is a sage. Liam & Mary-Ann are fools",
    "Owen is a sage, Liam is a fool, Mary-Ann is a fool, Owen is a sage",
]


@pytest.mark.parametrize("answer", RIGHT)
def test_right_answers(answer):
    score = knights_knaves.score(f"So it is \\boxed{{{answer}}}, surely.", LABEL)
    assert score == (1.0, "correct", "the roles of all 3")


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("Owen is a fool, Liam is a fool, and Mary-Ann is a fool", "wrong"),
        ("Owen is a fool, Liam is a sage, and Mary-Ann is a sage", "wrong"),
        ("Owen is a sage, and Liam is a fool", "wrong"),  # somebody is missing
        ("Owen is a sage, Owen is a fool, Liam is a fool, Mary-Ann is a fool", "wrong"),  # twofold
        ("Owen and Liam are sages, and Mary-Ann is a fool", "wrong"),
        ("Owen is a sage, Liam is a fool, Mary-Ann is a fool, Bob is a fool", "malformed"),
        ("Owen is a sage, Liam is a fool, Mary is a fool", "malformed"),
        ("Owen is a sage, Liam is a fool, Ann is a fool", "malformed"),
        ("Owen is a sage, Liam is a knave, and Mary-Ann is a fool", "malformed"),
        ("Owen is a sage, Liam is not a sage, and Mary-Ann is a fool", "malformed"),
        ("Owen is not a sage, Liam is a fool, and Mary-Ann is a fool", "malformed"),
        ("Owen isn't a sage, Liam is a fool, and Mary-Ann is a fool", "malformed"),
        (r"Owen \neq sage, Liam is a fool, and Mary-Ann is a fool", "malformed"),
        ("Owen != sage, Liam is a fool, and Mary-Ann is a fool", "malformed"),
        (r"Owen is a sage, Liam is a fool, Mary-Ann is a fool or a sage", "malformed"),
        ("Owen is a sage/fool, Liam is a fool, Mary-Ann is a fool", "malformed"),
        ("Owen is a sage, fool, Liam is a fool, Mary-Ann is a fool", "malformed"),
        ("Owen is a sage, Liam is a fool, Mary-Ann", "malformed"),
        ("Owen is a sage, Mary-Ann; Liam is a fool", "malformed"),
        ("Owen is a sage. Mary-Ann. Liam is a fool", "malformed"),
        ("Owen is a sage, Mary-Ann\nLiam is a fool", "malformed"),
        ("Owen is a sage, Mary-Ann, while Liam is a fool", "malformed"),
        ("Owen is a sage, Mary-Ann: Liam are fools", "malformed"),
        ("If Owen is a sage then Liam is a fool, Mary-Ann is a fool", "malformed"),
        ("sage: Owen, fool: Liam, fool: Mary-Ann", "malformed"),
        ("sages: Owen; fools: Liam and Mary-Ann", "malformed"),
        ("sage, fool, fool", "malformed"),
        ("42", "malformed"),
        (RIGHT[0] + "," * 10_000, "malformed"),
        (" ", "no_answer"),
        ("", "no_answer"),
    ],
)
def test_near_misses(answer, status):
    score = knights_knaves.score(f"\\boxed{{{RIGHT[0]}}} No: \\boxed{{{answer}}}", LABEL)
    assert (score.value, score.status) == (0.0, status)


def test_the_answer_is_the_last_box_of_the_response():
    wrong = "Owen is a fool, Liam is a fool, Mary-Ann is a fool"
    for response, status in [
        (f"\\boxed{{{wrong}}} or rather \\boxed{{{RIGHT[0]}}}", "correct"),
        (f"\\boxed{{{RIGHT[0]}}} or rather \\boxed{{{wrong}}}", "wrong"),
        (f"\\boxed{{{RIGHT[0]}", "no_answer"),
        (RIGHT[0], "no_answer"),
        ("", "no_answer"),
    ]:
        assert knights_knaves.score(response, LABEL).status == status


def test_details_have_the_names_of_the_label():
    for answer, detail in [
        ("owen is a sage, liam and mary-ann are sages", "wrong role, both or none: Liam, Mary-Ann"),
        ("owen is a sage, mary-ann; liam is a fool", "no role follows 'Mary-Ann'"),
    ]:
        assert knights_knaves.score(f"\\boxed{{{answer}}}", LABEL).detail == detail


def test_people_whose_name_is_an_article():
    label = json.dumps({"A": "knight", "B": "knave", "An": "knave"})
    for answer, status in [
        ("A is a knight, B is a knave, and An is a knave", "correct"),
        ("A: knight, B: knave, An: knave", "correct"),
        ("B and An are knaves, A = a knight", "correct"),
        ("A is a knave, B is a knave, and An is a knave", "wrong"),
        ("B is a knave, and An is a knave", "wrong"),
    ]:
        assert knights_knaves.score(f"\\boxed{{{answer}}}", label).status == status


def test_everybody_may_have_the_same_role():
    label = '{"Ann": "knave", "Bob": "knave"}'
    assert "{Ann is a knave and Bob is a knave}" in knights_knaves.right_response(label)
    assert "{Ann is a knight and Bob is a knave}" in knights_knaves.wrong_response(label)
    assert knights_knaves.score("\\boxed{Ann and Bob are knaves}", label).status == "correct"
    assert knights_knaves.score("\\boxed{Ann and Bob are knights}", label).status == "wrong"


@pytest.mark.parametrize(
    "label",
    [
        "",
        "Owen is a sage",
        "[]",
        "{}",
        '["Owen", "sage"]',
        '{"Owen": true}',
        '{"Owen": "wizard"}',
        '{"Owen": "sage", "Liam": "knave"}',
        '{"Owen": "sage", "owen": "fool"}',
        '{"": "sage"}',
        '{"Owen Smith": "sage"}',
        '{"Sage": "sage"}',
        '{"and": "sage"}',
        "[" * 100_000,
    ],
)
def test_malformed_labels_raise(label):
    for function in (
        lambda: knights_knaves.score("\\boxed{Owen is a sage}", label),
        lambda: knights_knaves.right_response(label),
        lambda: knights_knaves.wrong_response(label),
    ):
        with pytest.raises(ValueError, match=r"label|name"):
            function()


PIECES = (
    "Owen Liam Mary-Ann Bob sage fool knave is a not and \\text{ { } \\ \\boxed{ , \0 \ud800 ﬁ 7"
)


@given(st.lists(st.sampled_from(PIECES.split(" "))).map(" ".join) | st.text(), st.booleans())
def test_any_response_has_a_score(text, boxed):
    score = knights_knaves.score(f"\\boxed{{{text}}}" if boxed else text, LABEL)
    assert score.status in STATUSES[:4]
    assert score.value == (score.status == "correct")
    assert score.detail.isprintable() and len(score.detail) < 200


@given(st.permutations(RIGHT[0].replace("and ", "").split(", ")), st.data())
def test_order_case_and_joints_make_no_difference(claims, data):
    joints = st.sampled_from([", ", " and ", ", and ", "; ", ".\n", " \\\\ ", ",", "\n"])
    cases = st.sampled_from([str.lower, str.upper, str.title, str])
    answer = "".join(data.draw(cases)(claim) + data.draw(joints) for claim in claims[:-1])
    answer += data.draw(cases)(claims[-1])
    assert knights_knaves.score(f"\\boxed{{{answer}}}", LABEL).status == "correct"


LONG = (
    r"a Owen \text \texta \begin{ \begin{a}{} {} \\ - is Mary- ' sage the{ \boxed{ } $ 9 1. a\text"
)


@pytest.mark.parametrize("length", [9_000, 1_000_000])
@pytest.mark.parametrize("joint", ["", " "])
def test_long_answers_take_little_time(length, joint):
    for piece in LONG.split(" "):
        box = f"\\boxed{{{(piece + joint) * (length // len(piece + joint))}!}}"
        start = time.process_time()
        assert knights_knaves.score(box, LABEL).value == 0.0
        assert time.process_time() - start < (0.5 if length < 10_000 else 2.0), piece
