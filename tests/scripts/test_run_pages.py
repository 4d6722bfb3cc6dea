"""The program that runs the commands of the pages."""

import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "run_pages.py"
PAGE = """
```bash
name=$(echo its own)    # what later lines need
cd docs
test "$name" = "its own"   # a comment
for each in 1 2; do
    test $each = 1
done
openrlhf-js train run.yaml
sleep 60
```
"""


def test_a_page_is_run_as_printed(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    command = [sys.executable, SCRIPT, page, "--limit", "2"]
    run = subprocess.run(command, capture_output=True, text=True)
    lines = run.stdout.splitlines()
    assert run.returncode == 1
    assert lines[0].startswith("done after")
    assert lines[1].startswith("FAILED with 1") and lines[1].endswith("for each in 1 2; do")
    assert any(line.startswith("not run: to fill in") for line in lines)
    assert lines[-1].startswith("interrupted after") and lines[-1].endswith("sleep 60")


def test_each_reason_not_to_run_is_some_commands():
    script = runpy.run_path(str(SCRIPT))
    pages = [page for pattern in script["PAGES"] for page in ROOT.glob(pattern)]
    found = [command for page in pages for _, command in script["commands"](page)]
    reasons = {script["reason_not_to_run"](command) for command in found}
    assert len(found) > 100
    assert reasons == {None, *script["CANNOT_RUN"].values()}
