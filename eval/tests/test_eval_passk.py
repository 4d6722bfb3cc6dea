import json
import multiprocessing
import time
from collections import Counter

import pytest
import torch
from kit import until, write_lines
from passk_kit import CONTEXT, items, lines, rows, write_model
from stub_judge import by_seed, reply, serving

from answer_graders.tasks import TASKS
from paired_eval.cli import main
from paired_eval.pages.passk import value_of
from paired_eval.passk import grading

SAMPLED = ["--samples", "6", "--max_new_tokens", "4", "--device", "cpu", "--batch_size", "8"]


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A folder with two models and two files of prompts."""
    folder = tmp_path_factory.mktemp("given")
    write_model(folder / "model")
    write_model(folder / "other", seed=1)
    write_lines(folder / "toy.jsonl", rows(12))
    write_lines(folder / "more.jsonl", rows(5)[::-1])
    return folder


def words(given, out, *more, model="model", tasks=("toy.jsonl",)):
    named = [str(given / task) for task in tasks]
    model = ["--model", str(given / model), "--tasks", *named, "--out", str(out)]
    return ["passk", *model, *SAMPLED, *more]


@pytest.fixture(scope="module")
def done(given, tmp_path_factory):
    """Results of both models."""
    folder = tmp_path_factory.mktemp("done")
    for model in ("model", "other"):
        call = words(given, folder / model, model=model, tasks=("toy.jsonl", "more.jsonl"))
        assert main(call) == 0
    return folder


def results(folder):
    return json.loads((folder / "results.json").read_bytes())


def scores(folder, task="toy"):
    return results(folder)["tasks"][task]["per_item"]


def test_a_model_on_two_files_again_gets_the_same_scores(given, done, tmp_path, capsys):
    call = words(given, tmp_path, "--batch_size", "50", tasks=("toy.jsonl", "more.jsonl"))
    assert main(call) == 0
    said = capsys.readouterr()
    assert scores(tmp_path) == scores(done / "model")
    task = results(tmp_path)["tasks"]["toy"]
    kept = lines(tmp_path / "samples/toy.jsonl")
    label = {uid: each.label for uid, each in items().items()}
    assert Counter((row["uid"], row["draw"]) for row in kept) == Counter(
        (uid, j) for uid in label for j in range(6)
    )
    for row in kept:  # graded as the task grades
        assert row["status"] == TASKS["gsm8k"].score(row["text"], label[row["uid"]]).status
        assert "<eos>" not in row["text"]
    right = [row["status"] == "correct" for row in kept]
    assert 0 < sum(right) < len(kept)
    mean = value_of(task, "mean_at_k")["value"]
    assert mean == pytest.approx(sum(right) / len(kept))
    assert (tmp_path / "samples.html").stat().st_size > 10_000
    assert f"{100 * mean:.1f} (" in said.out
    assert task["settings"]["prompt_form"] == "text"  # what `auto` has come to


def test_kill_9_and_resume(given, done, tmp_path, monkeypatch):
    out = tmp_path / "killed"
    path = out / "samples/toy.jsonl"
    real = grading.grade_all

    def slowly():  # in a fork, since the imports take seconds; its threads do not survive one
        torch.set_num_threads(1)
        monkeypatch.setattr(grading, "grade_all", lambda *given: time.sleep(0.2) or real(*given))
        main(words(given, out))

    process = multiprocessing.get_context("fork").Process(target=slowly)
    process.start()
    until(lambda: path.exists() and path.read_bytes().count(b"\n") >= 20)
    process.kill()
    process.join()
    before = path.read_bytes()
    assert before.count(b"\n") < 12 * 6
    assert main(words(given, out)) == 0
    assert path.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert lines(path) == lines(done / "model/samples/toy.jsonl")
    assert scores(out) == scores(done / "model")


def test_a_served_model(given, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SOME_KEY", "secret-of-mine-123")
    with serving() as served:
        tasks = ["--tasks", str(given / "toy.jsonl"), "--samples", "5"]
        call = ["passk", "--model", served.url, *tasks, "--out", str(tmp_path)]
        assert main([*call, "--key_env", "SOME_KEY"]) == 0
        assert len(served.requests) == 60
        assert {*served.keys} == {"Bearer secret-of-mine-123"}
        request = served.requests[0]
        assert request["max_tokens"] == 2048
        assert request["temperature"] == 1.0
        assert request["top_p"] == 1.0
        assert 0 <= request["seed"] < 2**31
        newer = ["--max_tokens_name", "max_completion_tokens", "--samples", "6"]
        assert main([*call, *newer]) == 0  # one more to each
        assert len(served.requests) == 72
        assert "max_tokens" not in served.requests[-1]
    task = results(tmp_path)["tasks"]["toy"]
    label = {uid: int(each.label) for uid, each in items().items()}
    kept = lines(tmp_path / "samples/toy.jsonl")
    assert len({row["seed"] for row in kept}) == 72
    right = sum(row["seed"] % 3 + 1 == label[row["uid"]] for row in kept)
    assert value_of(task, "mean_at_k")["value"] == pytest.approx(right / 72)
    assert task["settings"]["served_model"] == "small"
    assert results(tmp_path)["model"] == f"{served.url}#small"
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"secret-of-mine" not in path.read_bytes()
    with serving() as served:
        strict = [*call[:2], served.url, *tasks, "--out", str(tmp_path / "strict")]
        assert main([*strict, "--omit", "top_p", "temperature"]) == 0
        assert {"top_p", "temperature"}.isdisjoint(served.requests[0])
        assert "seed" in served.requests[0]
        assert main(strict) == 2  # these would be other samples
        assert "omitted" in capsys.readouterr().err
    with serving() as served:  # at another port, with all the samples there
        call[2] = served.url
        assert main(call) == 2
        assert "url was 'http" in capsys.readouterr().err
        assert main([*call, "--same_model"]) == 0
        assert not served.requests


def test_a_server_that_refuses_every_fifth_request(given, tmp_path, capsys):
    """Each is asked once over three calls, and again where the flag says so."""
    refused = set()

    def picky(request, number):
        if request["seed"] % 5 == 0:
            refused.add(request["seed"])
            return 400, {"error": {"code": "invalid_prompt"}}
        return by_seed(request)

    with serving(picky) as served:
        call = ["passk", "--model", served.url, "--tasks", str(given / "toy.jsonl")]
        call += ["--samples", "10", "--out", str(tmp_path)]
        for _ in range(3):
            assert main(call) == 0
        seeds = Counter(request["seed"] for request in served.requests)
        assert {*seeds.values()} == {1}
        assert len(seeds) == 120
        assert 10 < len(refused) < 40
        served.answer = by_seed
        shown = capsys.readouterr().out
        assert f"{len(refused)} of 120 responses were refused and are in no figure" in shown
        assert sum(scores(tmp_path)["answered"]) == 120 - len(refused)
        assert main([*call, "--retry_failed"]) == 0
    assert sum(scores(tmp_path)["answered"]) == 120


def test_a_server_that_fails(given, tmp_path, capsys):
    tasks = ["--tasks", str(given / "toy.jsonl"), "--out", str(tmp_path)]
    with serving(lambda *_: (401, {"error": {"message": "who are you?"}})) as served:
        assert main(["passk", "--model", served.url, *tasks]) == 1
    said = capsys.readouterr().err
    assert "who are you?" in said
    assert said.rstrip().endswith("the same command resumes")
    assert main(["passk", "--model", served.url, *tasks]) == 1
    assert f"no server answers at {served.url}" in capsys.readouterr().err
    with serving(lambda *_: (400, b"max_tokens is not supported")) as served:
        assert main(["passk", "--model", served.url, *tasks]) == 2
    said = capsys.readouterr().err
    assert "none was answered; the first: " in said
    assert "answered 400: max_tokens is not supported. Nothing was recorded: correct" in said
    assert not (tmp_path / "samples/toy.jsonl").exists()


def test_folders_compared_with_the_first(done, tmp_path, capsys):
    places = [str(done / name) for name in ("model", "other", "model")]
    assert main(["passk", "--compare", *places, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert b"Samples of A and B and C" in (tmp_path / "samples.html").read_bytes()
    found, same = json.loads((tmp_path / "comparison.json").read_bytes())
    assert [row["task"] for row in found["rows"]] == ["toy", "more", "mean"]
    a, b = (scores(done / name)["correct"] for name in ("model", "other"))
    assert found["rows"][0]["value"] == pytest.approx((sum(b) - sum(a)) / 72)
    assert {row["value"] for row in same["rows"]} == {0}
    assert f"{100 * found['rows'][0]['value']:.1f} (" in said
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")
    again = ["passk", "--compare", *places[:2], "--tasks", "toy", "--metric", "pass@4"]
    assert main([*again, "--out", str(tmp_path)]) == 0
    (found,) = json.loads((tmp_path / "comparison.json").read_bytes())
    assert [row["task"] for row in found["rows"]] == ["toy"]
    assert found["metric"] == "pass@4"


def test_named_benchmarks_and_definitions(tmp_path):
    """Mazes, countdown and a data set from a file are asked of a server, which gives up."""
    source = write_lines(tmp_path / "own.jsonl", [{"problem": "2 + 2?", "answer": "4"}] * 2)
    own = tmp_path / "my own.yaml"
    own.write_text("task: maze\ncount: 4\noptions: {lengths: [4, 5]}\nsamples: 2\n")
    with serving(lambda *_: reply("I give up.")) as served:
        call = ["passk", "--model", served.url, "--tasks", str(own), "countdown", "math500"]
        call += ["--items", "3", "--source", f"math500={source}"]
        assert main([*call, "--out", str(tmp_path / "out")]) == 0
        assert len(served.requests) == 3 * 2 + 3 * 16 + 16  # a problem comes once
        assert "2 + 2?" in served.requests[-1]["messages"][-1]["content"]
    found = results(tmp_path / "out")["tasks"]
    assert found["countdown"]["settings"]["temperature"] == 0.7
    assert found["my_own"]["samples"] == 2
    assert value_of(found["my_own"], "no_answer")["value"] == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--compare {done}/model {done}/model --metric pass@8", "'pass@8'"),
        ("--compare {done}/model {done}/model --tasks maze", "maze"),
        ("--compare {given}/model {done}/model", "results.json"),
        ("{toy} --tasks poetry", "'poetry'"),
        ("{toy} --model /no/such/model", "/no/such/model"),
        ("{toy} --max_new_tokens {context}", "none was answered"),
        ("{toy} --source math500=x", "--source"),
    ],
)
def test_what_cannot_be_used(given, done, tmp_path, capsys, flags, message):
    toy = " ".join(words(given, tmp_path)[1:])
    call = flags.format(given=given, done=done, toy=toy, context=CONTEXT).split()
    assert main(["passk", *call]) == 2
    assert message in capsys.readouterr().err


def log_rows(marks):
    """Rows of a log, one for each response: r is right, w is wrong."""
    rows = []
    for number, of_prompt in marks.items():
        for mark in of_prompt:
            answer = number + 1 if mark == "r" else number
            output = rf"\boxed{{{answer}}}"
            rows.append({"question": f"{number} + 1?", "output": output, "gold": number + 1})
    return rows


FIELDS = ["--input_key", "question", "--response_key", "output", "--label_key", "gold"]


def graded(out, *logs, fields=FIELDS):
    return ["passk", "--responses", *map(str, logs), "--tasks", "math", "--out", str(out), *fields]


def test_responses_from_a_log(tmp_path, capsys):
    """Graded by hand, whatever the form of the rows; the same command resumes."""
    marks = {1: "rrww", 2: "wwww", 3: "rwww"}
    log = write_lines(tmp_path / "log.jsonl", log_rows(marks))
    assert main(graded(tmp_path / "rows", log)) == 0
    found = results(tmp_path / "rows")
    assert found["model"] == str(log)
    task = found["tasks"]["math"]
    assert task["samples"] == 4
    assert scores(tmp_path / "rows", "math")["correct"] == [2, 0, 1]
    assert value_of(task, "mean_at_k")["value"] == pytest.approx(3 / 12)
    assert value_of(task, "pass_at", 2)["value"] == pytest.approx((5 / 6 + 0 + 3 / 6) / 3)
    assert value_of(task, "truncated")["value"] is None  # nobody knows
    assert "temperature" not in task["settings"]
    assert (tmp_path / "rows/samples.html").stat().st_size > 10_000

    kept = (tmp_path / "rows/samples/math.jsonl").read_bytes()
    assert main(graded(tmp_path / "rows", log)) == 0
    assert (tmp_path / "rows/samples/math.jsonl").read_bytes() == kept

    lists = [
        {"prompt": row["question"], "label": str(row["gold"]), "responses": []}
        for row in log_rows(dict.fromkeys(marks, "r"))
    ]
    for row in log_rows(marks):
        lists[row["gold"] - 2]["responses"].append(row["output"])
    other = write_lines(tmp_path / "lists.jsonl", lists)
    assert main(graded(tmp_path / "lists", other, fields=[])) == 0
    assert scores(tmp_path / "lists", "math") == scores(tmp_path / "rows", "math")
    assert main(graded(tmp_path / "rows", other, fields=[])) == 2
    assert "another model" in capsys.readouterr().err


def test_a_thought_that_the_prompt_of_a_log_opens_earns_nothing(tmp_path):
    thought = {"response": r"\boxed{7} hmm", "label": "7"}
    chat = [{"role": "user", "content": "3 + 4?"}, {"role": "assistant", "content": "<think>\n"}]
    rows = [{"prompt": "3 + 4?\n<think>\n"} | thought, {"prompt": chat} | thought]
    log = write_lines(tmp_path / "log.jsonl", [*rows, {"prompt": "<musing>"} | thought])
    flags = ["--thinking_mark", "musing"]
    assert main(graded(tmp_path / "out", log, fields=flags)) == 0
    assert scores(tmp_path / "out", "math")["correct"] == [0, 0, 0]


def test_logs_of_two_checkpoints(tmp_path, capsys):
    """Prompts pair; those of one log alone are left out, and numbers of responses may differ."""
    first = write_lines(tmp_path / "20.jsonl", log_rows({1: "rw", 2: "ww", 3: "rw", 9: "rr"}))
    second = write_lines(
        tmp_path / "40.jsonl", log_rows({3: "rrrw", 2: "rw", 7: "ww", 1: "rr", 8: "r"})
    )
    out = tmp_path / "steps"
    assert main(graded(out, first, second)) == 0
    (found,) = json.loads((out / "comparison.json").read_bytes())
    (row,) = found["rows"]
    assert row["items"] == 3
    assert row["a"] == pytest.approx((1 / 2 + 0 + 1 / 2) / 3)
    assert row["b"] == pytest.approx((1 + 1 / 2 + 3 / 4) / 3)
    assert "3 items are in both" in capsys.readouterr().out
    page = (out / "samples.html").read_text()
    assert "3 + 1?" in page
    assert "9 + 1?" not in page

    folders = [str(out / "A"), str(out / "B")]
    assert main(["passk", "--compare", *folders, "--metric", "pass@2"]) == 0
    assert "66.7" in capsys.readouterr().out  # of A, (1 + 0 + 1) / 3
    assert main(["passk", "--compare", *folders, "--metric", "majority"]) == 2  # uneven votes
