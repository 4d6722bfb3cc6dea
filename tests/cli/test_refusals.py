"""Wrong flags are answered at once, with a message that says what is allowed, and leave nothing."""

from pathlib import Path

import pytest

from openrlhf_js.cli.main import main

LINES = Path(__file__).with_name("refusals.txt").read_text().splitlines()[2:]


@pytest.mark.parametrize("line", filter(None, LINES))
def test_wrong_flags_get_a_message_and_status_2(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words, message = line.split(" ~ ")
    try:
        status = main(words.split())
    except SystemExit as left:
        status = left.code
    shown = capsys.readouterr()
    assert status == 2 and message in shown.err + shown.out and "Traceback" not in shown.err
    assert not any(path.is_file() for path in tmp_path.rglob("*"))  # nothing was begun
