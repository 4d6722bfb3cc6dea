"""Which runs the words of a command line name, what their files tell, and what is refused."""

from __future__ import annotations

import json
import time

import pytest

from openrlhf_js.report import differences, runs, scalars
from openrlhf_js.report.run_files import CONFIG
from openrlhf_js.report.runs import find_conditions

REWARD = {"train/rollout/reward_mean": [0.1, 0.2]}


def record(folder, flags, *, changed=None, outcome="done", **versions):
    changed = list(flags) if changed is None else changed
    found = {"flags": flags, "changed": changed, "versions": versions, "outcome": outcome}
    (folder / CONFIG).write_text(json.dumps(found))


def named(*words):
    return {
        c.name: [run.folder.name for run in c.runs] for c in find_conditions(list(map(str, words)))
    }


def test_a_folder_is_a_run_of_its_name(log):
    assert named(log("some run", REWARD)) == {"some run": ["some run"]}


def test_event_files_may_lie_deeper(log, tmp_path):
    log("mine/tensorboard/ppo_1121T15:03", REWARD)
    assert named(tmp_path / "mine") == {"mine": ["ppo_1121T15:03"]}


def test_a_folder_of_several_runs_is_several_in_the_order_in_which_they_began(log, tmp_path):
    log("quick/tensorboard/js", REWARD, began=1_700_000_500)
    log("quick/tensorboard/rloo", REWARD, began=1_700_000_100)
    assert list(named(tmp_path / "quick")) == ["rloo", "js"]
    assert list(named(f"tiny={tmp_path / 'quick'}")) == ["tiny/rloo", "tiny/js"]


def test_runs_of_several_folders_with_the_same_names_keep_them_apart(log, tmp_path):
    for parent in ("one", "two"):
        log(f"{parent}/rloo", REWARD)
        log(f"{parent}/js", REWARD)
    assert set(named(tmp_path / "one", tmp_path / "two")) == {
        "one/rloo", "one/js", "two/rloo", "two/js",
    }  # fmt: skip


def test_seeds_are_parted_by_commas(log):
    assert named(f"js={log('a', REWARD)},{log('b', REWARD)}") == {"js": ["a", "b"]}


def test_seeds_of_whole_comparisons_are_matched_by_name(log, tmp_path):
    for seed in ("s0", "s1"):
        log(f"{seed}/js", REWARD)
        log(f"{seed}/rloo", REWARD)
    found = find_conditions([f"{tmp_path / 's0'},{tmp_path / 's1'}"])
    assert {c.name: [run.folder.parent.name for run in c.runs] for c in found} == {
        "js": ["s0", "s1"],
        "rloo": ["s0", "s1"],
    }


def test_a_folder_may_have_an_equals_sign_and_a_comma_in_its_name(log):
    assert named(log("lr=1e-6,new", REWARD)) == {"lr=1e-6,new": ["lr=1e-6,new"]}
    assert named(f"fast={log('lr=1,2', REWARD)}") == {"fast": ["lr=1,2"]}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["{}/nowhere"], "there is no folder .*nowhere; pass what --logger.tensorboard_dir"),
        (["x={}/nowhere"], "there is no folder .*nowhere"),
        (["={}/js"], "has no name before the =; give NAME=FOLDER"),
        (["{}/empty"], "holds no TensorBoard event files; pass what"),
        (["a={}/js", "a={}/rloo"], "2 runs are called 'a'; give each its own: NAME=FOLDER"),
        (["{}/js", "{}/js"], "2 runs are called 'js'"),
        (["x={}/both,{}/other"], r"seeds of 'x' must hold .*both: a, b; .*other: c, d"),
        (["{}/broken"], "broken/events.* cannot be read: it is no TensorBoard event file"),
    ],
)
def test_what_cannot_be_reported_is_said(log, tmp_path, words, complaint):
    for name in ("js", "rloo", "both/a", "both/b", "other/c", "other/d", "broken"):
        log(name, REWARD)
    (tmp_path / "empty").mkdir()
    next((tmp_path / "broken").iterdir()).write_bytes(b"<html>not an event file</html>")
    with pytest.raises(ValueError, match=complaint):
        find_conditions([word.format(*[tmp_path] * word.count("{}")) for word in words])


def test_a_file_that_vanishes_before_anything_is_read_is_said(log, monkeypatch):
    folder, loader = log("run", REWARD), scalars.RawEventFileLoader
    (path,) = folder.iterdir()

    def too_late(name):
        path.unlink()
        return loader(name)

    monkeypatch.setattr(scalars, "RawEventFileLoader", too_late)
    with pytest.raises(ValueError, match=f"{path} was removed while .* name other folders"):
        find_conditions([str(folder)])


def test_a_folder_that_is_emptied_before_it_is_read_is_said(log, monkeypatch):
    folder = log("run", REWARD)

    def too_late(where):
        next(where.iterdir()).unlink()
        return scalars.Scalars(where)

    monkeypatch.setattr(runs, "Scalars", too_late)
    with pytest.raises(ValueError, match=f"{folder} was removed while .* name other folders"):
        find_conditions([str(folder)])


