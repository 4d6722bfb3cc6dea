import pytest

from openrlhf_js.cli import lab
from openrlhf_js.common.settings import parse
from openrlhf_js.lab.results import Estimate, rows_of


@pytest.fixture(scope="module")
def experiment():
    import lab_results

    return lab_results


def result(names, series="estimator"):
    def quantities(m):
        saved = Estimate(m * 10, m * 10 - 1, float("inf"))
        return {"reduction_percent": saved, "shrinkage": Estimate(0.25, 0.125, 0.5)}

    rows = [
        row
        for m in (2, 4)
        for name in names
        for row in rows_of(quantities(m), m=m, **{series: name})
    ]
    batches = {"batches": 20, "batch_prompts": 64, "title": "Beta(1/2, 1/2)"}
    precise = {"responses": 9000, "relative_error": 0.02}
    return {"rows": rows, "settings": {"m": [2, 4]}, "precise": precise, **batches}


def test_the_tables_hold_every_reduction_with_its_interval(experiment):
    rules = ("js", "js_plus", "js_fixed")
    value = {"prompts": 3, "mean_value": Estimate(0.5, 0.4, 0.6), "sd_of_values": 0.25}
    found = {
        "value": {"rows": rows_of(value, group="all"), "responses": 16},
        **{name: result(rules) for name in ("mse", "gradient", "simulate")},
        "sweep": result(("least distance",), "point"),
    }
    text = experiment.markdown(found, {"warm start": 30.0, "value": 90.0})
    assert "It took 2.0 minutes (warm start 30 s, value 90 s)" in text
    assert "samples 3 prompts x 16 responses" in text
    assert "| 2 | `js` | 20.0 (19.0 to unknown) | 20.0 (19.0 to unknown) | 0.25 (0.12" in text
    least = "0.25 (0.12 to 0.50) | 40.0 (39.0 to unknown)"
    assert f"| 40.0 (39.0 to unknown) | {least} |" in text
    assert "9,000 other responses whose own squared error is 2.0% of" in text
    assert text.count("](images/results_") == len(experiment.PICTURES)


def test_the_programs_take_the_words_that_they_are_given(experiment, tmp_path):
    settings = experiment.ExperimentSettings(seed=3, prompts=8, responses=16, out=tmp_path)
    for name in experiment.PICTURES:
        given, *words = settings.words(name)
        found = parse(lab.PROGRAMS[given], given, words)
        assert (found.out, found.seed) == (tmp_path, 3)
        assert bool(getattr(found, "model", None)) == (name == "value")
