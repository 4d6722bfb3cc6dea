import argparse
import sys

import pytest


@pytest.fixture(scope="module")
def report():
    import lab_results_report

    return lab_results_report


@pytest.fixture
def found(report):
    def row(m, name, key, prefix, value):
        return {
            **{"m": m, "responses": m, key: name, "shrinkage": 0.25},
            **{"shrinkage_low": 0.125, "shrinkage_high": 0.5},
            **{"reduction_percent": value, f"{prefix}low": value - 1, f"{prefix}high": None},
        }

    def rows(names, key="estimator", prefix="reduction_"):
        return [row(m, name, key, prefix, m * 10) for m in (2, 4) for name in names]

    rules = (*report.RULES, report.ORACLE)
    value = {"prompts": 3, "responses": 16, "mean_value": 0.5, "sd_of_values": 0.25}
    return {
        "value": {"rows": [value]},
        "mse": {"rows": rows(rules, prefix="")},
        "gradient": {
            "rows": rows(report.RULES),
            "precise": {"responses": 9000, "relative_error": 0.02},
            "batches": {"batches": 20, "prompts": 2},
        },
        "sweep": {"rows": rows(("minimum",), "point")},
        "simulate": {
            "rows": rows(rules),
            "title": "Beta(1/2, 1/2)",
            "prompts_count": 64,
        },
    }


def test_the_tables_hold_every_reduction_with_its_interval(report, found):
    text = report.markdown(found, {"warm start": 30.0, "value": 90.0})
    assert "It took 2.0 minutes (warm start 30 s, value 90 s)" in text
    assert "| 2 | `js` | 20.0 (19.0 to unknown) | 20.0 (19.0 to unknown) | 0.25 |" in text
    least = "0.25 (0.12 to 0.50) | 40.0 (39.0 to unknown)"
    assert f"| 4 | 0.25 | 40.0 (39.0 to unknown) | {least} |" in text
    assert "9,000 other responses whose own squared error is 2.0% of" in text
    assert text.count("](images/results_") == len(report.PICTURES)


def test_only_our_own_part_of_the_file_is_replaced(report):
    first = report.replace_part("", "one")
    assert first.startswith("# Results\n\n<!-- printed by") and "\none\n" in first
    others = f"before\n{first}after\n"
    second = report.replace_part(others, "two")
    assert second == others.replace("\none\n", "\ntwo\n")
    assert report.replace_part("# Other\n", "one").startswith("# Other\n\n<!-- printed by")
    with pytest.raises(ValueError, match="needs both of"):
        report.replace_part(report.BEGIN, "one")


def test_the_programs_take_the_words_that_they_are_given(tmp_path):
    import lab_results

    options = argparse.Namespace(seed=3, prompts=8, responses=16, batches=2)
    for name, main in lab_results.PROGRAMS.items():
        parse = sys.modules[main.__module__].parse
        args = parse(lab_results.words(name, tmp_path, options))
        assert (args.out, args.seed) == (tmp_path, 3)
        assert getattr(args, "model", None) == (
            str(tmp_path / "model") if name == "value" else None
        )


def test_a_program_that_fails_ends_the_experiment(tmp_path, monkeypatch):
    import lab_results

    options = argparse.Namespace(seed=0, prompts=8, responses=16, batches=2)
    monkeypatch.setitem(lab_results.PROGRAMS, "mse", lambda argv: print("table") or 2)
    with pytest.raises(SystemExit) as ended:
        lab_results.run("mse", tmp_path, options)
    assert ended.value.code == 2
    assert (tmp_path / "lab.log").read_text() == "table\n"
