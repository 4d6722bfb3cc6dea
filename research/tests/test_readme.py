"""The figures in the README's sentences are those of the kept records."""

import re
import sys
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path

import pytest
from scipy.stats import t as student
from statsmodels.stats.multitest import multipletests

ROOT = Path(__file__).parents[2]
README_LINES = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
README = " ".join(README_LINES)


def printed(script, *arguments):
    """The lines that a script prints."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as shown:
        patch.setattr(sys, "argv", [f"{script}.py", *map(str, arguments)])
        import_module(script).main()
    return shown.getvalue().splitlines()


def table(lines, heading, *, after=""):
    """The rows of the first table with this heading, as cells by column."""
    first = next(place for place, line in enumerate(lines) if line.startswith(after))
    top = next(place for place in range(first, len(lines)) if lines[place].startswith(heading))
    rows = []
    for line in lines[top + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(dict(zip(cells(lines[top]), cells(line), strict=True)))
    return rows


def cells(row):
    return [re.sub("[`*]", "", cell).strip() for cell in row.strip("|").split("|")]


def only(rows, **values):
    """The only row with these values."""
    (row,) = [row for row in rows if all(row[name] == value for name, value in values.items())]
    return row


def plain(number):
    """A number without its sign of plus."""
    return number.lstrip("+")


def over(row, name="js_grad"):
    """A difference and its interval, as a sentence has them."""
    low, high = (plain(row[f"{name} {end}"]) for end in ("low", "high"))
    return plain(row[name]), f"{low} to {high}"


@pytest.fixture(scope="module")
def of_budgets(tmp_path_factory):
    return printed("budgets", tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def of_results():
    return printed("results")


def test_a_pretrained_model(of_results):
    rows = table(of_results, "| prompts", after="smollm2_js_grad")
    two, four = (only(rows, responses=responses) for responses in ("2", "4"))
    assert f"ends {over(two)[0]} points ({over(two)[1]}) above `rloo` with two" in README
    assert f"where no baseline gains {plain(two['no_baseline'])}, " in README
    assert f"and {over(four)[0]} ({over(four)[1]}) with four" in README
    words = table(printed("words"), "| `js_grad` over `rloo`")
    reward = only(words, **{"js_grad over rloo": "training reward"})
    pass1 = only(words, **{"js_grad over rloo": "pass@1"})
    low_to_high = "by {points} points ({low} to {high})".format(**reward)
    assert f"the higher training reward, {low_to_high}" in README
    assert "nothing is decided: +{points} ({low} to {high})".format(**pass1) in README


def test_where_it_loses(of_results):
    rows = table(of_results, "| prompts", after="js_grad_grid")
    mix = only(rows, responses="2", prompts="mix")
    drawn = only(rows, responses="2", prompts="as drawn")
    assert f"({over(mix)[0]}, {over(mix)[1]}). As drawn it gains {over(drawn)[0]}" in README


def test_the_means_over_tasks(of_budgets):
    rows = table(of_budgets, "| estimator | tasks |")
    ours, without = (only(rows, estimator=name) for name in ("js_grad", "no_baseline"))
    assert ours["tasks"] == without["tasks"] == "5"
    value, half = ours["over rloo"].split(" ± ")
    assert f"is {value} ± {half}, with each task as one draw" in README
    none = without["over rloo"].split(" ± ")[0]
    assert f"({none} on average, `js_grad` {value})" in README


@pytest.mark.parametrize(
    ("named", "study", "task"),
    [
        ("a walk on a grid", "chains", "walk_60"),
        ("sorting by swaps", "chains", "swaps_60"),
        ("long multiplication", "chains", "product_60"),
        ("a stack machine, held out", "chains_held_out", "machine_60"),
        ("a cellular automaton, held out", "chains_held_out", "rows_60"),
        ("the walk in a mix", "chains_mix", "walk_60"),
        ("multiplication in a mix", "chains_mix", "product_60"),
        ("the walk, misled", "chains_misled", "misled_walk_60"),
        ("multiplication, misled", "chains_misled", "misled_product_60"),
        ("the walk, four steps with each batch", "chains_passes", "walk_60"),
        ("multiplication, four steps with each batch", "chains_passes", "product_60"),
        ("multiplication in a mix, four steps", "chains_passes_mix", "product_60"),
    ],
)
def test_each_row_of_the_first_table(of_budgets, named, study, task):
    (row,) = [cells(line) for line in README_LINES if line.startswith(f"| {named} |")]
    rows = table(of_budgets, "| task | estimator |", after=f"{study}: ")
    finals = {final["estimator"]: final for final in rows if final["task"] == task}
    names = ("rloo", "grpo", "no_baseline", "js_grad")
    for cell, name in zip(row[1:5], names, strict=True):
        split = finals[name]["prompts x responses"].replace(" ", "")
        assert cell == f"{finals[name]['pass@1']} ({split})"
    ours = finals["js_grad"]
    value, half = map(float, ours["over rloo"].split(" ± "))
    shown, low, high = map(float, re.findall(r"[-+]?[\d.]+", row[5]))
    assert shown == value and (high - low) / 2 == pytest.approx(half, abs=0.1)
    assert row[6] == ours["share of samples"]


def test_what_the_first_table_shows():
    rows = [cells(line) for line in README_LINES if re.search(r"\| 0\.\d\d \|$", line)]
    assert len(rows) == 12
    figures = [[float(cell.split(" ")[0]) for cell in row[1:5]] for row in rows]
    within = sum(row[-1] >= max(row) - 1 for row in figures)
    best = sum(row[-1] == max(row) for row in figures)
    assert (best, within) == (7, 7 + 4)
    assert "**In seven of these twelve settings `js_grad` has the highest mean" in README
    assert "and in four more it is within a point of it.**" in README
    intervals = [list(map(float, re.findall(r"[-+]?[\d.]+", row[5]))) for row in rows]
    excluded = sum(low > 0 for _, low, _ in intervals)
    assert excluded == 9 and "Nine intervals over `rloo` exclude 0" in README
    pairs = 5
    widths = [(high - low) / 2 / student.ppf(0.975, pairs - 1) for _, low, high in intervals]
    differences = [difference for difference, _, _ in intervals]
    ratios = [difference / width for difference, width in zip(differences, widths, strict=True)]
    remain, *_ = multipletests(
        [2 * student.sf(ratio, pairs - 1) for ratio in ratios], method="holm"
    )
    assert sum(remain) == 8 and "eight remain with Holm's correction" in README


def test_what_greedy_responses_gain(of_budgets):
    finals = table(of_budgets, "| task | estimator |", after="chains: ")
    greedy = [float(row["greedy"]) for row in finals if row["greedy"]]
    assert (int(min(greedy)), max(greedy)) == (95, 99.5)
    assert "with every estimator 95 to 99.5 % of greedy responses are right at the end" in README
    lines = printed("greedy")
    early = table(lines, "| task |")
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8").splitlines()
    assert set(page) >= {line for line in lines[: lines.index("", 3)] if line.startswith("|")}
    rloo = {f"{float(row['greedy']):.0f}" for row in early if row["estimator"] == "rloo"}
    ours = {f"{float(row['greedy']):.0f}" for row in early if row["estimator"] == "js_grad"}
    assert rloo == {"98"} and ours == {"99", "100"}
    assert "right on 98 % after a third of the training with `rloo`, on 99 to 100 % with" in README


def test_the_mix_with_a_better_choice_for_rloo(of_budgets):
    rows = table(of_budgets, "| task | estimator", after="Not chosen")
    better = only(rows, **{"prompts x responses": "32 x 4"})
    over_it = better["js_grad over it"]
    assert (
        f"it reaches {better['pass@1']}, and the difference is {plain(over_it.split(' ')[0])}"
        in README
    )


def test_what_the_table_of_settings_says(of_budgets, tmp_path):
    """Of the numbers of responses, of the parts and of gradients."""
    eight = differences_by_split(of_budgets, "chains", "16 x 8")
    sixteen = differences_by_split(of_budgets, "chains", "8 x 16")
    held_out = differences_by_split(of_budgets, "chains_held_out", "16 x 8")
    assert f"with eight, {eight[0]} to {eight[-1]} points over RLOO with eight on three" in README
    assert f"{held_out[0]} and {held_out[-1]} on the held-out two" in README
    assert f"with sixteen {sixteen[0]} to {sixteen[-1]} on three" in README
    again = ours_over_rloo(of_budgets, "chains_again")
    assert f"[{again['product_60']} points on one task and {again['walk_60']} on the" in README
    passes = ours_over_rloo(of_budgets, "chains_passes")
    assert passes["walk_60"].startswith("10.7 ±") and passes["product_60"].startswith("10.7 ±")
    assert "with four, [10.7 points](" in README
    eight = differences_by_split(of_budgets, "chains_passes", "16 x 8", first="64 x 2")
    assert f"{eight[0]} and {eight[1]} with eight" in README
    in_a_mix = ours_over_rloo(of_budgets, "chains_passes_mix")["product_60"].split(" ")[0]
    assert f"on one task, [{in_a_mix}](docs/results.md#four-steps-in-a-mix)" in README
    rows = table(of_budgets, "| task | estimator |", after="chains_passes_mix: ")
    none = only(rows, estimator="no_baseline")["over js_grad"].lstrip("+")
    assert f"on the one that was tried, {none} above `js_grad`" in README
    conditions = table(printed("conditions", tmp_path), "| task | condition |")
    two = [row for row in conditions if row["prompts x responses"] == "64 x 2"]
    default, constant = (
        plain(only(two, condition=name, estimator="js_grad")["over rloo"])
        for name in ("none", "constant loss")
    )
    assert f"it gained [{default}](" in README and f"({constant} under the constant" in README
    parts = only(table(printed("parts"), "| task |"), task="product_60, natural, 64 x 2")
    assert f"and [{parts['rloo'].lstrip('-')}](" in README
    chains = printed("chain_gradients", "--images", tmp_path)
    row = {"task, prompts": "product_150, natural", "n x m": "16 x 2"}
    near, direction = (
        only(table(chains, "| task, prompts | n x m", after=kind), **row)["js_grad"]
        for kind in ("reduction_percent", "reduction_normalized_percent")
    )
    assert f"was [{near} % below RLOO's](" in README
    assert f"({direction} % with each gradient divided by its norm)" in README
    stories = table(printed("pictures", tmp_path), "| setting | m |")
    of_two = only(stories, setting="SmolLM2, stories", m="2")["js_grad"]
    assert f"and [{of_two} %](docs/results.md#long-responses) on stories" in README


def ours_over_rloo(lines, study):
    """What js_grad has over RLOO at its own best split and rate, by task."""
    rows = table(lines, "| task | estimator |", after=f"{study}: ")
    return {row["task"]: plain(row["over rloo"]) for row in rows if row["estimator"] == "js_grad"}


def differences_by_split(lines, study, split, first="128 x 1"):
    """What js_grad has over RLOO at a split on the choice seeds, each at its best rate, sorted."""
    values = {}
    after = next(place for place, line in enumerate(lines) if line.startswith(f"{study}: "))
    for row in table(lines[after:], f"| task | estimator | {first} |"):
        values[row["task"], row["estimator"]] = float(row[split].split(" at ")[0] or "nan")
    tasks = dict.fromkeys(task for task, _ in values)
    found = sorted(values[task, "js_grad"] - values[task, "rloo"] for task in tasks)
    return [f"{value:.1f}" for value in found]
