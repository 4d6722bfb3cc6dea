"""Patches and adapters of docs/upstream.md, which several test files try."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[1] / "docs"


def code_of(section: str) -> str:
    """What a section of the page says in Python, behind what all sections begin with."""
    page = (DOCS / "upstream.md").read_text()
    (first,) = re.findall(r"begin with:\n\n```python\n(.*?)```", page, re.S)
    (code,) = re.findall(rf"## {section}\n[^#]*?```python\n(.*?)```", page, re.S)
    return first + code


def patched(folder: Path, patch: str, package: Path, wanted: str) -> ModuleType:
    """A module of a package, after a patch of copies of the installed files."""
    difference = (DOCS / patch).read_text()
    for name in re.findall(r"^--- a/[a-z]+/(.*)$", difference, re.M):
        copy = folder / package.name / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(package / name, copy)
    command = ["patch", "-p1", "--fuzz=0"]
    subprocess.run(command, cwd=folder, input=difference, text=True, check=True)
    for name in re.findall(r"^--- a/([a-z]+/.*)$", difference, re.M):
        compile((folder / name).read_text(), name, "exec")
    file = (folder / package.name / wanted.replace(".", "/")).with_suffix(".py")
    spec = importlib.util.spec_from_file_location(f"{package.name}.{wanted}_patched", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
