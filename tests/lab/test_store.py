import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from openrlhf_js.lab.parts import SAMPLED, Part, read_part, write_part
from openrlhf_js.lab.store import Store, open_samples

sys.path.insert(0, str(Path(__file__).parent))
from sampling_kit import END, SETTINGS, prompts, run


def part(responses, rewards, grader="d1"):
    arrays = [[np.array(each, dtype=np.int32) for each in group] for group in responses]
    made = Part.ungraded(arrays, (END,))
    return made._replace(rewards=np.array(rewards, dtype=float), grader=np.array(grader))


def test_a_part_is_read_as_it_was_written(tmp_path):
    responses = [[[1, 9], [2, 3, 4, 5]], [[9], [7, 8]]]
    write_part(tmp_path, SAMPLED, 3, 0, part(responses, [[1, 0], [0.5, -2]]))
    found = read_part(tmp_path / "sampled-000003-000000.npz")
    assert [[each.tolist() for each in group] for group in found.responses()] == responses
    assert found.lengths.tolist() == [[2, 4], [1, 2]]
    assert found.finished.tolist() == [[True, False], [True, False]]
    assert found.rewards.tolist() == [[1, 0], [0.5, -2]]
    assert str(found.grader) == "d1"


def test_an_empty_response_is_kept(tmp_path):
    responses = [[[], [1, 9]], [[9], []]]
    write_part(tmp_path, SAMPLED, 0, 0, part(responses, [[0, 1], [0, 0]]))
    found = read_part(tmp_path / "sampled-000000-000000.npz")
    assert [[each.tolist() for each in group] for group in found.responses()] == responses
    assert not found.finished[0, 0]


def test_samples_are_in_prompt_order(tmp_path):
    with Store(tmp_path, SETTINGS) as store:
        store.record(prompts(2))
        later = part([[[5, 9]]], [[0.25]])
        write_part(store.folder, SAMPLED, 1, 1, later)
        write_part(store.folder, SAMPLED, 0, 1, part([[[4, 9]]], [[0.75]]))
        write_part(store.folder, SAMPLED, 0, 0, part([[[1, 9]], [[2, 3]]], [[0], [1]]))
        write_part(store.folder, "greedy", 0, 0, part([[[1]], [[2]]], [[7], [8]]))
    found = open_samples(tmp_path)
    assert found.prompts == ["p0:", "p1:"]
    assert found.labels == ["l0", "l1"]
    assert found.groups == ["g0", "g1"]
    assert found.prompt_tokens == [[0, 1], [1, 2]]
    tokens = [[each.tolist() for each in group] for group in found.response_tokens]
    assert tokens == [[[1, 9], [4, 9]], [[2, 3], [5, 9]]]
    assert found.rewards.tolist() == [[0, 0.75], [1, 0.25]]
    assert found.finished.tolist() == [[True, True], [False, True]]
    assert found.greedy_rewards.tolist() == [7, 8]
    assert found.settings == SETTINGS
    first = found.first(1, 1)
    assert (first.prompts, first.rewards.tolist(), first.greedy_rewards) == (["p0:"], [[0]], [7])


def test_there_are_as_many_responses_as_every_prompt_has(tmp_path):
    run(tmp_path, n=3, m=2)
    with Store(tmp_path, SETTINGS) as store:
        write_part(store.folder, SAMPLED, 0, 2, part([[[1, 9]]], [[1]]))
    assert open_samples(tmp_path).rewards.shape == (3, 2)


def test_the_first_prompts_may_have_more_responses(tmp_path):
    run(tmp_path, n=3, m=2)
    run(tmp_path, n=2, m=5)
    assert open_samples(tmp_path).rewards.shape == (3, 2)
    found = open_samples(tmp_path, prompts=2)
    assert found.rewards.shape == (2, 5) and found.prompts == ["p0:", "p1:"]


def test_tokens_in_memory_are_no_lists_of_int(tmp_path):
    run(tmp_path)
    responses = open_samples(tmp_path).response_tokens
    assert {each.dtype for group in responses for each in group} == {np.dtype(np.int32)}


