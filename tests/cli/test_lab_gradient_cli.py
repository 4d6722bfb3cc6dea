"""`openrlhf-js lab gradient`, `sweep` and `heterogeneity` on a model with random weights."""

import json

import numpy as np
import pytest

from openrlhf_js.cli import lab, lab_gradient, lab_heterogeneity
from openrlhf_js.lab.results import load

SMALL = ("--batches", "3", "--batch_prompts", "4")


@pytest.fixture(scope="module")
def given(letters):
    """A folder with model, prompts and reward file."""
    for name, first in (("easy", "ab"), ("hard", "cd")):
        rows = [
            {"input": a + b, "label": b if name == "easy" else b * 2, "datasource": name}
            for a in first
            for b in "abcd"
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (letters / f"{name}.jsonl").write_text(text)
    both = (letters / "easy.jsonl").read_text() + (letters / "hard.jsonl").read_text()
    (letters / "prompts.jsonl").write_text(both)
    return letters


def flags(given, out, *more, prompts="prompts.jsonl"):
    files = ",".join(str(given / name) for name in prompts.split(","))
    return [
        *("--model", str(given / "model"), "--prompts", files),
        *("--reward", str(given / "reward.py"), "--out", str(out)),
        *("--responses", "24", "--max_new_tokens", "5", *SMALL, *more),
    ]


def test_gradient_then_sweep_of_the_same_samples(given, tmp_path, capsys):
    assert lab.main(["gradient", *flags(given, tmp_path, "--m", "3,2")]) == 0
    out = capsys.readouterr().out
    summary, arrays = load(tmp_path / "gradient.json")
    assert out.rstrip().endswith(summary["finding"])
    assert summary["finding"].startswith("js lowers the squared distance of rloo's gradient by")
    names = ["rloo", "js", "js_plus", "bloo", "reinforce++", "dr_grpo", "remax"]
    assert [row["estimator"] for row in summary["rows"]] == names * 2
    assert arrays["estimators"].tolist() == names and arrays["m"].tolist() == [2, 3]
    assert arrays["distances"].shape == (7, 2, 3)
    assert (tmp_path / "gradient.png").read_bytes().startswith(b"\x89PNG")
    first = summary["rows"][0]
    assert first["distance"] == pytest.approx(arrays["distances"][0, 0].mean())
    assert summary["settings"]["m"] == [2, 3]
    assert summary["samples"]["max_new_tokens"] == 5

    again = ("--out", str(tmp_path), *SMALL, "--m", "2,3")
    assert lab.main(["sweep", *again]) == 0
    swept, curves = load(tmp_path / "sweep.json")
    js = next(row for row in swept["rows"] if (row["m"], row["point"]) == (2, "js"))
    of_gradient = next(row for row in summary["rows"] if row["estimator"] == "js")
    assert js["reduction_percent"] == pytest.approx(of_gradient["reduction_percent"])
    assert curves["reduction_percent"][:, 0].tolist() == [0, 0]
    assert len(list((tmp_path / "gradients").iterdir())) == 1  # what gradient left was used
    assert (tmp_path / "sweep.png").exists()
    assert swept["samples"] == summary["samples"]


def test_a_projection_says_how_exact_it_is(given, tmp_path, capsys):
    more = ("--m", "2", "--projection", "512", "--baselines", "js")
    assert lab.main(["gradient", *flags(given, tmp_path, *more)]) == 0
    summary, _ = load(tmp_path / "gradient.json")
    assert 0 < summary["projection"]["root_mean_square"] < 0.3
    assert "512 numbers" in capsys.readouterr().out


def test_groups_of_one_file_and_several_files(given, tmp_path):
    assert lab.main(["heterogeneity", *flags(given, tmp_path / "one", "--m", "3")]) == 0
    files = "easy.jsonl,hard.jsonl"
    out = tmp_path / "two"
    assert lab.main(["heterogeneity", *flags(given, out, "--m", "3", prompts=files)]) == 0
    for folder in ("one", "two"):
        summary, arrays = load(tmp_path / folder / "heterogeneity.json")
        assert arrays["sets"].tolist() == ["easy", "hard", "mix"]
        values = {row["prompts"]: row["value"] for row in summary["rows"]}
        assert values["easy"] > values["mix"] > values["hard"]
        assert (tmp_path / folder / "heterogeneity.png").exists()
    assert (out / "easy" / "samples").is_dir() and (out / "hard" / "samples").is_dir()


def test_a_model_that_has_changed_is_refused(given, tmp_path, capsys):
    import shutil

    shutil.copytree(given / "model", tmp_path / "model")
    flags_of = flags(given, tmp_path / "out", "--m", "2", "--baselines", "js")
    flags_of[1] = str(tmp_path / "model")
    assert lab.main(["gradient", *flags_of]) == 0
    config = tmp_path / "model" / "config.json"
    config.write_text(config.read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))
    again = ("--out", str(tmp_path / "out"), *SMALL, "--m", "2")
    assert lab.main(["gradient", *again]) == 2
    assert "has changed since it was sampled" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--top_p", "0.9"), "Sample with --top_p 1"),
        (("--m", "30"), "m = 30 needs 34 responses a prompt or more"),
        (("--batch_prompts", "99"), "batch of 99 prompts cannot be drawn from 16"),
        (("--baselines", "grpo"), "take dr_grpo"),
        (("--projection", "2000000000"), "below 2^30; got 2000000000"),
    ],
)
def test_what_cannot_be_measured(given, tmp_path, capsys, more, message):
    assert lab.main(["gradient", *flags(given, tmp_path, *more)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--m", "two"), "--m 'two' are no whole numbers such as 2,4,8"),
        (("--m", "1,2"), "--m is 1; give 2 or more"),
        (("--batches", "1"), "--batches is 1; give 2 or more"),
        (("--batch_prompts", "1"), "--batch_prompts is 1; give 2 or more"),
        (("--max_tokens", "0"), "--max_tokens is 0; give 1 or more"),
        (("--projection", "1"), "--projection is 1; give 2 or more"),
        (("--baselines", "rloo"), "needs one to compare with rloo"),
    ],
)
def test_flags_that_are_wrong(tmp_path, capsys, more, message):
    with pytest.raises(SystemExit) as left:
        lab_gradient.main(["--out", str(tmp_path), *more])
    assert left.value.code == 2 and message in capsys.readouterr().err


