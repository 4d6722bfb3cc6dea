"""A page in Chromium at the widths of a laptop and of a phone, as a reader sees it."""

import json
import re
import shutil
import subprocess
from html import unescape
from typing import Any, NamedTuple

import pytest

LAPTOP, PHONE = 1280, 420  # pixels

# Shows the page in a frame of each width, opens all that is folded, and measures it.
READER = """<pre></pre><script>
const cut = (inner, outer) => inner.left < outer.left - 1 || inner.right > outer.right + 1;
const views = WIDTHS.map(width => new Promise(done => {
  const frame = document.createElement("iframe");
  Object.assign(frame, { width, height: 900, src: "page.html" });
  frame.onload = () => {
    const page = frame.contentDocument, all = name => [...page.querySelectorAll(name)];
    for (const folded of all("details")) folded.open = true;
    setTimeout(() => done({
      width,
      overflowing: ["html", ".wide", ".chart", "figure", "table"].flatMap(all)
        .filter(part => part.scrollWidth > part.clientWidth + 1)
        .map(part => `${part.tagName} ${part.className} ${part.innerText.slice(0, 60)}`),
      cut: all(".chart").flatMap(chart => [...chart.querySelectorAll("svg text")]
        .filter(text => cut(text.getBoundingClientRect(), chart.getBoundingClientRect()))
        .map(text => text.textContent)),
      charts: all(".chart svg").length,
      text: page.body.innerText,
      requests: frame.contentWindow.performance.getEntriesByType("resource")
        .map(entry => entry.name),
    }), 3000);
  };
  document.body.append(frame);
}));
Promise.all(views).then(all => document.querySelector("pre").textContent = JSON.stringify(all));
</script>""".replace("WIDTHS", str([LAPTOP, PHONE]))


class View(NamedTuple):
    """What a reader sees at one width."""

    width: int
    overflowing: list[str]
    cut: list[str]  # texts of charts that leave their chart
    charts: int  # that are drawn
    text: str
    requests: list[str]


def views_of(page: str, folder: Any) -> list[View]:
    """The page as HTML, looked at; the test fails at anything on the console."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        pytest.skip("the page is not looked at: there is no Chromium (apt-get install chromium)")
    (folder / "page.html").write_text(page, encoding="utf-8")
    (folder / "reader.html").write_text(READER, encoding="utf-8")
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    words += ["--enable-logging=stderr", "--virtual-time-budget=30000", "--dump-dom"]
    shown = subprocess.run(
        [chromium, *words, f"file://{folder}/reader.html"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert re.findall("CONSOLE.*", shown.stderr) == []
    return [
        View(**view)
        for view in json.loads(unescape(shown.stdout.partition("<pre>")[2].partition("</pre>")[0]))
    ]


def check_shown(page: str, folder: Any, charts: int) -> list[View]:
    """Nothing overflows or is cut off at either width, and nothing is asked for."""
    views = views_of(page, folder)
    assert [view.width for view in views] == [LAPTOP, PHONE]
    for view in views:
        assert view.overflowing == []
        assert view.cut == []
        assert view.charts == charts
        assert view.requests == []
    return views
