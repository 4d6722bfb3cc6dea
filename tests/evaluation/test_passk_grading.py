import pytest

from openrlhf_js.evaluation.passk.grading import FORMS, LONGEST_ANSWER, grade, grade_all
from openrlhf_js.evaluation.passk.items import item_of
from openrlhf_js.tasks import TASKS

COUNTDOWN = '{"numbers": [2, 3, 4], "target": 24}'
KNK = '{"Owen": "sage", "Liam": "fool"}'
MAZE = '{"maze": ["******", "*S..E*", "*....*", "******"]}'


def item(datasource, label):
    return item_of({"input": "?", "label": label, "datasource": datasource})


@pytest.mark.parametrize(
    ("datasource", "label", "text", "status", "answer"),
    [
        ("math/math500", "7", r"so \boxed{6}, no: \boxed{ 7 }", "correct", "7"),
        ("math", "7", "it is 7", "no_answer", None),
        ("gsm8k", "7", "#### 7", "correct", "7"),
        ("gsm8k", "7", r"\boxed{8} #### 7", "wrong", "8"),
        ("countdown/3", COUNTDOWN, "<answer> (4) * 3 * 2 = 24 </answer>", "correct", "24"),
        ("countdown/3", COUNTDOWN, "<answer> 4 / 3 </answer>", "wrong", "4/3"),
        ("countdown/3", COUNTDOWN, "<answer> 4 / (3 - 3) </answer>", "wrong", "division by zero"),
        ("countdown/3", COUNTDOWN, "<answer> 4 ** 3 </answer>", "malformed", "4 ** 3"),
        ("maze/6x4", MAZE, "<answer> Right, right -> R </answer>", "correct", "RRR"),
        ("maze/6x4", MAZE, "<answer> ['D', 'R'] </answer>", "wrong", "DR"),
    ],
)
def test_statuses_and_answers(datasource, label, text, status, answer):
    assert grade(item(datasource, label), text) == (status, answer)


def test_roles_in_any_order_and_wording_are_one_answer():
    found = {
        grade(item("knights_knaves/2", KNK), rf"\boxed{{{said}}}").answer
        for said in ("Owen is a fool, and Liam is a fool", "Liam and Owen are fools")
    }
    assert found == {"liam: fool, owen: fool"}


def test_every_task_has_a_form_for_its_own_responses():
    labels = {
        "countdown": COUNTDOWN,
        "knights_knaves": KNK,
        "maze": MAZE,
        "math": "7",
        "gsm8k": "7",
        "geometry3k": "7",
    }
    assert FORMS.keys() == TASKS.keys() == labels.keys()
    for name, label in labels.items():
        right, wrong = (
            grade(item(name, label), respond(label))
            for respond in (TASKS[name].right_response, TASKS[name].wrong_response)
        )
        assert (right.status, wrong.status) == ("correct", "wrong")
        assert right.answer and wrong.answer and right.answer != wrong.answer


def test_mathematics_is_the_same_in_other_spellings():
    same = FORMS["math"].same
    assert same(r"\frac{1}{2}", "0.5")
    assert not same("1", "2")
    assert not same("1", "{")  # which can be no gold answer
    assert not FORMS["countdown"].same("1", "1.0")


def test_long_answers_are_cut_and_the_order_is_kept():
    found = grade_all([item("math", "7")] * 3, [rf"\boxed{{{'9' * 900}}}", "", r"\boxed{7}"])
    assert [each.status for each in found][1:] == ["no_answer", "correct"]
    assert len(found[0].answer) == LONGEST_ANSWER
