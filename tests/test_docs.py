"""The documentation: it builds as a site, and the tutorial runs."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]

PAGES = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("*/README.md")]


def test_the_repositorys_address_is_that_of_pyproject():
    """Wherever a page or the tutorial gives it to a command."""
    (address,) = re.findall(r'^Repository = "(.+?)"', (ROOT / "pyproject.toml").read_text(), re.M)
    given = re.compile(r"(?:git clone |git\+|repository=)(?!\$)([\w/:.-]+(?= openrlhf_js|\\\"|  ))")
    pages = [*PAGES, ROOT / "docs/tutorial.ipynb"]
    found = [(page.name, where) for page in pages for where in given.findall(page.read_text())]
    assert {where for _, where in found} == {address}
    assert {"install.md", "tutorial.ipynb"} <= {page for page, _ in found}


def test_what_the_rewards_page_says_of_the_graders_is_so():
    page = (ROOT / "reward_models/README.md").read_text()
    sessions = "\n".join(re.findall(r"```pycon\n(.*?)```", page, re.DOTALL))
    examples = doctest.DocTestParser().get_doctest(sessions, {}, "README.md", None, 0)
    printed: list[str] = []
    results = doctest.DocTestRunner().run(examples, out=printed.append)
    assert results.attempted > 10
    assert results.failed == 0, "".join(printed)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; a broken link, a missing anchor or a page outside the menu is an error."""
    folder = tmp_path_factory.mktemp("site")
    mkdocs = Path(sys.executable).with_name("mkdocs")
    built = subprocess.run(
        [mkdocs, "build", "--strict", "--site-dir", folder], cwd=ROOT, capture_output=True
    )
    assert built.returncode == 0, built.stderr.decode()
    return folder


def test_the_site_has_formulas_docstrings_and_nothing_from_elsewhere(site):
    pages = {page: page.read_text() for page in site.rglob("*.html")}
    assert len(pages) > 15
    assert all("arithmatex" not in text for text in pages.values())  # each formula is MathML
    assert "<math" in pages[site / "report/index.html"]
    assert "share_of_equal_groups" in pages[site / "train/index.html"]
    assert "loo_prompt_mean" in pages[site / "api/index.html"]  # from the docstrings
    for text in pages.values():
        assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="https?://', text)


def test_the_tutorial_runs(monkeypatch):
    """All of its cells, with a shorter study."""
    monkeypatch.delenv("MPLBACKEND", raising=False)  # a notebook shows its pictures by its own
    notebook = nbformat.read(ROOT / "docs/tutorial.ipynb", as_version=4)
    install = notebook.cells[1]
    assert install.source.startswith("%pip install")
    install.source = ""  # it is installed here
    for cell in notebook.cells:
        shorter = cell.source.replace("--seeds 4 --steps 60", "--seeds 2 --steps 4 --samples 1")
        cell.source = shorter.replace("--width 64 --layers 2", "--width 16 --layers 1 --jobs 1")
    NotebookClient(notebook, timeout=150, resources={"metadata": {"path": ROOT / "docs"}}).execute()
    printed = str([cell.get("outputs") for cell in notebook.cells])
    assert printed.count("image/png") == 2 and "js_grad" in printed