def test_heterogeneity_takes_one_m_and_files_of_different_names(tmp_path, capsys):
    for more, message in (
        (("--m", "2,4"), "--m takes one number here"),
        (
            ("--prompts", "a/x.jsonl,b/x.jsonl", "--model", "m", "--reward", "r.py"),
            "two files have the same name",
        ),
    ):
        with pytest.raises(SystemExit):
            lab_heterogeneity.main(["--out", str(tmp_path), *more])
        assert message in capsys.readouterr().err


def test_one_group_alone_is_no_mix(given, tmp_path, capsys):
    assert lab.main(["heterogeneity", *flags(given, tmp_path, prompts="easy.jsonl")]) == 2
    assert "two or more groups" in capsys.readouterr().err


def test_stopped_work_goes_on(given, tmp_path, capsys, monkeypatch):
    from openrlhf_js.lab import gradient

    add, calls = gradient.Record.add, []

    def stopping(self, name, pair):
        calls.append(name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        add(self, name, pair)

    words = flags(given, tmp_path, "--m", "2", "--baselines", "js")
    monkeypatch.setattr(gradient.Record, "add", stopping)
    assert lab.main(["gradient", *words]) == 130
    assert "the same command goes on from here" in capsys.readouterr().err
    assert lab.main(["gradient", *words]) == 0
    assert len(calls) == 3 + 4 and len(set(calls)) == 6  # the third one, and what was left
    _, arrays = load(tmp_path / "gradient.json")
    assert np.isfinite(arrays["distances"]).all()
