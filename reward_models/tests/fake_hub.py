"""A stand-in for the Hugging Face hub: what its client asks of it to make and fill a repository."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "hf_that_may_write"
LARGE = 1000  # bytes: what has more goes another way, as on the hub


class Hub(ThreadingHTTPServer):
    """It lets `TOKEN` write to repositories of "ada", and keeps their files."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, dict] = {}  # the request that made each
        self.files: dict[str, bytes] = {}
        self.stored: dict[str, bytes] = {}  # large ones by their hash
        self.broken = False


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        parts = self.path.split("/")  # /api/models/USER/NAME or .../auth-check/write
        name = "/".join(parts[3:5])
        made = self.server.repositories.get(name)
        if made is None:
            self._answer(404, {"error": "Repository not found"})
        elif parts[-1] == "write" and self.headers["Authorization"] != f"Bearer {TOKEN}":
            self._answer(403, {"error": "this token may not write"})
        else:
            self._answer(200, {"id": name, "private": made.get("visibility") == "private"})

    def do_PUT(self) -> None:
        self.server.stored[self.path.removeprefix("/store/")] = self._body()
        self._answer(200, {})

    def do_POST(self) -> None:
        body = self._body()
        if self.server.broken:
            self._answer(500, {"error": "the hub is down"})
        elif self.path == "/api/validate-yaml":  # without a token
            self._answer(200, {"errors": [], "warnings": []})
        elif self.headers["Authorization"] != f"Bearer {TOKEN}":
            self._answer(401, {"error": "Invalid credentials"})
        elif self.path == "/api/repos/create":
            self._create(json.loads(body))
        elif "/preupload/" in self.path:
            files = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["size"] > LARGE else "regular",
                    "shouldIgnore": False,
                    "oid": None,
                }
                for file in json.loads(body)["files"]
            ]
            self._answer(200, {"files": files})
        elif self.path.endswith(".git/info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            for each in objects:
                each["actions"] = {"upload": {"href": f"{self.server.address}/store/{each['oid']}"}}
            self._answer(200, {"transfer": "basic", "objects": objects})
        else:
            assert "/commit/main" in self.path, self.path
            self._commit([json.loads(line) for line in body.splitlines()])

    def _create(self, asked: dict) -> None:
        name = f"{asked.get('organization') or 'ada'}/{asked['name']}"
        if not name.startswith("ada/"):
            self._answer(403, {"error": "not your namespace"})
            return
        self.server.repositories.setdefault(name, asked)
        self._answer(200, {"url": f"{self.server.address}/{name}"})

    def _commit(self, lines: list[dict]) -> None:
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                self.server.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.server.files[value["path"]] = self.server.stored[value["oid"]]
        self._answer(200, {"commitUrl": f"{self.server.address}/ada/x/commit/1", "commitOid": "1"})

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, status: int, body: dict) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_) -> None:
        pass


@contextmanager
def hub() -> Iterator[Hub]:
    """A hub that answers."""
    with Hub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
