"""Judging on a page in a browser of this machine, which only its user can open.

The server listens on the loopback interface only. The URL of the page holds a secret token, so that neither another
user of the machine nor another page in the browser can read or judge. The Host header is checked against DNS
rebinding. The page loads nothing from other hosts, and inserts texts as text, not as HTML.
"""

import hmac
import secrets
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, cast

import orjson

from taugate.cli.judging.session import KEYS, JudgingSession, heading, segments
from taugate.cli.terminal.output import say
from taugate.errors import InputError, TaugateError
from taugate.ingestion.labels.judging import Judging
from taugate.service.api.playground.files import PAGE_HEADERS, page_files

_HOST = "127.0.0.1"
_HEADERS = {**PAGE_HEADERS, "Cache-Control": "no-store"}
_MAX_BYTES = 4096  # of a request body: a key, and the digits of a result
_SILENCE_SECONDS = 30  # before an idle connection is closed


def judge_on_page(work: Judging, port: int) -> None:
    """Serve the page until the judge stops there or presses Ctrl-C here.

    Args:
        work: The judge's sample.
        port: Port of the page; 0 for any free one.

    Raises:
        InputError: If the port is taken, or the data set changes meanwhile.
    """
    try:
        server = _Server((_HOST, port), _Handler)
    except (OSError, OverflowError) as error:
        raise InputError(f"--port {port}: cannot be used ({error}); give another, or leave it out") from error
    with server:
        server.open(work)
        say(f"Judge at {server.address} (Ctrl-C ends)")
        server.serve_forever(poll_interval=0.1)
    if server.failure is not None:
        raise server.failure


class _Server(ThreadingHTTPServer):
    """The server of the page, with the session that all requests share.

    Attributes:
        token: Secret part of every path.
        files: Files of the page by their path after the token; the playground has the same ones.
        failure: Error that ended the session, or None if the judge ended it.
    """

    daemon_threads = True

    def server_bind(self) -> None:
        """Bind the socket, without asking DNS for the address's name as HTTPServer does."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = _HOST, int(self.server_address[1])

    def open(self, work: Judging) -> None:
        """Set the judge's sample, before the first request."""
        self.token = secrets.token_urlsafe(24)
        self.files = page_files("judge")
        self.hosts = {f"{name}:{self.server_port}" for name in (_HOST, "localhost")}
        self.failure: TaugateError | OSError | None = None
        self._work = work
        self._remarks: list[str] = []
        self._session = JudgingSession(work, self._remarks.append)
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        """The URL of the page, with its token."""
        return f"http://{_HOST}:{self.server_port}/{self.token}/"

    def state(self) -> dict[str, Any]:
        """Return what the page shows."""
        with self._lock:
            return self._state()

    def handle_key(self, key: str, pair: str) -> dict[str, Any]:
        """Carry out the action of a key, and return the new state of the page.

        Args:
            key: One of KEYS.
            pair: Digits of the result that the page showed. A judgement of another result is rejected, which happens if
                the page is open twice.
        """
        with self._lock:
            question = self._session.question
            if key in {"y", "n", "s"} and (question is None or question.pair != pair):
                self._remarks.append("that result was already judged; this is the next one")
                return self._state()
            try:
                running = self._session.handle_key(key)
            except (TaugateError, OSError) as error:  # the data set has changed, or the disk is full
                self.failure, running = error, False
            if not running:
                message = "Stopped. All judgements are kept." if self.failure is None else str(self.failure)
                return {"message": message, "progress": str(self._work.session.progress()), "stopped": True}
            return self._state()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore closed connections; write other errors as usual."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # typeshed names the socket's type

    def _state(self) -> dict[str, Any]:
        remark = ". ".join(self._remarks)
        self._remarks.clear()
        question = self._session.question
        shown: dict[str, Any] = {"progress": str(self._work.session.progress()), "remark": remark, "keys": KEYS}
        if question is None:
            return shown | {"message": "All queries of the sample are judged. Press q to stop."}
        query, document = question.query.text, question.document
        return shown | {
            "pair": question.pair,
            "query": query,
            "heading": heading(question),
            "title": [[*segment] for segment in segments(document.title or "", query)],
            "text": [[*segment] for segment in segments(document.text, query)],
        }


class _Handler(BaseHTTPRequestHandler):
    """Answers one request of the page."""

    timeout = _SILENCE_SECONDS
    server_version, sys_version = "taugate", ""

    @property
    def _page(self) -> _Server:
        return cast(_Server, self.server)

    def do_GET(self) -> None:
        """Send the page, its style or script, or its current state."""
        name = self._name()
        if name == "state":
            self._send_json(self._page.state())
        elif name in self._page.files:
            file = self._page.files[name]
            self._send(200, file.media_type, file.content)
        elif name is not None:
            self._send(404, "text/plain", b"not found\n")

    def do_POST(self) -> None:
        """Handle a key."""
        name = self._name()
        if name is None:
            return
        length = self.headers.get("Content-Length", "")
        origin, kind = self.headers.get("Origin"), self.headers.get_content_type()
        foreign = origin is not None and origin.removeprefix("http://") not in self._page.hosts
        if name != "key" or foreign or kind != "application/json":
            self._send(403, "text/plain", b"only the page itself may send keys\n")
            return
        if not length.isdecimal() or int(length) > _MAX_BYTES:
            self._send(413, "text/plain", b"too long\n")
            return
        try:
            sent = orjson.loads(self.rfile.read(int(length)))
            key, pair = sent["key"], sent["pair"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            key = pair = None
        if not isinstance(key, str) or key not in KEYS or not isinstance(pair, str):
            self._send(422, "text/plain", b"not a key\n")
            return
        state = self._page.handle_key(key, pair)
        self._send_json(state)
        if "stopped" in state:  # in another thread: shutdown() waits for this request
            threading.Thread(target=self._page.shutdown).start()

    def _name(self) -> str | None:
        """Return the part of the path after the token; for a forbidden request, send an error and return None."""
        token, slash, name = self.path.removeprefix("/").partition("/")
        if self.headers.get("Host") not in self._page.hosts:
            self._send(403, "text/plain", b"unknown Host header\n")
        elif not slash or not hmac.compare_digest(token.encode(), self._page.token.encode()):
            self._send(404, "text/plain", b"not found\n")
        else:
            return name
        return None

    def _send_json(self, value: dict[str, Any]) -> None:
        self._send(200, "application/json", orjson.dumps(value))

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: the terminal shows only the URL of the page."""
