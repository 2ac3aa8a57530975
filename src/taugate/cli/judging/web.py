"""Judging on a page in the browser of this machine, which nobody else can open.

The server listens on the loopback interface alone. The address of the page holds a token, so that neither another user
of the machine nor another page in the browser can read or answer; the names that a request may give to the server are
checked, so that no foreign name can be bound to this address. The page loads nothing from elsewhere, and texts are put
into it as texts.
"""

import hmac
import secrets
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, cast

import orjson

from taugate.cli.judging.desk import KEYS, Desk, heading, segments
from taugate.cli.terminal.output import say
from taugate.errors import InputError, TaugateError
from taugate.ingestion.labels.judging import Judging
from taugate.service.api.playground.files import PAGE_HEADERS, page_files

_HOST = "127.0.0.1"
_HEADERS = {**PAGE_HEADERS, "Cache-Control": "no-store"}
_MAX_BYTES = 4096  # of a request's body: a key, and the digits of a result
_SILENCE_SECONDS = 30  # after which a connection that sends nothing is closed


def judge_on_page(work: Judging, port: int) -> None:
    """Serve the page until the judge stops there or presses Ctrl-C here.

    Args:
        work: The judge's sample.
        port: Of the page; 0 takes a free one.

    Raises:
        InputError: Where the port is taken, or the data set changes meanwhile.
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
    """The page's server, with the desk that all of its requests share.

    token: part of every path. files: of the page, by the path behind the token, the playground's own. failure: what
    ended the work, None where the judge did.
    """

    daemon_threads = True

    def server_bind(self) -> None:
        """Bind the socket, without asking DNS for the address's name as HTTPServer does."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = _HOST, int(self.server_address[1])

    def open(self, work: Judging) -> None:
        """Take a judge's work, before the first request."""
        self.token = secrets.token_urlsafe(24)
        self.files = page_files("judge")
        self.hosts = {f"{name}:{self.server_port}" for name in (_HOST, "localhost")}
        self.failure: TaugateError | OSError | None = None
        self._work = work
        self._remarks: list[str] = []
        self._desk = Desk(work, self._remarks.append)
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        """The address of the page, with its token."""
        return f"http://{_HOST}:{self.server_port}/{self.token}/"

    def state(self) -> dict[str, Any]:
        """Return what the page shows."""
        with self._lock:
            return self._state()

    def press(self, key: str, pair: str) -> dict[str, Any]:
        """Do what a key says, and return what the page shows then.

        Args:
            key: One of KEYS.
            pair: Digits of the result that the page showed; a judgement of another one is not taken, as where the page
                is open twice.
        """
        with self._lock:
            question = self._desk.question
            if key in {"y", "n", "s"} and (question is None or question.pair != pair):
                self._remarks.append("that result was judged before; here is the next one")
                return self._state()
            try:
                going_on = self._desk.press(key)
            except (TaugateError, OSError) as error:  # the data set has changed, or the disk is full
                self.failure, going_on = error, False
            if not going_on:
                message = "Stopped. All judgements are kept." if self.failure is None else str(self.failure)
                return {"message": message, "progress": str(self._work.session.progress()), "stopped": True}
            return self._state()

    def handle_error(self, request: object, client_address: object) -> None:
        """Write nothing about a browser that hung up; other errors are written as usual."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # typeshed names the socket's type

    def _state(self) -> dict[str, Any]:
        remark = ". ".join(self._remarks)
        self._remarks.clear()
        question = self._desk.question
        shown: dict[str, Any] = {"progress": str(self._work.session.progress()), "remark": remark, "keys": KEYS}
        if question is None:
            return shown | {"message": "All queries of the sample are judged. Press q to stop."}
        query, document = question.query.text, question.document
        return shown | {
            "pair": question.pair,
            "query": query,
            "heading": heading(question),
            "title": [[*each] for each in segments(document.title or "", query)],
            "text": [[*each] for each in segments(document.text, query)],
        }


class _Handler(BaseHTTPRequestHandler):
    """Answers one request of the page."""

    timeout = _SILENCE_SECONDS
    server_version, sys_version = "taugate", ""

    @property
    def _page(self) -> _Server:
        return cast(_Server, self.server)

    def do_GET(self) -> None:
        """Send the page, its style and script, or what it shows now."""
        name = self._name()
        if name == "state":
            self._send_json(self._page.state())
        elif name in self._page.files:
            file = self._page.files[name]
            self._send(200, file.media_type, file.content)
        elif name is not None:
            self._send(404, "text/plain", b"not found\n")

    def do_POST(self) -> None:
        """Take a key."""
        name = self._name()
        if name is None:
            return
        length = self.headers.get("Content-Length", "")
        origin, kind = self.headers.get("Origin"), self.headers.get_content_type()
        foreign = origin is not None and origin.removeprefix("http://") not in self._page.hosts
        if name != "key" or foreign or kind != "application/json":
            self._send(403, "text/plain", b"only the page itself may answer\n")
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
        state = self._page.press(key, pair)
        self._send_json(state)
        if "stopped" in state:  # in a thread of its own, as it waits for the server that waits for this one
            threading.Thread(target=self._page.shutdown).start()

    def _name(self) -> str | None:
        """Return the part of the path behind the token; a request that may not ask gets its answer here."""
        token, slash, name = self.path.removeprefix("/").partition("/")
        if self.headers.get("Host") not in self._page.hosts:
            self._send(403, "text/plain", b"this page has another address\n")
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
        """Write nothing: the terminal shows the address of the page, and not each request."""
