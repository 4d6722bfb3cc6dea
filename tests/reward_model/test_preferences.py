"""Preference files row by row, and the texts that pairs become."""

import pytest
from jinja2 import TemplateError

from openrlhf_js.reward_model.preferences import Keys, PreferencePair, pair, read_pairs, rendered


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def template(messages: list, tokenize: bool, add_generation_prompt: bool = False) -> str:
    assert tokenize is False
    made = "".join(f"<{each['role']}>{each['content']}|\n" for each in messages)
    return made + ("<assistant>" if add_generation_prompt else "")


BAD_ROWS = """
{ ~ not JSON
{"chosen": "a"} ~ 'rejected'
{"chosen": 3, "rejected": "a"} ~ 'chosen'
{"chosen": "a", "rejected": [{"role": "user", "content": "b"}]} ~ all hold text or all hold messages
"""


@pytest.mark.parametrize("row", BAD_ROWS.strip().splitlines())
def test_a_row_that_is_not_a_pair_is_named_with_its_line(row, tmp_path):
    line, problem = row.split(" ~ ")
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"chosen": "a", "rejected": "b", "subset": "sums"}}\n{line}\n')
    pairs = read_pairs(path, Keys())
    assert next(pairs) == PreferencePair(None, "a", "b", "line 1", "sums")
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: ") as caught:
        next(pairs)
    assert problem in str(caught.value)


@pytest.mark.parametrize("margin", [None, "1", True, float("nan"), 10**400])
def test_the_margin_loss_wants_a_finite_number(margin):
    row = {"chosen": "a", "rejected": "b", "margin": margin}
    assert pair(row, Keys(), "") == PreferencePair(None, "a", "b", "")
    with pytest.raises(ValueError, match="'margin' must hold a finite number, not"):
        pair(row, Keys(margin="margin"), "")
    assert pair(row | {"margin": -1.5}, Keys(margin="margin"), "")


def test_a_template_has_a_place_for_the_prompt():
    sides = PreferencePair("4?", " 4", " 5", "")
    assert rendered(sides, input_template="Q: {}").chosen == "Q: 4? 4"
    with pytest.raises(ValueError, match=r"'Q: ' has no \{\} for the prompt"):
        rendered(sides, input_template="Q: ")


def test_text_and_messages_are_not_confused():
    flags = r"--data\.apply_chat_template \(--apply_chat_template of `rm eval`\) is for sides"
    with pytest.raises(ValueError, match=flags):
        rendered(PreferencePair(None, [said("user", "a")], [said("user", "b")], ""))
    with pytest.raises(ValueError, match=flags):
        rendered(PreferencePair(None, "a", "b", ""), template)

    def refuses(*_: object, **__: object) -> str:
        raise TemplateError("roles must alternate")

    with pytest.raises(ValueError, match="the chat template refuses it: roles must alternate"):
        rendered(PreferencePair(None, [said("user", "a")], [said("user", "b")], ""), refuses)
