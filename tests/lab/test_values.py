import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from openrlhf_js.lab import values as v
from openrlhf_js.lab.value_files import read

DRAWS = 200_000
EVERY = [
    v.beta(0.5, 0.5),
    v.beta(5, 2),
    v.uniform(),
    v.two_point(0.1, 0.9, 0.3),
    v.constant(0.25),
    v.logit_normal(-1, 1.5),
    v.logit_normal(0.5, 0),
    v.normal(2, 3),
    v.listed(np.array([0.0, 0.5, 0.5, 1.0]), "x"),
]


def by_title(values):
    return values.title


@pytest.mark.parametrize("values", EVERY, ids=by_title)
def test_the_moments_are_those_of_the_draws(values):
    drawn = values.draw(np.random.default_rng(0), (DRAWS // 2, 2))
    assert drawn.shape == (DRAWS // 2, 2)
    assert values.low <= drawn.min() and drawn.max() <= values.high
    error = np.sqrt(values.s2 / DRAWS)
    assert drawn.mean() == pytest.approx(values.mean, abs=4 * error + 1e-12)
    squares = (drawn - values.mean) ** 2
    error = squares.std() / np.sqrt(DRAWS)
    assert squares.mean() == pytest.approx(values.s2, abs=4 * error + 1e-12)
    noise = (drawn * (1 - drawn)).mean()
    assert noise == pytest.approx(values.sigma2, abs=0.005 * (1 + abs(noise)))


def test_moments_by_hand():
    arcsine = v.beta(0.5, 0.5)
    assert (arcsine.mean, arcsine.s2, arcsine.sigma2) == (0.5, 0.125, 0.125)
    two = v.two_point(0.2, 0.6, 0.25)
    assert two.mean == pytest.approx(0.3)
    assert two.s2 == pytest.approx(0.75 * 0.01 + 0.25 * 0.09)
    assert two.sigma2 == pytest.approx(0.75 * 0.16 + 0.25 * 0.24)
    some = v.listed(np.array([0.0, 1.0, 0.5, 0.5]), "f")
    assert (some.mean, some.s2, some.sigma2) == (0.5, 0.125, 0.125)


def test_uniform_is_beta_one_one():
    a, b = v.uniform(), v.beta(1, 1)
    assert (a.mean, a.s2, a.sigma2) == pytest.approx((b.mean, b.s2, b.sigma2))


@settings(max_examples=30, deadline=None)
@given(st.floats(-4, 4), st.floats(0.05, 4))
def test_logit_normal_moments_are_the_integrals(mean, std):
    z = np.linspace(-12, 12, 20_001)

    def moment(power):
        return integrate.trapezoid(special.expit(mean + std * z) ** power * stats.norm.pdf(z), z)

    values = v.logit_normal(mean, std)
    assert values.mean == pytest.approx(moment(1), abs=2e-6)
    assert values.s2 == pytest.approx(moment(2) - moment(1) ** 2, abs=2e-6)


def test_a_list_is_drawn_with_replacement():
    drawn = v.listed(np.array([0.0, 1.0]), "f").draw(np.random.default_rng(0), (50, 3))
    assert set(drawn.ravel()) == {0.0, 1.0}


def test_gaussian_rewards_keep_the_values_and_have_the_noise_asked_for():
    values = v.normal(0, 1)
    same = v.gaussian_rewards(values, 2)
    assert same.sigma2 == 4
    assert same.title == "Gaussian, values N(0, 1^2), noise 2"
    np.testing.assert_array_equal(same.noise(np.random.default_rng(0), (2, 3)), np.full((2, 3), 2))
    spread = v.gaussian_rewards(values, 2, 0.5)
    noise = spread.noise(np.random.default_rng(0), (DRAWS,))
    assert spread.sigma2 == 4
    assert np.square(noise).mean() == pytest.approx(4, rel=0.02)
    assert np.log(noise).std() == pytest.approx(0.5, rel=0.02)
    for each in (same, spread):
        assert (each.mean, each.s2, each.low, each.high) == (0, 1, -np.inf, np.inf)


@pytest.mark.parametrize(("noise", "spread"), [(0, 0), (-1, 0), (np.inf, 0), (np.nan, 0), (1, -1)])
def test_a_noise_that_cannot_be_is_refused(noise, spread):
    with pytest.raises(ValueError, match="noise must be greater than 0"):
        v.gaussian_rewards(v.uniform(), noise, spread)


def test_bernoulli_rewards_need_probabilities():
    assert v.bernoulli_rewards(v.uniform()).title == "Bernoulli, values uniform"
    for values in (v.normal(0, 1), v.two_point(-0.1, 0.5, 0.5), v.constant(1.5)):
        with pytest.raises(ValueError, match="take Gaussian rewards"):
            v.bernoulli_rewards(values)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("beta:0.5,2", "Bernoulli, values Beta(0.5, 2)"),
        ("uniform", "Bernoulli, values uniform"),
        ("two_point:0.1,0.9,0.3", "Bernoulli, values 0.1 or 0.9 (share 0.3)"),
        ("logit_normal:-1,1.5", "Bernoulli, logits N(-1, 1.5^2)"),
        ("constant:0.5", "Bernoulli, every value 0.5"),
        ("normal:0,1", "Bernoulli, values N(0, 1^2)"),
    ],
)
def test_a_flag_names_its_distribution(text, title):
    assert v.parse(text).title == title


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gamma:1,2", r"no values 'gamma:1,2'; give one of beta:A,B, uniform, .*file:PATH"),
        ("", "give one of"),
        ("file:", "give one of"),
        ("beta", "do not have the form beta:A,B"),
        ("beta:1", "do not have the form beta:A,B"),
        ("beta:1,2,3", "do not have the form beta:A,B"),
        ("beta:1,x", "do not have the form beta:A,B"),
        ("beta:1,inf", "with finite numbers"),
        ("uniform:1", "do not have the form uniform"),
        ("beta:0,1", "greater than 0; got 0 and 1"),
        ("two_point:0,1,2", "from 0 to 1; got 2"),
        ("logit_normal:0,-1", "STD of 0 or more; got -1"),
        ("normal:0,-1", "STD of 0 or more; got -1"),
    ],
)
def test_a_flag_that_cannot_be_used_says_what_can(text, message):
    with pytest.raises(ValueError, match=message):
        v.parse(text)


