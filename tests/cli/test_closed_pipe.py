"""`openrlhf-js ... | head`: a reader that leaves is no error."""

import os
import subprocess
import sys

import pytest
from kit import write_lines

from openrlhf_js.cli.main import CLOSED_PIPE

MAIN = [sys.executable, "-m", "openrlhf_js.cli.main"]


@pytest.mark.parametrize("words", ["--help", "data check rows.jsonl"])  # help stays in the buffer
def test_a_reader_that_leaves_ends_a_program_without_a_message(tmp_path, words):
    write_lines(tmp_path / "rows.jsonl", [{"input": "2 + 2?", "label": "4", "datasource": "gsm8k"}])
    reader, writer = os.pipe()
    os.close(reader)
    call = subprocess.run(
        [*MAIN, *words.split()], cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    assert call.returncode == CLOSED_PIPE
    assert call.stderr == b""
