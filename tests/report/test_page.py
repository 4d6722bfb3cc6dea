"""The page about runs: complete, alone, right in its numbers, and safe from names."""

from __future__ import annotations

import base64
import html.parser
import json
import math
import re

import pytest

from openrlhf_js.report import page, scalars, style
from openrlhf_js.report.final_figures import figures
from openrlhf_js.report.page_parts import warnings
from openrlhf_js.report.pass_panel import pass_at_1
from openrlhf_js.report.run_files import CONFIG
from openrlhf_js.report.runs import find_conditions

VARIANCE = "train/js/gradient_variance"
PASS = "eval/eval_maze_pass1"
VOID = {"meta", "img", "br"}
HOSTILE = "<script>alert(1)</script>&\"'\x07"


class Parsed(html.parser.HTMLParser):
    """Tags that are opened and closed in order, and everything that a page would load."""

    def __init__(self, text):
        super().__init__()
        self.open, self.loads, self.tags, self.cells = [], [], [], [[]]
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset", "data")]
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1][-1] += data

    def row(self, name):
        """The first row of any table that begins with this cell."""
        return next(cells[1:] for cells in self.cells if cells and cells[0] == name)


def everything(steps=6, reward=0.5):
    """What a run of a task with all metrics leaves."""
    lines = range(1, steps + 1)
    tags = {
        scalars.REWARD: [reward + 0.01 * i for i in lines],
        scalars.SHRINKAGE: [0.4] * steps,
        scalars.SHRINKAGE_MIN: [0.3] * steps,
        scalars.SHRINKAGE_MAX: [0.5] * steps,
        VARIANCE: [2.0, 4.0] * (steps // 2),
        PASS: {3: 0.25, 6: 0.75},
        "train/status/correct": [0.5] * steps,
        "train/status/timeout": [0.0] * steps,
        "train/accuracy": [0.5] * steps,
    }
    flat = ["train/js/within_variance", "train/js/between_variance", "train/js/all_equal_groups"]
    flat += ["train/js/masked_responses", "train/js/gradient_norm_squared", "train/js/gradient_snr"]
    flat += ["train/js/gradient_noise_scale", scalars.GRADIENT_NORM, "train/kl", "train/ppo_kl"]
    flat += ["train/rollout/reward_std", "train/rollout/response_length_mean"]
    flat += ["train/rollout/truncated_rate", "train/entropy_loss", "train/grading_seconds"]
    flat += [f"train/timing/{phase}" for phase in ("generation", "ppo_train", "step_total")]
    return tags | {tag: [0.25] * steps for tag in flat}


def written(tmp_path, *words, **more):
    found = page.write(find_conditions(list(map(str, words))), (), tmp_path / "out", **more)
    return found, Parsed(found.page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def complete(tmp_path_factory, events):
    """A report of two runs with every metric, and with names that would break a careless page."""
    folder = tmp_path_factory.mktemp("complete")
    events(folder / "a", everything(reward=0.6) | {f"eval/eval_{HOSTILE}$x$_pass1": [0.5]})
    (folder / "a" / CONFIG).write_text(
        json.dumps(
            {
                "flags": {HOSTILE: HOSTILE},
                "changed": [],
                "versions": {HOSTILE: "1"},
                "outcome": HOSTILE,
            }
        )
    )
    events(folder / "b", everything() | {VARIANCE: [4.0, 8.0] * 3})
    with pytest.MonkeyPatch.context() as patch:  # drawing all twice takes long; see below for PNGs
        patch.setattr(style, "save_png", lambda drawn, path: path.write_bytes(b"drawn") and path)
        return written(folder, f"rloo={folder / 'b'}", f"{HOSTILE}={folder / 'a'}")


def test_the_page_needs_no_other_file(complete):
    found, parsed = complete
    assert parsed.open == []
    assert parsed.loads
    assert all(each.startswith("data:image/svg+xml;base64,") for each in parsed.loads)
    for each in parsed.loads:
        svg = base64.b64decode(each.split(",")[1]).decode()
        assert not re.search(r'(href|src)="(?!#)', svg)
        assert "url(http" not in svg and "@import" not in svg
    text = found.page.read_text(encoding="utf-8")
    assert "url(" not in text and "@import" not in text
    assert not {"script", "link", "iframe", "object"} & set(parsed.tags)


def test_names_from_files_cannot_break_the_page(complete):
    found, parsed = complete
    assert "script" not in parsed.tags
    text = found.page.read_text(encoding="utf-8")
    assert "\x07" not in text
    assert "&lt;script&gt;" in text
    assert len({path.parent for path in found.pictures}) == 1


def test_every_panel_is_drawn_and_every_picture_saved(complete):
    found, parsed = complete
    assert found.left_out == []
    titles = {path.stem for path in found.pictures}
    assert {
        *("training_reward", "held_out_pass_1_maze", "shrinkage_lambda", "gradient_variance"),
        *("gradient_variance_over_that_of_rloo", "kl_to_the_reference_model", "masked_responses"),
        *("graded_correct", "time_of_a_training_step", "degenerate_groups", "response_length"),
        *("entropy_of_the_policy", "v_noise_of_a_prompt_s_mean_reward", "s_spread_between_prompts"),
    } <= titles
    assert "graded_timeout" not in titles  # it never came up
    assert all(path.read_bytes() == b"drawn" for path in found.pictures)
    assert len(parsed.loads) == len(found.pictures) + 2  # and the runs' lines in the first table


def test_the_table_holds_what_was_logged(complete):
    _, parsed = complete
    assert parsed.row("reward") == ["0.560", "0.660"]  # the last of six steps
    assert parsed.row("pass@1, maze") == ["75.0%", "75.0%"]
    assert parsed.row("λ") == ["0.40", "0.40"]
    assert parsed.row("gradient variance") == ["6", "3"]
    assert parsed.row("variance over that of rloo") == ["-", "0.500 [0.500, 0.500]"]
    assert parsed.row("KL") == ["0.25", "0.25"]


def test_seeds_have_intervals(log):
    seeds = [log(f"s{i}", {scalars.REWARD: [value], PASS: {1: value}}) for i, value in
             enumerate([0.4, 0.5, 0.6])]  # fmt: skip
    conditions = find_conditions([f"js={','.join(map(str, seeds))}"])
    # t of two degrees of freedom is 4.3027, the standard error 0.1 / sqrt(3)
    half = 4.3027 * 0.1 / math.sqrt(3)
    ends = f"[{0.5 - half:.3f}, {0.5 + half:.3f}]"
    assert ("reward", f"0.500 {ends}") in figures(conditions)[1]
    estimate = pass_at_1(conditions[0], PASS, alone=True)[1]
    assert tuple(estimate) == pytest.approx((0.5, 0.5 - half, 0.5 + half), abs=1e-4)


def test_pass_at_1_of_one_seed_has_intervals_over_prompts_where_files_tell(log, tmp_path):
    log("quick/tensorboard/js", {PASS: {1: 0.5, 2: 0.6}})
    rows = [{"prompt": str(i), "scores": [i % 2]} for i in range(10)]
    (tmp_path / "quick" / "evaluation_before.json").write_text(json.dumps(rows))
    (condition,) = find_conditions([str(tmp_path / "quick")])
    found = pass_at_1(condition, PASS, alone=True)
    assert list(found) == [0, 1, 2]
    # ten prompts, half right: t of nine degrees of freedom is 2.2622, sd sqrt(10/9 / 4)
    half = 2.2622 * math.sqrt(10 / 9 / 4) / math.sqrt(10)
    assert tuple(found[0]) == pytest.approx((0.5, 0.5 - half, 0.5 + half), abs=1e-4)
    assert not math.isfinite(found[1].low)
    assert 0 not in pass_at_1(condition, PASS, alone=False)


def test_a_run_that_goes_on_is_drawn_as_far_as_it_has_come(log, tmp_path, now):
    folder = log("js", {scalars.REWARD: [0.5] * 5 + [0.56]}, written=now)
    with next(folder.iterdir()).open("ab") as file:
        file.write(b"half a rec")
    found, parsed = written(tmp_path, folder)
    assert "perhaps running, last step 6, last written" in found.page.read_text(encoding="utf-8")
    assert parsed.row("reward") == ["0.560"]
    assert warnings(find_conditions([str(folder)])) == []


def test_a_damaged_file_of_a_finished_run_is_told(log):
    folder = log("js", {scalars.REWARD: [0.1]})
    path = next(folder.iterdir())
    path.write_bytes(path.read_bytes() + b"half a rec")
    (warning,) = warnings(find_conditions([str(folder)]))
    assert warning.startswith(f"{path} ends in 10 bytes that cannot be read")


def test_a_file_that_vanishes_is_told(log):
    folder = log("js", {scalars.REWARD: [0.1, 0.2]})
    conditions = find_conditions([str(folder)])
    (path,) = folder.iterdir()
    path.unlink()
    conditions[0].runs[0].logged.reload()
    (warning,) = warnings(conditions)
    assert warning == (
        f"{path} was removed while it was read; this report has what was read of it before."
    )


def test_values_that_are_not_finite_are_told_and_left_out(log, tmp_path):
    folder = log("js", {scalars.REWARD: [0.5, math.nan, 0.7], "b": [1.0]})
    (warning,) = warnings(find_conditions([str(folder)]))
    assert warning == f"{folder} has values that are not finite, left out, of {scalars.REWARD}."
    assert written(tmp_path, folder)[1].row("reward") == ["0.700"]


def test_a_kl_that_is_not_measured_is_no_figure(log):
    columns, rows = figures(find_conditions([str(log("js", {"train/kl": [0.0, 0.0]}))]))
    assert columns == ("", "js")
    assert rows == []


def test_what_is_missing_is_left_out_and_said(log, tmp_path):
    some = log("js", {VARIANCE: [2.0, 4.0]})
    less = log("rloo", {scalars.REWARD: [0.1, 0.2], "train/kl": [0.0, 0.0]})
    found, parsed = written(tmp_path, less)
    assert "Gradient variance (--js.gradient_variance)" in found.left_out
    assert [path.stem for path in found.pictures] == ["training_reward"]
    text = found.page.read_text(encoding="utf-8")
    assert "Left out, since not logged, or always 0: Held-out pass@1;" in text
    found, parsed = written(tmp_path, less, some)
    assert parsed.row("gradient variance") == ["-", "3"]
    assert "not logged by rloo" in found.page.read_text(encoding="utf-8")


def test_a_log_of_something_else_makes_a_page_without_panels(log, tmp_path):
    found, parsed = written(tmp_path, log("sft", {"train/gpt_loss": [1.0]}))
    assert found.pictures == []
    assert "train/gpt_loss" in found.page.read_text(encoding="utf-8")
    assert parsed.open == []


def test_a_second_report_replaces_the_first(log, tmp_path):
    folder = log("js", {scalars.REWARD: [0.1]})
    written(tmp_path, folder)
    log("js", {scalars.REWARD: {2: 0.9}})
    _, parsed = written(tmp_path, folder)
    assert parsed.row("reward") == ["0.900"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "report.html",
        "training_reward.png",
    ]
    assert (tmp_path / "out" / "training_reward.png").read_bytes().startswith(b"\x89PNG")