def test_values_are_read_from_text_and_from_the_lab(tmp_path):
    text = tmp_path / "values.txt"
    text.write_text("0.25\n\n 1 \n0\n")
    np.testing.assert_array_equal(read(text), [0.25, 1, 0])
    lab = tmp_path / "value.npz"
    np.savez(lab, values=np.array([0.5, 0.75], np.float32), rewards=np.zeros((2, 3)))
    np.testing.assert_array_equal(read(lab), [0.5, 0.75])
    values = v.parse(f"file:{lab}")
    assert values.title == "Bernoulli, 2 values of value.npz"
    assert (values.low, values.high, values.mean) == (0.5, 0.75, 0.625)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no values"),
        ("0.5\nhalf\n", "line 2 of .* is 'half', not a number; give one value a line"),
        ("0.5\nnan\n", "value 2 of .* is nan; repair it or drop it"),
    ],
)
def test_a_text_that_holds_something_else_is_refused(tmp_path, text, message):
    path = tmp_path / "values.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read(path)


def test_bytes_that_are_no_values_are_refused(tmp_path):
    binary = tmp_path / "values.bin"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is no text"):
        read(binary)
    npz = tmp_path / "values.npz"
    npz.write_bytes(b"PK nonsense")
    with pytest.raises(ValueError, match="is no npz that can be read"):
        read(npz)
    np.savez(npz, rewards=np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"called 'values', .* it holds rewards \(2, 3\)"):
        read(npz)
    np.savez(npz, values=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="no row of numbers called 'values'"):
        read(npz)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none.npz")
