import io

import pytest
from rich.console import Console

from openrlhf_js.tiny import screen as module
from openrlhf_js.tiny.screen import Screen, clock


@pytest.fixture
def now(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    return clock


def test_without_a_terminal_there_are_plain_lines(now):
    console = Console(file=io.StringIO(), width=200)
    with Screen("quickstart", ["train"], console) as screen, screen.stage("train", "x", 4) as stage:
        for step in range(1, 5):
            now[0] += 4
            screen.step(stage, step, f"reward 0.{step}")
        stage.note = "reward 0.4"
    assert console.file.getvalue().splitlines() == [
        "quickstart",
        "[0:00] ▸ train: x",
        "[0:08] ▸ train: step 2 of 4, reward 0.2",
        "[0:16] ▸ train: step 4 of 4, reward 0.4",
        "[0:16] ✓ train: step 4 of 4, reward 0.4",
    ]
    assert screen.seconds == {"train": 16.0}


def test_a_terminal_shows_every_stage_and_which_failed():
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    with (
        pytest.raises(KeyboardInterrupt),
        Screen("quickstart", ["warm", "train"], console) as screen,
    ):
        with screen.stage("warm") as stage:
            stage.note = "loss 1.00"
        with screen.stage("train", "starting", 60) as stage:
            screen.step(stage, 7, "reward 0.5")
            screen._bars.refresh()
            raise KeyboardInterrupt
    shown = console.file.getvalue()
    for part in ("quickstart", "✓ warm", "loss 1.00", "step 7 of 60", "reward 0.5", "✗ train"):
        assert part in shown
    assert "✓ train" not in shown


def test_clock():
    assert [clock(0), clock(65.9), clock(3600)] == ["0:00", "1:05", "60:00"]
