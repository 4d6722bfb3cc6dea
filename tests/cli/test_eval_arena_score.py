"""`openrlhf-js eval arena score` and `show`: from files to tables, pages and error messages."""

from __future__ import annotations

import csv
import http.client
import json
import re
import sys
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from openrlhf_js.cli import eval_arena_score, eval_arena_show
from openrlhf_js.evaluation.arena import style
from openrlhf_js.evaluation.arena.benches import bench_of
from openrlhf_js.evaluation.arena.files import Folder
from openrlhf_js.evaluation.arena.judge_prompts import prompt_of
from openrlhf_js.evaluation.arena.protocol import add_run, run_of

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation" / "arena"))
from arena_pools import (
    judgment,
    random_pool,
    with_rows,
    write_bench,
    write_judgments,
    write_lines,
)

V2 = "arena-hard-v2.0"
BASELINES = {"hard_prompt": "o3-mini-2025-01-31", "creative_writing": "gemini-2.0-flash-001"}


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with two categories, the second one judged by two judges."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    found = []
    for seed, (category, judge) in enumerate(
        [("hard_prompt", "gpt-4.1"), ("creative_writing", "gpt-4.1"), ("creative_writing", "other")]
    ):
        drawn = random_pool(
            models=2, questions=20, seed=seed, judge=judge, baseline=BASELINES[category]
        )
        found += [each._replace(category=category, uid=category + each.uid) for each in drawn]
    write_bench(tmp_path / "data" / V2, found)
    return tmp_path / "data"


def score(*arguments):
    """The exit status, also where the arguments end the program."""
    try:
        return eval_arena_score.main(["--bench", V2, *map(str, arguments)])
    except SystemExit as error:
        return error.code


def test_json_has_an_object_for_each_model_and_category(data, tmp_path, capsys):
    path = tmp_path / "deep" / "score.json"
    assert score("--judge", "gpt-4.1", "--json", path) == 0
    found = json.loads(path.read_text(encoding="utf-8"))
    assert [(each["category"], each["judge"]) for each in found] == [
        ("hard_prompt", "gpt-4.1")
    ] * 3 + [("creative_writing", "gpt-4.1")] * 3
    for each in found:
        assert each["ci_low"] <= each["score"] <= each["ci_high"]
        assert each["ci"] == "clustered" and each["style_control"] == "none"
        if each["model"] == BASELINES[each["category"]]:
            assert each["score"] == 50
    printed = capsys.readouterr()
    assert "hard_prompt, judged by gpt-4.1" in printed.out and "Intervals: 95 %" in printed.out
    assert f"wrote {path}" in printed.err.replace("\n", "")


def test_the_published_score_on_v0_1(tmp_path):
    judgments = with_rows(
        258,
        1012,
        144,
        500,
        model="gpt-3.5-turbo-0125",
        judge="gpt-4-1106-preview",
        baseline="gpt-4-0314",
        category="arena-hard-v0.1",
    )
    write_judgments(tmp_path / "arena-hard-v0.1", judgments)
    base = ["--data", str(tmp_path), "--bench", "arena-hard-v0.1", "--json", str(tmp_path / "s")]
    for ci in ("official", "clustered"):
        assert eval_arena_score.main([*base, "--ci", ci]) == 0
        best, own = json.loads((tmp_path / "s").read_text(encoding="utf-8"))
        assert (best["model"], best["score"]) == ("gpt-4-0314", 50)
        assert own["model"] == "gpt-3.5-turbo-0125" and round(own["score"], 2) == 23.34
        assert (own["wins"], own["losses"], own["ties"]) == (258, 1012, 144)
        if ci == "official":
            assert own["ci_low"] == pytest.approx(21.7, abs=0.6)
            assert own["ci_high"] == pytest.approx(25.3, abs=0.6)


def test_all_files_say_the_same(data, tmp_path):
    files = {
        name: tmp_path / f"out.{name}" for name in ("json", "csv", "markdown", "html", "figure")
    }
    flags = [part for name, path in files.items() for part in (f"--{name}", path)]
    what = ("--judge", "gpt-4.1", "other", "--style_control", "none", "all", "--rounds", 20)
    assert score(*what, "--compare", "m0", "m1", *flags) == 0
    found = json.loads(files["json"].read_text(encoding="utf-8"))
    # hard by one judge; creative by two, and pooled; with and without control; three models each.
    assert len(found) == 4 * 2 * 3
    pooled = [each for each in found if each["judges"] == ["gpt-4.1", "other"]]
    assert len(pooled) == 6 and {each["judge"] for each in pooled} == {"gpt-4.1 + other"}
    with files["csv"].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == [each["model"] for each in found]
    assert [float(row["score"]) for row in rows] == [each["score"] for each in found]
    text = files["markdown"].read_text(encoding="utf-8")
    assert text.count("## ") == 8 and "paired by question" in text
    assert files["figure"].read_bytes().startswith(b"\x89PNG")
    page = files["html"].read_text(encoding="utf-8")
    assert "judged by pooled judges gpt-4.1 + other" in page and "paired by question" in page