def test_the_status_says_whether_it_goes_on(log, now):
    folder = log("run", {"a": [1, 2, 3]}, written=now - 60)
    record(folder, {}, outcome=None)
    at = time.strftime("%H:%M", time.localtime(now - 60))
    (condition,) = find_conditions([str(folder)])
    (run,) = condition.runs
    if time.localtime(now)[:3] == time.localtime(now - 60)[:3]:
        assert run.status(now) == f"running, last step 3, last written {at}"
    later = run.status(now + 40 * 86400)
    assert later.startswith("not running, last step 3, last written 20")  # with its date


def test_without_a_record_nobody_knows_whether_it_goes_on(log, now):
    folder = log("run", {"a": [1]}, written=now - 60)
    ((run,),) = (c.runs for c in find_conditions([str(folder)]))
    assert run.status(now).startswith("perhaps running, last step 1")


def test_the_status_says_how_it_ended(log, now):
    folder = log("run", {"a": [1]}, written=now)
    record(folder, {}, outcome="interrupted")
    ((run,),) = (c.runs for c in find_conditions([str(folder)]))
    assert run.status(now).startswith("interrupted, last step 1")
    assert not run.running(now)


def test_a_run_that_has_logged_nothing_yet(tmp_path):
    (tmp_path / "events.out.tfevents.1.host").touch()
    ((run,),) = (c.runs for c in find_conditions([str(tmp_path)]))
    assert run.status() == "nothing logged yet"


def test_a_quickstart_gives_its_command_and_its_evaluations(log, tmp_path):
    log("quick/tensorboard/js", REWARD)
    log("quick/tensorboard/rloo", REWARD)
    quick = tmp_path / "quick"
    scores = [{"prompt": "p", "scores": [0, 1]}, {"prompt": "q", "scores": [1, 1]}]
    (quick / "evaluation_before.json").write_text(json.dumps(scores))
    (quick / "js").mkdir()
    (quick / "js" / "evaluation_after.json").write_text(json.dumps(scores[:1]))
    command = "python -m program --train.seed 3 --actor.adam.lr 1e-06 --ds.switch --x 'a b'"
    (quick / "js" / "command.txt").write_text(command)
    js, rloo = (c.runs[0] for c in find_conditions([str(quick)]))
    assert js.config.flags == {
        "train.seed": "3", "actor.adam.lr": "1e-06", "ds.switch": "True", "x": "a b",
    }  # fmt: skip
    assert js.evaluations == {0: {"p": 0.5, "q": 1.0}, 2: {"p": 0.5}}
    assert rloo.config.flags == {}
    assert rloo.evaluations == {0: {"p": 0.5, "q": 1.0}}


@pytest.mark.parametrize("content", ["{", "[]", '{"flags": {}}', '{"flags": 3, "changed": []}'])
def test_a_damaged_configuration_is_named(log, content):
    folder = log("run", REWARD)
    (folder / CONFIG).write_text(content)
    with pytest.raises(ValueError, match=f"{CONFIG} .*remove it"):
        find_conditions([str(folder)])


def test_differences_are_flags_and_versions(log):
    a, b = log("a", REWARD), log("b", REWARD)
    record(a, {"x": 1, "lr": 1e-6, "logger.wandb.run_name": "a", "s": [1, 2]}, torch="2.7")
    record(b, {"x": 2, "lr": 0.000001, "logger.wandb.run_name": "b", "s": [1, 2]}, torch="2.8")
    found = find_conditions([str(a), str(b)])
    assert differences.differing(found) == [("--x", "1", "2"), ("torch (version)", "2.7", "2.8")]
    assert differences.agreeing(found) == [("--lr", "1e-06"), ("--s", "1 2")]


def test_seeds_that_differ_are_side_by_side(log):
    a, b = log("a", REWARD), log("b", REWARD)
    record(a, {"train.seed": 0})
    record(b, {"train.seed": 1})
    assert differences.differing(find_conditions([f"js={a},{b}"])) == [("--train.seed", "0 | 1")]


def test_flags_that_were_only_given_are_compared_with_what_was_changed(log, tmp_path):
    recorded = log("recorded", REWARD)
    record(recorded, {"x": 1, "unseen": 5, "y": 2}, changed=["x", "y"])
    log("quick/tensorboard/js", REWARD)
    (tmp_path / "quick" / "command.txt").write_text("program --x 1 --z 3")
    found = find_conditions([str(recorded), str(tmp_path / "quick")])
    assert differences.differing(found) == [("--y", "2", "(default)"), ("--z", "(default)", "3")]
    assert differences.agreeing(found) == [("--x", "1")]


def test_runs_without_a_configuration_are_named(log):
    a, b = log("a", REWARD), log("b", REWARD)
    record(b, {"x": 1})
    found = find_conditions([str(a), str(b)])
    assert differences.without_flags(found) == ["a"]
    assert differences.differing(found) == []
