"""The page about runs: complete, in one file, and safe from names in logs."""

import html.parser
import json
import math
import re
import time

import pytest
from charts import panels_of
from chromium import check_shown

from openrlhf_js.report import pages, panels, runs, style
from openrlhf_js.report.runs import CONFIG, find_conditions

VARIANCE = "train/js/gradient_variance"
SHARED = {"actor.model_name_or_path": "Qwen/Qwen3-4B", "data.prompt_dataset": "/my/data/math.jsonl"}
HOSTILE = "<script>alert(1)</script>&\"'\x07"


class Parsed(html.parser.HTMLParser):
    """The tags of a page, what it would load, the cells of its tables, its figures."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.loads, self.cells, self.figures = [], [], [], []
        self.in_cell = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset", "data")]
        self.figures += [json.loads(value) for name, value in attrs if name == "data-figure"]
        self.in_cell = tag in ("td", "th")
        if tag == "tr":
            self.cells.append([])
        elif self.in_cell:
            self.cells[-1].append("")

    def handle_endtag(self, tag):
        self.in_cell = False

    def handle_data(self, data):
        if self.in_cell:
            self.cells[-1][-1] += data

    def row(self, name):
        """The first row of any table that begins with this cell."""
        return next(cells[1:] for cells in self.cells if cells and cells[0] == name)


def lines_of(figure):
    (panel,) = panels_of(figure)
    return panel.lines


def everything(reward=0.5):
    """Six steps of every scalar that a report knows."""
    curves = panels.CURVES + panels.TIMINGS
    flat = {re.sub(r"\(.*\)", "maze", curve.tag): [0.25] * 6 for curve in curves}
    return flat | {
        runs.BASELINE_MSE_RLOO: [0.5] * 6,
        runs.REWARD: [reward + 0.01 * step for step in range(1, 7)],
        VARIANCE: [2.0, 4.0] * 3,
        "eval/eval_maze_pass1": {3: 0.25, 6: 0.75},
        "train/status/timeout": [0.0] * 6,
    }


def written(tmp_path, *words, **more):
    page = pages.write(find_conditions(list(map(str, words))), (), tmp_path / "out", **more)
    text = page.read_text(encoding="utf-8")
    return text, Parsed(text)


@pytest.fixture(scope="module")
def complete(tmp_path_factory, events):
    """A report of two runs with every metric, and with names that would break a careless page."""
    folder = tmp_path_factory.mktemp("complete")
    events(folder / "a", everything(reward=0.6) | {f"eval/eval_{HOSTILE}$x$_pass1": [0.5]})
    hostile = {"flags": SHARED | {HOSTILE: HOSTILE}, "versions": {HOSTILE: "1"}, "outcome": HOSTILE}
    (folder / "a" / CONFIG).write_text(json.dumps(hostile))
    events(folder / "b", everything() | {VARIANCE: [4.0, 8.0] * 3})
    other = {"flags": SHARED, "versions": {}, "outcome": None}
    (folder / "b" / CONFIG).write_text(json.dumps(other))
    return written(folder, f"rloo={folder / 'b'}", f"{HOSTILE}={folder / 'a'}")


def test_the_page_needs_no_other_file_and_names_cannot_break_it(complete):
    page, parsed = complete
    assert parsed.loads == []
    text, script = page.split("<script type")
    assert "url(" not in text and "@import" not in text and "\x07" not in text
    assert "&lt;script&gt;" in text
    assert script.count("</script>") == 1 and ".chart" in script
    assert not {"link", "iframe", "object"} & set(parsed.tags) and parsed.tags.count("script") == 1


def test_a_browser_shows_curves_first_and_folds_what_few_read(complete, tmp_path):
    page, parsed = complete
    laptop, phone = check_shown(page, tmp_path, charts=len(parsed.figures))
    for text in (laptop, phone):
        assert text.index("Training reward") < text.index("Final figures")
    body, _, folded = page.partition("<details>")
    assert "Seconds, " not in body and str(tmp_path.parent) not in body
    assert "Seconds, " in folded


def test_a_page_is_a_file_where_its_name_says_so(log, tmp_path):
    run = find_conditions([str(log("js", {runs.REWARD: [0.5]}))])
    assert pages.write(run, (), tmp_path / "new" / "js.html") == tmp_path / "new" / "js.html"
    assert (tmp_path / "new" / "js.html").is_file()


def test_every_panel_is_drawn(complete):
    page, parsed = complete
    assert "Not shown" not in page
    assert len(parsed.figures) == len(panels.CURVES + panels.TIMINGS) + 1
    assert "Graded as, maze" in page and "Graded as, timeout" not in page  # it never came up
    reward = lines_of(parsed.figures[0])
    assert {name: line.value.iloc[-1] for name, line in reward.items()} == pytest.approx(
        {"rloo": 0.56, style.printable(HOSTILE): 0.66}
    )


def test_the_page_has_the_figures_and_the_configuration(complete):
    page, parsed = complete
    assert parsed.row("Training reward, last tenth") == ["0.560", "0.660"]
    assert parsed.row("Held-out mean reward, maze, final") == ["0.750", "0.750"]
    assert ["Gradient variance, mean", "6", "3"] in parsed.cells
    assert ["less that of rloo", "", "-3, unpaired"] in parsed.cells
    assert parsed.row("--actor.model_name_or_path") == ["Qwen/Qwen3-4B"]
    assert "Qwen/Qwen3-4B on data/math.jsonl</h1>" in page


def test_a_growing_run_is_drawn_as_far_as_it_has_come(log, tmp_path):
    folder = log("js", {runs.REWARD: [0.5] * 4 + [math.nan, 0.56]}, written=time.time())
    with next(folder.iterdir()).open("ab") as file:
        file.write(b"half a rec")
    page, parsed = written(tmp_path, folder)
    assert "running, last step 6, last written" in page
    assert parsed.row("Training reward, last tenth") == ["0.560"]
    assert f"values that are not finite left out of {runs.REWARD}" in page


def test_what_is_missing_is_left_out_and_listed(log, tmp_path):
    some = log("js", {VARIANCE: [2.0, 4.0]})
    less = log("rloo", {runs.REWARD: [0.1, 0.2], "train/kl": [0.0, 0.0]})
    page, parsed = written(tmp_path, less)
    assert "Not logged, or always 0: Held-out mean reward;" in page
    assert "Gradient variance (--js.gradient_variance)" in page and len(parsed.figures) == 1
    page, parsed = written(tmp_path, less, some)
    assert parsed.row("Gradient variance, mean") == ["-", "3"]
    page, parsed = written(tmp_path, log("sft", {"train/gpt_loss": [1.0]}))  # another program's
    assert parsed.figures == []


def test_results_of_the_lab_are_found_and_shown(tmp_path):
    folder = tmp_path / "lab" / "early"
    folder.mkdir(parents=True)
    of_js = {"estimator": "js", "quantity": "MSE"}
    rows = [
        {"m": 2, **of_js, "value": 0.123456, "low": 0.1, "high": 0.2},
        {"m": 4, **of_js, "value": None, "low": None, "high": None},
    ]
    result = {"lab": "mse", "caption": "3 batches & <b>", "rows": rows}
    (folder / "mse.json").write_text(json.dumps(result))
    (folder / "mse.png").write_bytes(b"\x89PNG")
    text = pages.write([], [tmp_path / "lab"], tmp_path / "out").read_text(encoding="utf-8")
    parsed = Parsed(text)
    assert "Not shown" not in text
    assert "early: mse" in text and "3 batches &amp; &lt;b&gt;" in text
    assert parsed.row("2") == ["js", "0.123 (0.1 to 0.2)"]
    assert parsed.row("4") == ["js", "-"]
    assert parsed.loads == ["data:image/png;base64,iVBORw=="]
    with pytest.raises(ValueError, match="no result"):
        pages.write([], [tmp_path / "nowhere"], tmp_path / "out")
