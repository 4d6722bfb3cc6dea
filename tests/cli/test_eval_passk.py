import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from openrlhf_js import __version__
from openrlhf_js.cli import eval_passk, eval_passk_sides
from openrlhf_js.cli.eval_passk_output import show
from openrlhf_js.tasks import TASKS

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation"))
from passk_kit import CONTEXT, lines, rows, write_model, write_rows
from passk_server import by_seed, serving

SAMPLED = ["--samples", "6", "--max_new_tokens", "4", "--device", "cpu", "--batch_size", "8"]


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A folder with two models and two files of prompts."""
    folder = tmp_path_factory.mktemp("given")
    write_model(folder / "model")
    write_model(folder / "other", seed=1)
    write_rows(folder / "toy.jsonl", rows(12))
    write_rows(folder / "more.jsonl", rows(5)[::-1])
    return folder


def words(given, out, *more, model="model", tasks=("toy.jsonl",)):
    named = [str(given / task) for task in tasks]
    return ["--model", str(given / model), "--tasks", *named, "--out", str(out), *SAMPLED, *more]


@pytest.fixture(scope="module")
def done(given, tmp_path_factory):
    """Results of both models."""
    folder = tmp_path_factory.mktemp("done")
    for model in ("model", "other"):
        call = words(given, folder / model, model=model, tasks=("toy.jsonl", "more.jsonl"))
        assert eval_passk.main(call) == 0
    return folder


def results(folder):
    return json.loads((folder / "results.json").read_bytes())


def scores(folder, task="toy"):
    return results(folder)["tasks"][task]["per_item"]


def test_a_model_on_two_files(given, tmp_path, capsys):
    call = words(given, tmp_path, "--json", str(tmp_path / "deep/figures.json"),
                 tasks=("toy.jsonl", "more.jsonl"))  # fmt: skip
    assert eval_passk.main(call) == 0
    said = capsys.readouterr()
    found = results(tmp_path)
    assert json.loads((tmp_path / "deep/figures.json").read_bytes()) == found
    task = found["tasks"]["toy"]
    kept = lines(tmp_path / "samples/toy.jsonl")
    assert Counter((row["item"], row["draw"]) for row in kept) == Counter(
        (i, j) for i in range(12) for j in range(6)
    )
    for row in kept:  # graded as the task grades, and every mean is that of the file
        label = rows()[row["item"]]["label"]
        assert row["status"] == TASKS["gsm8k"].score(row["text"], label).status
        assert "<eos>" not in row["text"]
    right = [row["status"] == "correct" for row in kept]
    assert 0 < sum(right) < len(kept)
    assert task["mean_at_k"]["value"] == pytest.approx(sum(right) / len(kept))
    assert {int(j) for j in task["pass_at"]} == {1, 2, 4, 6}
    assert (tmp_path / "passk.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "results.md").read_text()
    mean = f"{100 * task['mean_at_k']['value']:.1f} ("
    assert mean in page and mean in said.out
    assert "| temperature | 1.0 | 1.0 |" in page
    assert "| prompt form | text | text |" in page  # what `auto` has come to
    assert "toy (12 items), more (5 items)" in said.err


def test_the_same_seed_gives_the_same_scores(given, done, tmp_path, capsys):
    call = words(given, tmp_path / "again", "--batch_size", "50")
    assert eval_passk.main(call) == 0
    assert scores(tmp_path / "again") == scores(done / "model")
    assert eval_passk.main(words(given, tmp_path / "new", "--seed", "1")) == 0
    assert scores(tmp_path / "new") != scores(done / "model")


def test_nothing_is_sampled_again(given, tmp_path, capsys, monkeypatch):
    few = words(given, tmp_path, "--items", "4", "--samples", "3")
    assert eval_passk.main(few) == 0
    first = (tmp_path / "samples/toy.jsonl").read_bytes()
    assert eval_passk.main(words(given, tmp_path)) == 0
    assert (tmp_path / "samples/toy.jsonl").read_bytes().startswith(first)
    assert len(lines(tmp_path / "samples/toy.jsonl")) == 12 * 6
    whole = scores(tmp_path)
    monkeypatch.setattr(eval_passk_sides, "loaded", None)  # would fail if a model were loaded
    assert eval_passk.main(few) == 0
    assert len(scores(tmp_path)["uid"]) == 4
    assert eval_passk.main(words(given, tmp_path)) == 0
    assert scores(tmp_path) == whole


def spoilt(path, status):
    """Gives the first three samples of a file another status, as if they had been graded so."""
    first, *kept = path.read_bytes().splitlines(keepends=True)
    rows = [json.loads(line) for line in kept]
    for row in rows[:3]:
        row.update(status=status, answer=None, graded_by="0.0.1")
    path.write_bytes(first + b"".join(json.dumps(row).encode() + b"\n" for row in rows))


@pytest.mark.parametrize(("status", "flags"), [("timeout", []), ("malformed", ["--grade_again"])])
def test_responses_are_graded_again(given, done, tmp_path, capsys, monkeypatch, status, flags):
    out = tmp_path / "out"
    shutil.copytree(done / "model", out)
    spoilt(out / "samples/toy.jsonl", status)
    monkeypatch.setattr(eval_passk_sides, "loaded", None)  # would fail if a model were loaded
    assert eval_passk.main(words(given, out, *flags)) == 0
    count = 72 if flags else 3
    assert f"toy: graded {count} responses again; 3 of them changed" in capsys.readouterr().err
    assert scores(out) == scores(done / "model")
    assert results(out)["tasks"]["toy"]["graded_by"] == __version__
    assert len(lines(out / "samples/toy.jsonl")) == 72 + 3


def test_verdicts_of_an_answer_stay_until_they_are_asked_for(given, done, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(done / "model", out)
    spoilt(out / "samples/toy.jsonl", "malformed")
    assert eval_passk.main(words(given, out)) == 0
    assert "again" not in capsys.readouterr().err
    assert results(out)["tasks"]["toy"]["graded_by"] == f"0.0.1, {__version__}"
    assert eval_passk.main(["--compare", str(done / "model"), str(out), "--tasks", "toy"]) == 0
    assert "Other versions of openrlhf_js graded A than B" in " ".join(
        capsys.readouterr().out.split()
    )


def test_grading_again_samples_nothing(given, tmp_path, capsys):
    assert eval_passk.main(words(given, tmp_path, "--items", "4")) == 0
    before = (tmp_path / "samples/toy.jsonl").read_bytes()
    assert eval_passk.main(words(given, tmp_path, "--grade_again")) == 2
    assert "lacks samples of 8 items, and --grade_again takes none" in capsys.readouterr().err
    assert (tmp_path / "samples/toy.jsonl").read_bytes() == before


def test_benchmarks_come_together_in_one_folder(given, done, tmp_path, capsys):
    for task in ("more.jsonl", "toy.jsonl"):
        assert eval_passk.main(words(given, tmp_path, tasks=(task,))) == 0
    assert [*results(tmp_path)["tasks"]] == ["more", "toy"]
    for task in ("toy", "more"):
        assert scores(tmp_path, task) == scores(done / "model", task)
    other = words(given, tmp_path, model="other", tasks=("more.jsonl",))
    assert eval_passk.main(other) == 2
    assert "has results of another model" in capsys.readouterr().err


def test_kill_9_and_on(given, done, tmp_path):
    out = tmp_path / "killed"
    code = "import time; from openrlhf_js.evaluation.passk import local; real = local.grade_all\n"
    code += "def slow(*given):\n    time.sleep(0.2)\n    return real(*given)\n"
    code += "local.grade_all = slow\nfrom openrlhf_js.cli import eval_passk\n"
    code += "import sys; sys.exit(eval_passk.main(sys.argv[1:]))"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words(given, out)],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    path = out / "samples/toy.jsonl"
    patience = time.monotonic() + 50
    while not path.exists() or path.read_bytes().count(b"\n") < 20:
        assert process.poll() is None and time.monotonic() < patience
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = path.read_bytes()
    assert before.count(b"\n") < 12 * 6
    assert eval_passk.main(words(given, out)) == 0
    assert path.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert lines(path) == lines(done / "model/samples/toy.jsonl")
    assert scores(out) == scores(done / "model")


def test_ctrl_c(given, tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(eval_passk_sides, "loaded", interrupted)
    assert eval_passk.main(words(given, tmp_path)) == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == (
        "openrlhf-js eval passk: stopped; what was sampled is kept, and the same command goes on "
        "from here"
    )


def test_a_served_model(given, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "secret-of-mine-123")
    with serving() as served:
        call = ["--model", served.url, "--tasks", str(given / "toy.jsonl"), "--out", str(tmp_path)]
        assert eval_passk.main([*call, "--samples", "5", "--key_env", "SOME_KEY"]) == 0
        assert len(served.requests) == 60
        assert set(served.keys) == {"Bearer secret-of-mine-123"}
        assert served.requests[0]["max_tokens"] == 2048
    assert f"asking small at {served.url}" in capsys.readouterr().err
    task = results(tmp_path)["tasks"]["toy"]
    right = sum(
        row["seed"] % 3 + 1 == int(rows()[row["item"]]["label"])
        for row in lines(tmp_path / "samples/toy.jsonl")
    )
    assert task["mean_at_k"]["value"] == pytest.approx(right / 60)
    assert task["settings"]["served_model"] == "small"
    assert results(tmp_path)["model"] == f"{served.url}#small"
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"secret-of-mine" not in path.read_bytes()
    with serving() as served:  # at another port, with all the samples there
        call[1] = served.url
        assert eval_passk.main([*call, "--samples", "5"]) == 0
        assert served.requests == []


def test_what_a_server_calls_the_limit(given, tmp_path, capsys):
    with serving() as served:
        call = ["--model", served.url, "--tasks", str(given / "more.jsonl"), "--samples", "1"]
        newer = ["--max_tokens_name", "max_completion_tokens"]
        assert eval_passk.main([*call, "--out", str(tmp_path / "new"), *newer]) == 0
        assert eval_passk.main([*call, "--out", str(tmp_path / "old")]) == 0
    named = [[name for name in each if "tokens" in name] for each in served.requests]
    assert named == [["max_completion_tokens"]] * 5 + [["max_tokens"]] * 5
    assert scores(tmp_path / "new", "more") == scores(tmp_path / "old", "more")


def test_short_names_of_models():
    names = {"http://x/v1#own/js": "js", "http://x/v1#js": "js", "runs/js/": "js", "a/b#1": "b#1"}
    assert {model: eval_passk._short(model) for model in names} == names


def picky(request, number):
    """Refuses the first and the last item."""
    if request["messages"][0]["content"] in ("aa", "fb"):
        return 400, {"error": {"message": "no such talk", "code": "content_filter"}}
    return by_seed(request, number)


def test_refused_items_are_told_and_left_out_only_if_asked(given, tmp_path, capsys):
    out = tmp_path / "out"
    with serving(picky) as served:
        tasks = [str(given / name) for name in ("toy.jsonl", "more.jsonl")]
        call = ["--model", served.url, "--samples", "5", "--out", str(out), "--tasks", *tasks]
        assert eval_passk.main(call) == 1
        assert len(served.requests) >= 10 * 5 + 4 * 5 + 3
        said = capsys.readouterr().err
        assert "toy: 2 items are refused\n  item 1 ('aa'): " in said
        assert "no such talk" in said and "item 12 ('fb')" in said and "item 5 ('aa')" in said
        assert "--leave_out_refused gives results without" in said
        assert not (out / "results.json").exists()
        assert eval_passk.main([*call, "--leave_out_refused"]) == 0
        assert len(lines(out / "samples/toy.jsonl")) == 50
    task = results(out)["tasks"]["toy"]
    assert (task["items"], len(task["left_out"]), len(task["per_item"]["uid"])) == (10, 2, 10)
    assert not {*task["left_out"]} & {*task["per_item"]["uid"]}
    right = sum(row["status"] == "correct" for row in lines(out / "samples/toy.jsonl"))
    assert task["mean_at_k"]["value"] == pytest.approx(right / 50)
    assert sum(task["per_item"]["correct"]) == right
    page = (out / "results.md").read_text()
    said = capsys.readouterr().out
    for text in ("10 of 12", "toy: 2 of 12 items are left out of every figure"):
        assert text in page and text in said
    again = ["--model", f"{served.url}#small", *call[2:], "--grade_again", "--leave_out_refused"]
    before = results(out)
    assert eval_passk.main(again) == 0  # the server is gone
    assert results(out) == before


def test_a_server_that_refuses_all(given, tmp_path, capsys):
    with serving(lambda *_: picky({"messages": [{"content": "aa"}]}, 0)) as served:
        call = ["--model", served.url, "--tasks", str(given / "toy.jsonl"), "--out", str(tmp_path)]
        assert eval_passk.main([*call, "--leave_out_refused"]) == 1
    said = capsys.readouterr().err
    assert "toy: 12 items are refused" in said and "and 7 more" in said
    assert "of which no item is left" in said


def test_a_server_that_fails(given, tmp_path, capsys):
    with serving(lambda *_: (401, {"error": {"message": "who are you?"}})) as served:
        call = ["--model", served.url, "--tasks", str(given / "toy.jsonl"), "--out", str(tmp_path)]
        assert eval_passk.main(call) == 1
    said = capsys.readouterr().err
    assert "who are you?" in said
    assert said.rstrip().endswith(
        "what was sampled is kept, and the same command goes on from here"
    )


def test_two_folders_compared(done, tmp_path, capsys):
    call = ["--compare", str(done / "model"), str(done / "other"), "--out", str(tmp_path)]
    assert eval_passk.main([*call, "--json", str(tmp_path / "x.json")]) == 0
    said = capsys.readouterr().out
    found = json.loads((tmp_path / "comparison.json").read_bytes())
    assert json.loads((tmp_path / "x.json").read_bytes()) == found
    assert [row["task"] for row in found["rows"]] == ["toy", "more", "mean"]
    a, b = (scores(done / name)["correct"] for name in ("model", "other"))
    assert found["rows"][0]["difference"]["value"] == pytest.approx((sum(b) - sum(a)) / 72)
    for sentence in found["in_words"]:
        assert sentence in said
    assert "5 items are too few to see less than" in said
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert "other (B) against model (A)" in (tmp_path / "comparison.md").read_text()
    only = [*call, "--tasks", "toy.jsonl", "--metric", "pass@4"]
    assert eval_passk.main(only) == 0
    found = json.loads((tmp_path / "comparison.json").read_bytes())
    assert [row["task"] for row in found["rows"]] == ["toy"]
    assert found["metric"] == "pass@4"


def test_two_models_compared(given, done, tmp_path, capsys):
    call = ["--compare", str(given / "model"), str(done / "other"), "--out", str(tmp_path)]
    assert eval_passk.main([*call, "--tasks", str(given / "toy.jsonl"), *SAMPLED]) == 0
    assert scores(tmp_path / "a") == scores(done / "model")
    found = json.loads((tmp_path / "comparison.json").read_bytes())
    assert [row["task"] for row in found["rows"]] == ["toy"]
    assert eval_passk.main([*call, "--tasks", str(given / "more.jsonl"), *SAMPLED]) == 0
    found = json.loads((tmp_path / "comparison.json").read_bytes())
    assert [row["task"] for row in found["rows"]] == ["more"]  # though toy is there as well


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("{done}/model {done}/model --metric pass@8", "pass@8 needs 8 samples of each item"),
        ("{done}/model {done}/model --tasks maze", "has no maze; it has toy, more"),
        ("{given} {done}/model", "neither a folder of results, with results.json, nor a model"),
        ("{given}/model {given} --tasks maze --out {given}/x", "neither a folder of results"),
        ("{given}/model {done}/model", "say with --tasks on what, and with --out where"),
        ("{done}/model {done}/few", "samples are 6 and 2"),
        ("{done}/model {done}/other --temperature 0.5", "--temperature needs a model to compare"),
        ("{done}/model {done}/other --grade_again", "--grade_again needs a model to compare"),
        ("{done}/model {done}/other --seed 5", "--seed needs a model to compare"),
    ],
)
def test_what_cannot_be_compared(given, done, capsys, flags, message):
    if "few" in flags:
        call = words(given, done / "few", "--samples", "2", tasks=("toy.jsonl", "more.jsonl"))
        assert eval_passk.main(call) == 0
    call = flags.format(given=given, done=done).split()
    assert eval_passk.main(["--compare", *call]) == 2
    assert message in capsys.readouterr().err


def test_named_benchmarks_and_definitions(given, tmp_path, capsys, monkeypatch):
    """Mazes are asked of a server, and answered as the label says."""
    own = tmp_path / "my own.yaml"
    own.write_text("task: maze\ncount: 4\noptions: {lengths: [4, 5]}\nsamples: 2\n")
    with serving() as served:
        call = ["--model", served.url, "--tasks", str(own), "countdown", "--items", "3"]
        assert eval_passk.main([*call, "--out", str(tmp_path / "out")]) == 0
        assert len(served.requests) == 3 * 2 + 3 * 16
    found = results(tmp_path / "out")["tasks"]
    assert found["countdown"]["settings"]["temperature"] == 0.7
    assert found["my_own"]["samples"] == 2
    assert found["my_own"]["statuses"]["no_answer"]["value"] == 1


def test_a_data_set_from_a_file(tmp_path):
    source = write_rows(tmp_path / "own.jsonl", [{"problem": "2 + 2?", "answer": "4"}] * 2)
    with serving() as served:
        call = ["--model", served.url, "--tasks", "math500", "--source", f"math500={source}"]
        assert eval_passk.main([*call, "--samples", "2", "--out", str(tmp_path / "out")]) == 0
        assert "2 + 2?" in served.requests[0]["messages"][-1]["content"]
    task = results(tmp_path / "out")["tasks"]["math500"]
    assert (task["items"], task["samples"]) == (1, 2)  # a problem comes once
    assert task["statuses"]["wrong"]["value"] == 1


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--tasks", "poetry"], "no benchmark 'poetry'; those with names are amc23, countdown"),
        (["--tasks", "/no/such.jsonl"], "/no/such.jsonl: No such file"),
        (["--tasks", "{given}/toy.jsonl", "/else/toy.jsonl"], "--tasks names toy twice"),
        (["--model", "/no/such/model"], "/no/such/model is no folder here"),
        (["--model", "{given}"], "is no model that can be loaded"),
        (["--model", "http://127.0.0.1:9/v1"], "no server answers at http://127.0.0.1:9/v1/models"),
        (["--items", "13"], "--items 13, but toy has 12; ask for fewer"),
        (["--max_new_tokens", str(CONTEXT)], f"Lower --max_new_tokens to {CONTEXT - 2} or less"),
        (["--prompt_form", "chat"], "no chat template: take --prompt_form text"),
        (["--source", "math500=x"], "--source is for math500, which --tasks does not name"),
        (["--tasks", "math500", "--source", "math500=/no.jsonl"], "there is no file /no.jsonl"),
        (["--tasks", "maze", "--source", "maze=x"], "maze makes its problems itself"),
    ],
)
def test_what_cannot_be_used(given, tmp_path, capsys, more, message):
    more = [each.format(given=given) for each in more]
    assert eval_passk.main(words(given, tmp_path, *more)) == 2
    assert message in capsys.readouterr().err


def test_a_model_without_a_tokenizer(given, tmp_path, capsys):
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((given / "model" / name).read_bytes())
    assert eval_passk.main([*words(given, tmp_path), "--model", str(bare)]) == 2
    assert f"--model {bare} has no tokenizer: copy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("", "give --model MODEL, or --compare A B"),
        ("--model x --compare a b", "give --model MODEL, or --compare A B"),
        ("--model x", "--model needs --tasks; --tasks are amc23"),
        ("--model x --tasks maze", "--model needs --out DIR"),
        ("--model x --tasks maze --out y --samples 0", "--samples is 0; give 1 or more"),
        ("--model x --tasks maze --out y --temperature 0", "--temperature is 0.0"),
        ("--model x --tasks maze --out y --top_p 2", "--top_p is 2.0"),
        ("--model x --tasks maze --out y --metric pass@2", "--metric is of --compare"),
        ("--model x --tasks maze --out y --key_env NO_SUCH_KEY", "no such environment variable"),
        ("--model x --tasks maze --out y --source x", "--source must be NAME=PATH"),
        ("--model x --tasks maze --out y --timeout 0", "--timeout is 0; give seconds above 0"),
        ("--model http://x --tasks maze --out y --prompt_form text", "its own chat template"),
    ],
)
def test_wrong_flags(capsys, flags, message):
    with pytest.raises(SystemExit) as stopped:
        eval_passk.main(flags.split())
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as stopped:
        eval_passk.main(["--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert "--compare runs/rloo runs/js" in said
    assert "math500" in said
    assert "{" not in re.sub(r"\{[a-z0-9_,]+\}", "", said)  # no hole was left open


def test_tables_keep_their_numbers(capsys):
    wide = (("name", "a long name"), [("x" * 30, "12.3 (1.0 to 2.0)")])
    show(Console(width=20), [wide], ["\x1b[31mred"])
    said = capsys.readouterr().out
    assert "12.3 (1.0 to 2.0)" in said
    assert "\x1b" not in said
