"""Pages: one HTML file each, which opens offline and needs no other."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from paired_eval import __version__
from paired_eval.pages.text import printable

TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    finalize=lambda text: text if isinstance(text, Markup) else printable(str(text)),
)


class Script(NamedTuple):
    """A page's script, and the content security policy that allows only this script."""

    text: Markup
    policy: str


def render(template: str | jinja2.Template, **context: Any) -> str:
    """A page from a template or its name; all text is escaped: names may come from files."""
    return TEMPLATES.get_template(template).render(
        written=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=__version__,
        **context,
    )


def script_of(template: str) -> Script:
    """The only script that a browser runs on a page with models' texts; the page loads nothing."""
    text = TEMPLATES.get_template(template).render()
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:"
    )
    return Script(Markup(text), policy)


def embedded(value: Any) -> Markup:
    """A value as JSON for a script element, which no text in it can close."""
    return Markup(json.dumps(value, ensure_ascii=False).replace("<", "\\u003c"))
