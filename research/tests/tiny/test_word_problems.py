"""Word problems: every step of a solution is right, and the answer alone is graded."""

import operator
import re
from itertools import pairwise

import pytest

from baseline_research.tiny.word_problems import word_problems

SPLIT = word_problems.split(0, 100)
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


@pytest.mark.parametrize("steps, problems", [(2, SPLIT.train[0]), (3, SPLIT.train[1])])
def test_each_step_is_a_right_calculation_and_goes_on_from_the_one_before(steps, problems):
    for problem in problems:
        found = re.findall(r"(\d+) (.) (\d+) = (\d+)", problem.solution)
        assert len(found) == steps == problem.solution.count("Step")
        for left, sign, right, result in found:
            assert OPERATORS[sign](int(left), int(right)) == int(result) > 0
        for before, after in pairwise(found):
            assert after[0] == before[3]
        assert problem.solution.endswith(f"The answer is {found[-1][3]}.")
        assert problem.question.endswith("?") and problem.question.count("?") == 1


def test_the_numbers_of_a_solution_are_those_of_its_story():
    for problem in SPLIT.train[0][:200]:
        given = re.findall(r"\d+", problem.question)
        first = re.search(r"(\d+) . (\d+) =", problem.solution)
        assert first and [first[1], first[2]] == given[:2]


def test_problems_are_all_different_and_half_of_the_held_out_ones_have_three_steps():
    questions = [problem.question for kind in (*SPLIT.train, SPLIT.held_out) for problem in kind]
    assert len(questions) == len(set(questions))
    assert sum("Step 3" in problem.solution for problem in SPLIT.held_out) == 50
    assert word_problems.split(0, 100) == SPLIT != word_problems.split(1, 100)


def test_the_answer_alone_is_graded():
    problem = SPLIT.held_out[0]
    answer = problem.solution.rpartition(" ")[2].removesuffix(".")
    label = word_problems.label(problem)
    assert word_problems.reward(f"{label}<|im_end|>", label) == 1
    assert word_problems.reward(f"The answer is {answer}.", label) == 1
    assert word_problems.reward(label.replace(f"is {answer}.", f"is {answer}1."), label) == 0
    assert word_problems.reward("Step 1: I do not know.", label) == 0
