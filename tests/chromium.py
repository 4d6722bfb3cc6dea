"""A page in a real Chromium, driven by its DevTools protocol over a pipe."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe")
WITH_PIPES = 'read=$1 write=$2; shift 2; exec "$@" 3<&"$read" 4>&"$write"'  # as Chromium wants them
COMPLAINTS = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
REQUEST = "Network.requestWillBeSent"


class Tab:
    """A page that is open."""

    def __init__(self, commands: IO[bytes], messages: IO[bytes], path: Path):
        self._commands = commands
        self._messages = messages
        self._number = 0
        self._session: dict[str, str] = {}
        self._events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
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
        for kind in ("rawKeyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key)

    def choose(self, selector: str, value: str, event: str) -> None:
        """Sets the value of a field, and tells the page."""
        self.evaluate(
            f"(node => {{ node.value = {value!r}; node.dispatchEvent(new Event({event!r})) }})"
            f"(document.querySelector({selector!r}))"
        )

    def text(self, selector: str) -> str:
        """The text of the first element."""
        return self.evaluate(f"document.querySelector({selector!r}).innerText")

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements that are shown."""
        shown = f"[...document.querySelectorAll({selector!r})].filter(n => n.checkVisibility())"
        return self.evaluate(f"{shown}.map(node => node.innerText)")

    def check(self) -> None:
        """Fails where a script raised, the console complains, or the page asks for another file."""
        self.evaluate("0")  # all earlier messages have been received
        complaints = [event for event in self._events if event["method"] in COMPLAINTS]
        requests = [event for event in self._events if event["method"] == REQUEST]
        addresses = [request["params"]["request"]["url"] for request in requests]
        assert complaints == []
        assert [address for address in addresses[1:] if not address.startswith("data:")] == []

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        call = {"id": self._number, "method": method, "params": parameters, **self._session}
        self._commands.write(json.dumps(call).encode() + b"\0")
        self._commands.flush()
        while True:
            message = self._receive()
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            if "method" in message:
                self._events.append(message)

    def _receive(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._messages.read(1)) != b"\0":
            assert byte, "Chromium has ended"
            text += byte
        return json.loads(text)


@contextmanager
def opened(path: Path) -> Iterator[Tab]:
    """The page in a browser of its own; skips the test where there is no Chromium."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if not program:
        pytest.skip("the page is not opened: there is no Chromium (apt-get install chromium)")
    from_us, commands = os.pipe()
    messages, to_us = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = ["bash", "-c", WITH_PIPES, "bash", str(from_us), str(to_us), program, *FLAGS]
        browser = subprocess.Popen(
            [*command, f"--user-data-dir={folder}"],
            pass_fds=(from_us, to_us),
            stderr=subprocess.DEVNULL,
        )
        os.close(from_us)
        os.close(to_us)
        try:
            with open(commands, "wb") as sending, open(messages, "rb") as receiving:
                yield Tab(sending, receiving, path)
        finally:
            browser.terminate()
            browser.wait()
