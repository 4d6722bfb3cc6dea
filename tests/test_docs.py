"""The documentation: it builds as a site without a warning, and the tutorial runs."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]


def test_the_site_builds_without_a_warning(tmp_path):
    """Strict: a broken link, a missing anchor or a page outside the menu is an error."""
    mkdocs = Path(sys.executable).with_name("mkdocs")
    built = subprocess.run(
        [mkdocs, "build", "--strict", "--site-dir", tmp_path], cwd=ROOT, capture_output=True
    )
    assert built.returncode == 0, built.stderr.decode()
    pages = {page: page.read_text() for page in tmp_path.rglob("*.html")}
    assert len(pages) > 25
    assert all("arithmatex" not in text for text in pages.values())  # each formula is MathML
    assert "<math" in pages[tmp_path / "derivations/index.html"]
    assert "shrinkage_mean" in pages[tmp_path / "train/index.html"]
    assert "loo_prompt_mean" in pages[tmp_path / "api/index.html"]  # from the docstrings
    for text in pages.values():  # nothing is loaded from anywhere else
        assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="https?://', text)


def test_the_tutorial_runs(monkeypatch):
    """All of its cells, with a shorter study."""
    monkeypatch.delenv("MPLBACKEND", raising=False)  # a notebook shows its pictures by its own
    notebook = nbformat.read(ROOT / "docs/tutorial.ipynb", as_version=4)
    for cell in notebook.cells:
        shorter = cell.source.replace("--seeds 4 --steps 60", "--seeds 2 --steps 4 --samples 1")
        cell.source = shorter.replace("--width 64 --layers 2", "--width 16 --layers 1 --jobs 1")
    NotebookClient(notebook, timeout=150, resources={"metadata": {"path": ROOT / "docs"}}).execute()
    printed = str([cell.get("outputs") for cell in notebook.cells])
    assert printed.count("image/png") == 2 and "js_plus" in printed
