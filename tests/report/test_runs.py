"""Which runs the words of a command line name, what their files tell, and what is refused."""

import json
import time

import pytest

from openrlhf_js.report.runs import CONFIG, compare_flags, find_conditions

REWARD = {"train/rollout/reward_mean": [0.1, 0.2]}


def record(folder, flags, *, outcome="done", **versions):
    found = {"flags": flags, "versions": versions, "outcome": outcome}
    (folder / CONFIG).write_text(json.dumps(found))


def named(*words):
    return {
        c.name: [run.folder.name for run in c.runs] for c in find_conditions(list(map(str, words)))
    }


def test_a_folder_of_several_runs_is_several_in_the_order_in_which_they_began(log, tmp_path):
    assert named(log("some run", REWARD)) == {"some run": ["some run"]}
    log("mine/tensorboard/ppo_1121T15:03", REWARD)
    assert named(tmp_path / "mine") == {"mine": ["ppo_1121T15:03"]}
    log("quick/tensorboard/js", REWARD, began=1_700_000_500)
    log("quick/tensorboard/rloo", REWARD, began=1_700_000_100)
    assert list(named(tmp_path / "quick")) == ["rloo", "js"]


def test_commas_part_seeds_and_a_folder_may_have_any_name(log):
    assert named(f"js={log('a', REWARD)},{log('b', REWARD)}") == {"js": ["a", "b"]}
    assert named(log("lr=1e-6,new", REWARD)) == {"lr=1e-6,new": ["lr=1e-6,new"]}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["x={}/nowhere"], "event files in .*nowhere; pass what --logger.tensorboard_dir"),
        (["{}/empty"], "no TensorBoard event files in"),
        (["a={}/js", "a={}/rloo"], "must differ, not a, a; give NAME=FOLDER"),
        (["{}/both", "{}/both"], "must differ, not a, b, a, b"),
        (["x={}/js,{}/both"], "both' has several runs in a folder; name each: NAME=FOLDER"),
    ],
)
def test_what_cannot_be_reported_is_said(log, tmp_path, words, complaint):
    for name in ("js", "rloo", "both/a", "both/b"):
        log(name, REWARD)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=complaint):
        find_conditions([word.format(*[tmp_path] * word.count("{}")) for word in words])


def only(folder):
    ((run,),) = (c.runs for c in find_conditions([str(folder)]))
    return run


def test_the_status_is_from_the_record_and_from_the_time_of_the_last_scalar(log, tmp_path):
    now = time.time()
    folder = log("run", {"a": [1, 2, 3]}, written=now - 60)
    assert only(folder).status(now).startswith("running, last step 3, last written ")
    later = only(folder).status(now + 40 * 86400)
    assert later.startswith("not running, last step 3, last written 20")  # with its date
    record(folder, {}, outcome="interrupted")
    assert only(folder).status(now).startswith("interrupted, last step 3")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "events.out.tfevents.1.host").touch()
    assert only(tmp_path / "new").status(now) == "nothing logged yet"


def test_flags_and_versions_are_compared(log):
    a, b, c = log("a", REWARD), log("b", REWARD), log("c", REWARD)
    record(a, {"x": 1, "lr": 1e-6, "logger.wandb.run_name": "a", "s": [1, 2]}, torch="2.7")
    record(b, {"x": 2, "lr": 0.000001, "logger.wandb.run_name": "b", "s": [1, 2]}, torch="2.8")
    differing, agreeing = compare_flags(find_conditions([str(a), str(b), str(c)]))
    names = "flag", "a", "b"  # of c nobody knows
    expected = ("--x", "1", "2"), ("torch (version)", "2.7", "2.8")
    assert differing == [dict(zip(names, each, strict=True)) for each in expected]
    assert agreeing == [
        {"flag": "--lr", "value": "1e-06"},
        {"flag": "--s", "value": "1 2"},
    ]
    differing, _ = compare_flags(find_conditions([f"js={a},{b}"]))
    assert [row["js"] for row in differing] == ["1 | 2", "2.7 | 2.8"]
