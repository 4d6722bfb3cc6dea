"""The parts of a page that needs no other file: it opens offline, and names cannot break it."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence

from openrlhf_js.report.style import printable

STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; color: #37352f; background: #fff; max-width: 84rem;
       margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.7rem; margin: 0 0 .5rem } h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem }
p { margin: .5rem 0; max-width: 60rem } .quiet { color: #6b6862; font-size: .9rem }
.wide { overflow-x: auto; margin: 1rem 0 }
table { border-collapse: collapse }
td, th { padding: .25rem .9rem .25rem 0; text-align: left; border-bottom: 1px solid #e3e2e0;
         vertical-align: top; overflow-wrap: break-word; min-width: 5rem; max-width: 30rem }
td:last-child:nth-child(2), h1, p { overflow-wrap: anywhere }
.whole td, .whole th { white-space: nowrap; max-width: none }
th { font-weight: 600 } td { font-variant-numeric: tabular-nums }
.panels { display: grid; gap: 1.6rem 2rem;
          grid-template-columns: repeat(auto-fill, minmax(min(100%, 25rem), 1fr)) }
figure { display: inline-block; vertical-align: top; margin: 0 1rem 1rem 0; max-width: 100% }
.panels figure { margin: 0 }
figure img { max-width: 100%; height: auto }
.panels img { width: 100% }
.swatch { height: 1em; width: 3.6em; vertical-align: -.1em; margin-right: .5em }
figcaption { font-weight: 600 }
figcaption.quiet { font-weight: normal }
summary { cursor: pointer; font-weight: 600; margin: .6rem 0 }
@media (prefers-color-scheme: dark) {
  body { color: #e6e4df; background: #191919 } .quiet { color: #a5a29a }
  td, th { border-color: #3a3936 }
  img { filter: invert(.9) hue-rotate(180deg) }
}
@media print { figure { break-inside: avoid } }
"""


def page(title: str, parts: Iterable[str], head: str = "") -> str:
    """A whole page.

    Args:
        title: any text.
        parts: of the body, as HTML.
        head: more of its head, as HTML.
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title>{head}<style>{STYLE}</style></head>\n"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def text(of: str) -> str:
    """Any text as HTML; names come from files, and may hold anything."""
    return html.escape(printable(of))


def paragraph(of: str, quiet: bool = False) -> str:
    """One paragraph of any text, nothing where there is none."""
    kind = ' class="quiet"' if quiet else ""
    return f"<p{kind}>{text(of)}</p>" if of else ""


def table(columns: Sequence[str], body: Iterable[Sequence[str]], whole: bool = False) -> str:
    """A table of any texts, which scrolls by itself where it is too wide.

    Args:
        columns: their names; none for a table without a head.
        body: its rows.
        whole: whether a cell stays on one line.
    """
    cells = ([text(cell) for cell in row] for row in body)
    return table_of([text(each) for each in columns], cells, whole)


def table_of(columns: Sequence[str], body: Iterable[Sequence[str]], whole: bool = False) -> str:
    """A `table` whose cells are HTML already."""
    head = "".join(f"<th>{each}</th>" for each in columns)
    lines = ("<tr>" + "".join(f"<td>{each}</td>" for each in row) + "</tr>" for row in body)
    top = f"<tr>{head}</tr>" if head else ""
    kind = "wide whole" if whole else "wide"
    return f'<div class="{kind}"><table>{top}{"".join(lines)}</table></div>'


def image(svg: str, said: str, kind: str = "") -> str:
    """A picture inside the page; as an address, since two SVGs would share names of their parts.

    Args:
        svg: the picture.
        said: to those who do not see it.
        kind: its class in `STYLE`.
    """
    of = f' class="{kind}"' if kind else ""
    address = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
    return f'<img{of} alt="{text(said)}" src="{address}">'


def figure(svg: str, said: str, caption: str, quiet: bool = False) -> str:
    """A picture with a caption over it, or a quieter one under it."""
    kind = ' class="quiet"' if quiet else ""
    words = f"<figcaption{kind}>{text(caption)}</figcaption>" if caption else ""
    picture = image(svg, said)
    return f"<figure>{picture}{words}</figure>" if quiet else f"<figure>{words}{picture}</figure>"


def folded(title: str, inside: str) -> str:
    """Something long that is shown when asked for."""
    return f"<details><summary>{text(title)}</summary>{inside}</details>" if inside else ""
