"""A stand-in for the Hugging Face Hub on a loopback port: the five kinds of requests that a download makes.

Source: huggingface_hub 2.4, `hf_api.py` (model_info, list_repo_tree) and `file_download.py` (HEAD, then GET with a
range, on `/<model>/resolve/<commit>/<file>`).
"""

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL = "acme/tiny"


@dataclass
class FakeHub:
    """Serves one model, `acme/tiny`, whose `files` are name → content, at one commit.

    `break_after` maps a file to a number of bytes: after these, the line breaks, once. `stalled` names a file whose
    download stops in the middle until `release`.
    """

    files: dict[str, bytes]
    break_after: dict[str, int] = field(default_factory=dict)
    stalled: str | None = None
    refusal: tuple[int, dict[str, str]] | None = None
    """Status and headers that every request is refused with, if any."""

    def __post_init__(self) -> None:
        """Listen on a free port."""
        self.requests: list[str] = []
        """Every request: method, path and, where there is one, the range."""
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, name="fake-hub", daemon=True)

    @property
    def url(self) -> str:
        """What HF_ENDPOINT must be."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def release(self) -> None:
        """End the stall."""
        self.stalled = None
        self._released.set()

    def _handler(hub) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - `self` is the handler's own
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments: object) -> None:
                """Say nothing."""

            def do_HEAD(self) -> None:
                hub._answer(self, with_body=False)

            def do_GET(self) -> None:
                hub._answer(self, with_body=True)

        return Handler

    def _answer(self, handler: BaseHTTPRequestHandler, *, with_body: bool) -> None:
        wanted = handler.headers.get("Range") or ""
        self.requests.append(f"{handler.command} {handler.path} {wanted}".strip())
        path = handler.path.partition("?")[0]
        if self.refusal is not None:
            self._send(handler, b"", *self.refusal)
        elif path == f"/api/models/{MODEL}" or path.startswith(f"/api/models/{MODEL}/revision/"):
            self._send_json(handler, {"id": MODEL, "sha": COMMIT, "siblings": self._siblings()})
        elif path == f"/api/models/{MODEL}/tree/{COMMIT}":
            self._send_json(handler, self._tree())
        elif path.startswith(f"/{MODEL}/resolve/{COMMIT}/"):
            self._send_file(handler, path.rpartition(f"/{COMMIT}/")[2], wanted, with_body=with_body)
        else:
            self._send(handler, b"", 404, {"X-Error-Code": "RepoNotFound"})

    def _siblings(self) -> list[dict[str, object]]:
        return [{"rfilename": name, "size": len(content)} for name, content in self.files.items()]

    def _tree(self) -> list[dict[str, object]]:
        return [
            {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha256(content).hexdigest()[:40]}
            for name, content in self.files.items()
        ]

    def _send_json(self, handler: BaseHTTPRequestHandler, content: object) -> None:
        self._send(handler, json.dumps(content).encode(), 200, {"Content-Type": "application/json"})

    def _send(self, handler: BaseHTTPRequestHandler, body: bytes, status: int, headers: dict[str, str]) -> None:
        handler.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    def _send_file(self, handler: BaseHTTPRequestHandler, name: str, wanted: str, *, with_body: bool) -> None:
        content = self.files[name]
        start = int(wanted.removeprefix("bytes=").partition("-")[0] or 0)
        handler.send_response(206 if wanted else 200)
        handler.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        handler.send_header("X-Repo-Commit", COMMIT)
        handler.send_header("Content-Length", str(len(content) - start))
        if wanted:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        handler.end_headers()
        if with_body:
            self._write(handler, name, content[start:])

    def _write(self, handler: BaseHTTPRequestHandler, name: str, body: bytes) -> None:
        if name == self.stalled:
            handler.wfile.write(body[:1])
            self._released.wait()
        handler.wfile.write(body[: self.break_after.get(name)])
        handler.close_connection = self.break_after.pop(name, None) is not None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