def test_other_settings_are_refused_by_name(tmp_path):
    run(tmp_path)
    with pytest.raises(
        ValueError, match=r"(?s)give another --out.*temperature: 1.0 there, 0.7 now"
    ):
        Store(tmp_path, SETTINGS | {"temperature": 0.7})
    with pytest.raises(ValueError, match=r"top_p: None there, 0.9 now"):
        Store(tmp_path, SETTINGS | {"top_p": 0.9})


def test_where_the_model_lies_may_change(tmp_path):
    Store(tmp_path, SETTINGS).__exit__()
    Store(tmp_path, SETTINGS | {"model": "there"}).__exit__()
    assert json.loads((tmp_path / "samples/settings.json").read_text())["model"] == "there"


def test_a_folder_without_a_sample_may_be_used_otherwise(tmp_path):
    with Store(tmp_path, SETTINGS) as store:
        store.record(prompts(3))
    with Store(tmp_path, SETTINGS | {"temperature": 0.7}) as store:
        assert store.record(prompts(4)[1:]) == prompts(4)[1:]


def test_a_refused_store_is_not_locked(tmp_path):
    run(tmp_path)
    with pytest.raises(ValueError, match="other settings"):
        Store(tmp_path, {})
    Store(tmp_path, SETTINGS).__exit__()


def test_two_processes_do_not_sample_into_one_folder(tmp_path):
    with Store(tmp_path, SETTINGS), pytest.raises(ValueError, match="another process"):
        Store(tmp_path, SETTINGS)


def test_other_prompts_are_refused(tmp_path):
    with Store(tmp_path, SETTINGS) as store:
        store.record(prompts(3))
        with pytest.raises(ValueError, match="other prompts; give another --out"):
            store.record(prompts(4)[1:])


def test_fewer_prompts_leave_those_of_before(tmp_path):
    with Store(tmp_path, SETTINGS) as store:
        store.record(prompts(3))
        assert store.record(prompts(2)) == prompts(3)
        assert store.record(prompts(4)) == prompts(4)


def test_what_a_killed_run_left_half_written_goes(tmp_path):
    with Store(tmp_path, SETTINGS) as store:
        left = store.folder / f".sampled-000000-000000.npz.{os.getpid()}.partial"
        left.write_bytes(b"half")
    Store(tmp_path, SETTINGS).__exit__()
    assert not left.exists()


def test_no_samples(tmp_path):
    with pytest.raises(ValueError, match="holds no samples: say with --model"):
        open_samples(tmp_path)


def test_unfinished_samples(tmp_path):
    with Store(tmp_path, SETTINGS) as store:
        store.record(prompts(3))
        write_part(store.folder, SAMPLED, 0, 0, part([[[1, 9]]], [[1]]))
    with pytest.raises(ValueError, match=r"responses to 1 of 3 prompts; give the command"):
        open_samples(tmp_path)


@pytest.mark.parametrize(("reward", "grader"), [(np.nan, ""), (1.0, "d2")])
def test_ungraded_samples(tmp_path, reward, grader):
    run(tmp_path, n=2, m=1)
    write_part(tmp_path / "samples", SAMPLED, 1, 0, part([[[1, 9]]], [[1]]))
    write_part(tmp_path / "samples", SAMPLED, 0, 0, part([[[1, 9]]], [[reward]], grader))
    with pytest.raises(ValueError, match="not graded, or not all by the same"):
        open_samples(tmp_path)


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_a_damaged_part(tmp_path, keep):
    run(tmp_path)
    path = next((tmp_path / "samples").glob("sampled-*"))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=rf"{path.name} is damaged: delete it"):
        open_samples(tmp_path)


def test_a_deleted_part_is_sampled_again(tmp_path):
    run(tmp_path, n=5, m=6)
    before = open_samples(tmp_path)
    for path in sorted((tmp_path / "samples").glob("sampled-*"))[::2]:
        path.unlink()
    run(tmp_path, n=5, m=6, rows=100)  # in other pieces, which overlap with those still there
    after = open_samples(tmp_path)
    assert after.rewards.tolist() == before.rewards.tolist()


@pytest.mark.parametrize("name", ["settings.json", "prompts.jsonl"])
def test_damaged_text(tmp_path, name):
    run(tmp_path)
    (tmp_path / "samples" / name).write_text("{")
    with pytest.raises(ValueError, match=rf"{name} is damaged: delete"):
        open_samples(tmp_path)