def test_models_whose_judgments_were_fetched_are_not_said_to_follow_the_protocol(data, tmp_path):
    official = prompt_of("system", "template", "")._replace(official=True)
    bench = bench_of(V2)
    run = run_of(bench, "gpt-4.1", "gpt-4.1", 0.0, 16000, {"hard_prompt": official})
    (data / V2 / "model_judgment" / "gpt-4.1" / "m0.jsonl").rename(tmp_path / "kept")
    add_run(Folder(data, V2), run, ["m0", "m1"])  # as before m0 is judged; m1 is there already
    (tmp_path / "kept").rename(data / V2 / "model_judgment" / "gpt-4.1" / "m0.jsonl")
    wanted = ("--judge", "gpt-4.1", "--category", "hard_prompt", "--json", tmp_path / "s.json")
    for models, said in (((), "m1"), (("--models", "m1"), "m1"), (("--models", "m0"), None)):
        assert score(*wanted, *models) == 0
        (followed,) = {
            (each["protocol_followed"], *each["protocol"])
            for each in json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
        }
        assert followed == ((None, f"nothing tells how gpt-4.1 judged {said}") if said else (True,))


def test_many_comparisons_say_once_what_chance_does(data, capsys):
    """Of two boards with three pairs each."""
    pairs = [("--compare", "m0", "m1"), ("--compare", "m1", "m0"), ("--compare", "m0", "m1")]
    assert score("--judge", "gpt-4.1", *pairs[0]) == 0
    assert "by chance" not in capsys.readouterr().out
    assert score("--judge", "gpt-4.1", *sum(pairs, ())) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("These are 6 comparisons") == 1 == said.count("about 0.3 of them")


def test_same_seed_same_file_other_seed_other_intervals(data, tmp_path):
    texts = []
    for seed in (1, 1, 2):
        path = tmp_path / "s.json"
        assert score("--judge", "gpt-4.1", "--ci", "official", "--seed", seed, "--json", path) == 0
        texts.append(path.read_text(encoding="utf-8"))
    assert texts[0] == texts[1] != texts[2]


def test_only_some_models_and_categories(data, tmp_path):
    path = tmp_path / "s.json"
    chosen = ("--models", "m1", "--category", "creative_writing", "--json", path)
    assert score("--judge", "gpt-4.1", *chosen) == 0
    found = json.loads(path.read_text(encoding="utf-8"))
    assert {each["model"] for each in found} == {"m1", BASELINES["creative_writing"]}


def test_comparisons_are_told(data, capsys):
    assert score("--judge", "gpt-4.1", "--compare", "m1", "m0", "--category", "hard_prompt") == 0
    told = capsys.readouterr().out
    assert "hard_prompt, judged by gpt-4.1, m1 against m0, paired by question: " in told
    assert "This test would have seen a difference of" in told


def test_a_model_of_one_category_alone_is_shown_and_compared_there(data, tmp_path, capsys):
    more = random_pool(models=3, questions=20, judge="gpt-4.1", baseline=BASELINES["hard_prompt"])
    hard = [each._replace(category="hard_prompt", uid=f"hard_prompt{each.uid}") for each in more]
    write_judgments(data / V2, [each for each in hard if each.model == "m2"])
    path = tmp_path / "s.json"
    chosen = ("--models", "m2", "--compare", "m1", "m2", "--json", path)
    assert score("--judge", "gpt-4.1", *chosen) == 0
    printed = capsys.readouterr()
    found = json.loads(path.read_text(encoding="utf-8"))
    assert {each["model"] for each in found} == {"m2", BASELINES["hard_prompt"]}
    assert "note: gpt-4.1 judged none of them in creative_writing" in printed.err
    assert "hard_prompt, judged by gpt-4.1, m1 against m2, paired" in printed.out
    assert score("--judge", "gpt-4.1", *chosen[2:]) == 0
    assert "not compared, creative_writing, judged by gpt-4.1: m2 has no" in capsys.readouterr().err


