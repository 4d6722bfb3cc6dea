"""A rank that dies ends its run, also where another rank waits for it.

Other runs of these tests end with the other deaths: a rank while it trains in `test_training.py`,
an engine while it generates and while ranks train in `test_rlhf.py`; in `test_training.py` an
engine dies while weights are sent, and the run is started again.
"""

import deaths
import pytest

pytestmark = pytest.mark.integration


def test_a_rank_that_dies_while_others_wait_ends_the_run(start):
    running = start(
        *("--algo.advantage.estimator", "js", "--actor.num_gpus_per_node", "2"),
        *("--train.num_episodes", "1000"),
    )
    running.until_batches(2)
    deaths.ends_when_killed(running, "generating", "rank")
