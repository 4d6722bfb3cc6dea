"""`openrlhf-js report`: from the command line to the files, and what it says about bad input."""

import pytest
from torch.utils.tensorboard import SummaryWriter

from openrlhf_js.cli import main, report


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "js [bold]"
    with SummaryWriter(str(folder)) as writer:
        for step in range(1, 4):
            writer.add_scalar("train/rollout/reward_mean", 0.1 * step, step)
    return folder


def test_a_report_is_written_and_said(run, tmp_path, capsys):
    assert main.main(["report", str(run), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "0.300" in said
    table, state = said.split("js [bold]: ")  # names are no markup
    assert state.startswith("running, last step 3")
    assert "js [bold]" in table
    assert str(tmp_path / "out" / "report.html") in said
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["{run}", "--lab", "{run}"], "holds no result of openrlhf-js lab; give its --out"),
        (["--eval", "{run}/../other.json"], "other.json holds neither results of eval passk nor"),
        (["x\x1b[31mred"], "event files in x\\x1b[31mred"),
    ],
)
def test_bad_input_is_one_line_and_status_2(run, words, complaint, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.json").write_text("[1]")
    assert report.main([word.format(run=run) for word in words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("openrlhf-js report: ")
    assert complaint in error
    assert error.count("\n") == 1
    assert not (tmp_path / "report").exists()