def test_counts_that_are_missing_can_be_made(data, tmp_path, capsys, monkeypatch):
    for path in (data / V2 / "model_answer").iterdir():
        lines = [json.loads(line) for line in path.open(encoding="utf-8")]
        write_lines(path, [{k: v for k, v in line.items() if k != "metadata"} for line in lines])
    wanted = ("--judge", "gpt-4.1", "--style_control", "length", "--rounds", "10")
    assert score(*wanted) == 2
    assert "count them with --count_style" in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr(style, "load_tokenizer", lambda bench, path: len if path is None else None)
    assert score(*wanted, "--count_style", "--json", tmp_path / "s.json") == 0
    found = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    assert all(10 < each["mean_tokens"] < 60 for each in found)  # characters here


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--judge", "nobody"), "no judgments by nobody in .*judges there: gpt-4.1, other"),
        ((), "--judge says whose judgments to score; in .* are those of gpt-4.1, other"),
        (("--judge", "gpt-4.1", "--models", "x"), "nothing of 'x' was judged; judged were"),
        (
            ("--judge", "gpt-4.1", "--compare", "m0", "x"),
            "--compare m0 x: .*x has no judgment",
        ),
        (("--judge", "gpt-4.1", "--compare", "m0", "m0"), "cannot be compared with itself"),
        (("--judge", "gpt-4.1", "--category", "math"), "no judgment in the category 'math'"),
        (
            ("--judge", "gpt-4.1", "--baseline", "m0"),
            "score with --category hard_prompt --baseline o3-mini-2025-01-31",
        ),
        (("--judge", "gpt-4.1", "--style_control", "nice"), "no style control 'nice'; there are"),
        (("--judge", "gpt-4.1", "gpt-4.1"), "--judge has gpt-4.1 twice"),
        (("--judge", "gpt-4.1", "--rounds", "1"), "--rounds is 1; give 2 or more"),
        (("--judge", "gpt-4.1", "--seed", "-1"), "--seed is -1; give 0 or more"),
        (("--judge", "gpt-4.1", "--ci", "bayes"), "invalid choice: 'bayes'"),
    ],
)
def test_bad_input_is_one_line(data, capsys, arguments, said):
    assert score(*arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.search(said, " ".join(printed.err.split()))
    assert "Traceback" not in printed.err


def test_a_category_that_is_not_judged_yet_costs_no_other(tmp_path, capsys):
    named = {"judge": "gpt-4.1", "model": "m"}
    (hard, o3), (creative, flash) = BASELINES.items()
    held = [judgment(f"h{n}", 1, 0, **named, category=hard, baseline=o3) for n in range(3)]
    failed = judgment("c", "failed", "failed", **named, category=creative, baseline=flash)
    write_bench(tmp_path / V2, [*held, failed])
    assert score("--data", tmp_path) == 0
    said = capsys.readouterr()
    assert "hard_prompt, judged by gpt-4.1" in said.out
    assert "note: no judgment of creative_writing by gpt-4.1 is complete, so there" in said.err
    assert score("--data", tmp_path, "--category", creative) == 2
    assert "is complete: judge again" in capsys.readouterr().err


def test_a_bench_must_be_named(capsys):
    with pytest.raises(SystemExit, match="2"):
        eval_arena_score.main([])
    assert "--bench names what was judged" in capsys.readouterr().err


def test_a_folder_that_is_not_there(tmp_path, capsys):
    assert score("--data", tmp_path / "none", "--judge", "j") == 2
    assert "no judgments by j in" in capsys.readouterr().err


def test_a_file_that_cannot_be_written(data, tmp_path, capsys):
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert score("--judge", "gpt-4.1", "--json", tmp_path / "file" / "s.json") != 0
    assert "Traceback" not in capsys.readouterr().err


def test_broken_lines_are_told_of_and_the_rest_is_scored(data, tmp_path, capsys):
    path = data / V2 / "model_judgment" / "gpt-4.1" / "m0.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(
        b"\xef\xbb\xbf" + lines[0] + b"{broken}\n" + b"".join(lines[1:]) + b'{"uid": "h'
    )
    assert score("--judge", "gpt-4.1", "--json", tmp_path / "s.json") == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "m0.jsonl, line 2: not JSON" in told and "half written" in told
    found = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    assert {each["questions"] for each in found} == {20, None}


def test_show_makes_a_page_and_opens_it(data, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr(eval_arena_show.webbrowser, "open", lambda url: not opened.append(url))
    made = ["--bench", V2, "--judge", "gpt-4.1"]
    assert eval_arena_show.main(made) == 0
    path = data / V2 / "arena.html"
    assert opened == [path.resolve().as_uri()]
    assert "<h1>arena-hard-v2.0, judged by gpt-4.1</h1>" in path.read_text(encoding="utf-8")
    assert eval_arena_show.main([str(path)]) == 0
    assert opened == [path.resolve().as_uri()] * 2
    monkeypatch.setattr(eval_arena_show.webbrowser, "open", lambda url: False)
    assert eval_arena_show.main([str(path)]) == 0
    assert "no browser was found here: open the page by hand" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.html"], "nowhere.html: No such file or directory"),
        (["page.html", "--bench", V2], "name a PAGE, or a --bench to make one of, not both"),
        (["page.html", "--html", "new.html"], "--html names a page that is made, and page.html is"),
        ([], "--bench names what was judged"),
        (["page.html", "--port", "70000"], "--port is 70000; give one from 0 to 65535"),
    ],
)
def test_show_says_what_is_wrong(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    try:
        status = eval_arena_show.main(arguments)
    except SystemExit as error:
        status = error.code
    assert status == 2 and said in capsys.readouterr().err


def test_serving_gives_the_page_and_nothing_else(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("<p>here</p>", encoding="utf-8")
    (tmp_path / "secret").write_text("no", encoding="utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), eval_arena_show.handler(path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        answers = {}
        for wanted in ("/", "/?x=1", "/secret", "/../secret", "/page.html"):
            connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1])
            connection.request("GET", wanted)
            answer = connection.getresponse()
            answers[wanted] = (answer.status, answer.read())
            connection.close()
        server.shutdown()
    assert answers["/"] == answers["/?x=1"] == (200, b"<p>here</p>")
    assert {answers[name][0] for name in ("/secret", "/../secret", "/page.html")} == {404}
