"""A real Chromium, driven by its DevTools protocol: what a page shows, loads and complains of."""

import asyncio
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

WIDTHS = (1280, 420)
HEIGHT = 900
ADDRESS = re.compile(rb"DevTools listening on (ws://\S+)")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--no-first-run",
)

# Elements whose content is wider than they are, unless they scroll by themselves; and what reaches
# beyond the window, unless something around it scrolls.
OVERFLOWING = """(() => {
  const scrolls = node => ["auto", "scroll"].includes(getComputedStyle(node).overflowX);
  const around = node => {
    for (let parent = node; parent; parent = parent.parentElement) if (scrolls(parent)) return true;
    return false;
  };
  return [...document.body.querySelectorAll("*")]
    .filter(node => node.getClientRects().length && !around(node))
    .filter(node => node.getBoundingClientRect().right > innerWidth + 1)
    .map(node => `${node.tagName} ${node.className} ${node.textContent.slice(0, 60)}`);
})()"""

# Text whose contrast with what is behind it is below 4.5 (WCAG 2.2, 1.4.3).
PALE = """(() => {
  const parse = text => {
    const numbers = text.match(/[\\d.]+/g).map(Number);
    return numbers.length < 4 ? [...numbers, 1] : numbers;
  };
  const over = (front, back) =>
    [0, 1, 2].map(k => front[k] * front[3] + back[k] * (1 - front[3]));
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const behind = node => {
    const layers = [];
    for (let parent = node; parent; parent = parent.parentElement)
      layers.push(parse(getComputedStyle(parent).backgroundColor));
    const page = dark ? [18, 18, 18] : [255, 255, 255];
    return layers.reverse().reduce((back, front) => over(front, back), page);
  };
  const luminance = colour => {
    const [r, g, b] = colour.map(value => value / 255)
      .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const pale = [];
  for (const node of document.body.querySelectorAll("*")) {
    const text = [...node.childNodes].filter(child => child.nodeType === 3)
      .map(child => child.textContent.trim()).join("");
    if (!text || !node.getClientRects().length) continue;
    const back = behind(node);
    const front = over(parse(getComputedStyle(node).color), back);
    const [high, low] = [luminance(front), luminance(back)].sort((a, b) => b - a);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) pale.push(`${contrast.toFixed(2)}: ${node.tagName} ${text.slice(0, 40)}`);
  }
  return pale;
})()"""

UNFOLD = 'document.querySelectorAll("details").forEach(node => { node.open = true; })'

# Boxes that are wider than what they stand in.
CUT_OFF = """[...document.querySelectorAll("html, .wide, figure, table")]
  .filter(node => node.scrollWidth > node.clientWidth + 1)
  .map(node => `${node.tagName} ${node.className} ${node.innerText.slice(0, 60)}`)"""


class Tab:
    """A page that is open, in one window."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: aiohttp.ClientWebSocketResponse):
        self._loop = loop
        self._socket = socket
        self._number = 0
        self._session = ""
        self._events: list[dict[str, Any]] = []

    def open(self, path: Path, width: int, dark: bool = False) -> None:
        """Opens a file in a window of this width."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self._events.clear()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=HEIGHT,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Page.navigate", url=path.resolve().as_uri())
        self.until("document.readyState === 'complete'")

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page; fails where it raises."""
        answer = self._call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Waits until an expression is true in the page."""
        poll = f"new Promise(done => {{ const look = () => {condition} ? done(true)"
        self.evaluate(f"{poll} : setTimeout(look, 20); look(); }})")

    def click(self, selector: str) -> None:
        """Clicks on the first element."""
        self.evaluate(f"document.querySelector({selector!r}).click()")

    def press(self, key: str) -> None:
        """Presses and releases a key where the focus is."""
        text = "\r" if key == "Enter" else ""
        code = 13 if key == "Enter" else 0
        for kind in ("keyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                text=text if kind == "keyDown" else "",
                windowsVirtualKeyCode=code,
            )

    def choose(self, selector: str, value: str, event: str) -> None:
        """Sets the value of a field, and says so to the page."""
        self.evaluate(
            f"(node => {{ node.value = {value!r}; node.dispatchEvent(new Event({event!r})) }})"
            f"(document.querySelector({selector!r}))"
        )

    def text(self, selector: str) -> str:
        """What the first element says."""
        return self.evaluate(f"document.querySelector({selector!r}).innerText")

    def texts(self, selector: str) -> list[str]:
        """What all elements say that are shown."""
        shown = f"[...document.querySelectorAll({selector!r})].filter(n => n.checkVisibility())"
        return self.evaluate(f"{shown}.map(node => node.innerText)")

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions."""
        self.evaluate("0")  # what came before it has been received
        complaints = []
        for event in self._events:
            if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded"):
                complaints.append(str(event["params"]))
            elif event["method"] == "Runtime.consoleAPICalled":
                complaints.append(str(event["params"]["args"]))
        return complaints

    @property
    def requests(self) -> list[str]:
        """The addresses that the page has asked for, but for itself and what it holds."""
        sent = [event for event in self._events if event["method"] == "Network.requestWillBeSent"]
        addresses = [event["params"]["request"]["url"] for event in sent]
        return [address for address in addresses[1:] if not address.startswith("data:")]

    def check(self) -> None:
        """What holds of every page: nothing overflows, is pale, is asked for, or goes wrong."""
        assert self.evaluate(OVERFLOWING) == []
        width = "[document.documentElement.scrollWidth, innerWidth]"
        scroll_width, window_width = self.evaluate(width)
        assert scroll_width <= window_width
        assert self.evaluate(PALE) == []
        assert self.complaints == []
        assert self.requests == []

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._loop.run_until_complete(self._answer(method, parameters))

    async def _answer(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        call: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session and not method.startswith("Target."):
            call["sessionId"] = self._session
        await self._socket.send_json(call)
        while True:
            message = await self._socket.receive_json(timeout=60)
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            if "method" in message:
                self._events.append(message)


@contextmanager
def browser() -> Iterator[Tab]:
    """A browser with one window; skips the test where there is no Chromium."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if not program:
        pytest.skip("the page is not looked at: there is no Chromium (apt-get install chromium)")
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            session, socket = loop.run_until_complete(_connect(_address(process)))
            try:
                yield Tab(loop, socket)
            finally:
                loop.run_until_complete(session.close())
                loop.close()
                process.terminate()


def check_shown(page: str, folder: Path, charts: int) -> list[str]:
    """Checks a page with so many pictures at each of WIDTHS, and returns what it says there.

    With all unfolded, nothing overflows or is cut off, is asked for, or goes wrong.
    """
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    texts = []
    with browser() as tab:
        for width in WIDTHS:
            tab.open(path, width)
            tab.evaluate(UNFOLD)
            assert tab.evaluate(CUT_OFF) == []
            drawn = "[...document.images].filter(image => image.naturalWidth > 0).length"
            assert tab.evaluate(drawn) == charts
            assert tab.complaints == []
            assert tab.requests == []
            texts.append(tab.text("body"))
    return texts


def _address(process: subprocess.Popen) -> str:
    """Where the browser listens, as it says."""
    for line in process.stderr:
        match = ADDRESS.search(line)
        if match:
            return match[1].decode()
    raise RuntimeError("Chromium did not start")


async def _connect(
    address: str,
) -> tuple[aiohttp.ClientSession, aiohttp.ClientWebSocketResponse]:
    session = aiohttp.ClientSession()
    return session, await session.ws_connect(address, max_msg_size=0)
