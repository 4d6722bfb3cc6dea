"""What mkdocs needs beside the pages of this folder: READMEs as pages, formulas as MathML."""

import html
import re
from pathlib import Path, PurePosixPath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

# Pages that stand elsewhere in the repository, and what the site calls them.
ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "eval/README.md": "evaluate.md",
    "reward_models/README.md": "rewards.md",
    "research/README.md": "research.md",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)#\s]*)(#[^)\s]*)?\)")
PICTURE = re.compile(r'<img src="([^"]*)" width="([^"]*)" alt="([^"]*)">')
CODE = re.compile(r"<code>([^<]*)</code>")
FLAG = re.compile(r"--[\w.]+")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand elsewhere, and make the links of all pages those of the site."""
    root = Path(config.config_file_path).parent
    for source, name in ELSEWHERE.items():
        text = (root / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_relink(text, source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if page.file.generated_by:  # by on_files
        return markdown
    return _relink(markdown, f"docs/{page.file.src_uri}")


def on_page_content(content: str, **_: Any) -> str:
    """Formulas that any browser shows, without a script, and flags that are not broken."""

    def mathml(match: re.Match[str]) -> str:
        return convert(html.unescape(match[3]), display="block" if match[2] == "[" else "inline")

    def flags(match: re.Match[str]) -> str:
        return FLAG.sub(r'<span class="flag">\g<0></span>', match[0])

    return CODE.sub(flags, FORMULA.sub(mathml, content))


def _relink(markdown: str, source: str) -> str:
    """Links between files of the repository as links of the site; to what it lacks, as text."""
    markdown = PICTURE.sub(r"![\3](\1){ width=\2 }", markdown)

    def relinked(match: re.Match[str]) -> str:
        picture, text, target, anchor = match.groups(default="")
        parts: list[str] = []
        for part in (*PurePosixPath(source).parent.parts, *PurePosixPath(target).parts):
            parts = parts[:-1] if part == ".." else [*parts, part]
        path = "/".join(parts)
        path = path if PurePosixPath(path).suffix else f"{path}/README.md"
        if path in ELSEWHERE:
            return f"[{text}]({ELSEWHERE[path]}{anchor})"
        if path.startswith("docs/"):
            target = path.removeprefix("docs/")
            return f"{picture}[{text}]({target}{anchor})"
        return text

    return LINK.sub(relinked, markdown)
