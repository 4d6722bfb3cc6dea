"""A label that is not what its task makes is an error that says what it should be."""

import pytest

from openrlhf_js.tasks.labels import read_label


def test_a_label_is_what_is_taken_from_its_json():
    assert read_label('{"a": [1, 2]}', lambda fields: fields["a"][1], "unused") == 2


@pytest.mark.parametrize(
    "label",
    ["", "{", "null", "[]", '{"a": 1}', '{"a": {}}', '{"a": [1]}', "[" * 100_000, "\ud800", "NaN"],
)
def test_everything_else_is_a_value_error_that_says_what_a_label_is(label):
    with pytest.raises(ValueError, match=r"^a label is JSON such as X, got '") as raised:
        read_label(label, lambda fields: fields["a"][1], "JSON such as X")
    assert len(str(raised.value)) < 300


def test_text_where_a_mapping_is_expected():
    with pytest.raises(ValueError, match="a label is"):
        read_label('"text"', lambda fields: fields.items(), "JSON")
