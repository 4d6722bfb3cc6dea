"""Pages that hold what models wrote: their own script is the only one that a browser runs."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any, NamedTuple

from markupsafe import Markup

from openrlhf_js.report.pages import TEMPLATES


class Script(NamedTuple):
    """A page's script, and the content security policy that lets it run alone."""

    text: Markup
    policy: str


def script_of(template: str) -> Script:
    """The script of a template; the policy knows it by its hash, and lets nothing be loaded."""
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
