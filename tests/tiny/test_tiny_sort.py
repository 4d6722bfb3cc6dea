import pytest

from openrlhf_js.tiny.tasks import sort


@pytest.mark.parametrize("seed", [0, 1])
def test_every_prompt_is_either_trained_on_or_held_out(seed):
    train, held_out = sort.split(seed, 200)
    trained_on = {digits for each in train for digits in each}
    assert len(held_out) == len(set(held_out)) == 200
    assert not trained_on & set(held_out)
    assert trained_on | set(held_out) == {
        f"{number:0{length}d}" for length in sort.LENGTHS for number in range(10**length)
    }


@pytest.mark.parametrize("count", [0, 3, 201])
def test_split_says_how_many_can_be_held_out(count):
    with pytest.raises(ValueError, match="give 4 to 200"):
        sort.split(0, count)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("2479<eos>", 1.0),
        ("2479", 0.0),  # cut off before it ended
        ("2479<eos><eos>", 0.0),
        ("24790<eos>", 0.0),
        (" 2479<eos>", 0.0),
        ("7294<eos>", 0.0),
        ("<eos>", 0.0),
        ("", 0.0),
        ("__import__('os')<eos>", 0.0),
    ],
)
def test_score_is_exact(response, expected):
    assert sort.score(response, "2479").value == expected
    assert sort.score_query("sort(7294)=" + response, "sort(7294)=", "2479").value == expected


def test_a_query_without_its_prompt_is_an_error_and_not_a_zero():
    with pytest.raises(ValueError, match="does not begin with its prompt"):
        sort.score_query("sort( 7294)=2479<eos>", "sort(7294)=", "2479")
