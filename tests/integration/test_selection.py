"""Prompts that are chosen, on the real stack: which ones, and those of a resumed run."""

import choosing
import deaths
import numpy as np
import pytest
from kit import read_lines

pytestmark = pytest.mark.integration


def test_two_ranks_choose_the_same_when_resumed_of_prompts_that_are_in_the_file_twice(
    start, prompts, tmp_path
):
    """The first run ends when a rank dies while the other waits; the second when its engine dies
    while it gets weights."""
    twice = tmp_path / "twice.jsonl"
    twice.write_text(prompts.read_text() * 2)
    rows = [choosing.known(row) for row in read_lines(twice)]
    # with a constant learning rate, steps do not depend on how many will follow
    flags = (*choosing.FLAGS, "--actor.lr_scheduler", "constant")
    flags = (*flags, "--advantage_estimator", "js", "--data.prompt_dataset", str(twice))
    flags = (*flags, "--actor.num_gpus_per_node", "2")
    running = start(*flags)
    running.until_batches(5)
    first = deaths.ends_when_killed(running, "generating", "rank")
    uninterrupted = first.batches()
    choosing.check_choices(uninterrupted, rows)

    choosing.forget_after_step_2(first.folder)
    running = start(*flags, "--ckpt.load_enable")
    running.until_batches(5)
    second = deaths.ends_when_killed(running, "sending weights", "engine")
    for batch, expected in zip(second.batches(), uninterrupted, strict=False):
        for name, values in expected.items():
            np.testing.assert_array_equal(batch[name], values)
