"""The program that runs the commands of the pages."""

import runpy
import signal
import subprocess
import sys
import time
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


def test_ctrl_c_ends_the_command_that_runs(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(f"```bash\necho $$ > {tmp_path}/id; exec sleep 60\n```\n")
    with subprocess.Popen([sys.executable, SCRIPT, page], stderr=subprocess.DEVNULL) as run:
        while not (tmp_path / "id").exists() or not (tmp_path / "id").read_text():
            time.sleep(0.1)
        run.send_signal(signal.SIGINT)
    state = Path(f"/proc/{(tmp_path / 'id').read_text().strip()}/stat")
    assert run.returncode != 0
    assert not state.exists() or " Z " in state.read_text()


def test_output_that_is_no_text_is_printed_all_the_same(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("```bash\nprintf '\\xff\\n'; false\n```\n")
    run = subprocess.run([sys.executable, SCRIPT, page], capture_output=True)
    assert run.returncode == 1 and run.stdout.startswith(b"FAILED with 1")


def test_a_page_that_is_missing_is_named(tmp_path: Path):
    run = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "no.md"], capture_output=True, text=True
    )
    assert run.returncode == 2 and f"no such page: {tmp_path}/no.md" in run.stderr


def test_each_reason_not_to_run_is_some_commands():
    script = runpy.run_path(str(SCRIPT))
    pages = [page for pattern in script["PAGES"] for page in ROOT.glob(pattern)]
    found = [command for page in pages for _, command in script["commands"](page)]
    reasons = {script["reason_not_to_run"](command) for command in found}
    assert len(found) > 100
    assert reasons == {None, *script["CANNOT_RUN"].values()}
