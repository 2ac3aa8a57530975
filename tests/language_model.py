"""An OpenAI-compatible server on a loopback port; a test sets its answers and its faults in advance."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# Replaces the model for one request: writes to the handler, or closes the connection.
Fault = Callable[[BaseHTTPRequestHandler], None]


def status(code: int, body: str = '{"error": {"message": "no"}}', **headers: str) -> Fault:
    def fault(handler: BaseHTTPRequestHandler) -> None:
        send(handler, code, body, **{name.replace("_", "-"): value for name, value in headers.items()})

    return fault


def html(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 200, "<!doctype html><title>Log in</title>", **{"Content-Type": "text/html; charset=utf-8"})


def cut_off(handler: BaseHTTPRequestHandler) -> None:
    """Promise 500 bytes, send 20 of them, and hang up."""
    handler.send_response(200)
    handler.send_header("Content-Length", "500")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"messa')
    handler.close_connection = True


def half_json(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 200, '{"choices": [{"message": {"content": "Wh')


def slow(seconds: float) -> Fault:
    def fault(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(seconds)
        handler.close_connection = True

    return fault


def send(handler: BaseHTTPRequestHandler, code: int, body: str, **headers: str) -> None:
    content = body.encode()
    handler.send_response(code)
    for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(content)


@dataclass
class JsonServer:
    """A server that takes JSON by POST; `json_server` runs it.

    Attributes:
        url: Base URL.
        faults: Faults of the next requests, one for each request.
        requests: Bodies of all requests so far.
        headers: Headers of the last request.
        times: Times of the requests, by time.monotonic().
    """

    url: str = ""
    faults: list[Fault] = field(default_factory=list)
    requests: list[dict] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)


@dataclass
class FakeModel(JsonServer):
    """A model that returns a question about the first words of a document; `answer` returns the reply to its text."""

    answer: Callable[[str], str] = lambda document: f"What is {' '.join(document.split()[:4])}?"


@contextmanager
def json_server(served: JsonServer, reply: Callable[[str, dict], Any]) -> Iterator[None]:
    """Serve what `reply` makes of a path and a body: JSON, a fault, or None for a path that does not exist."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # as in tests/loopback.py

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                served.requests.append(body)
                served.times.append(time.monotonic())
                served.headers = dict(self.headers)
                fault = served.faults.pop(0) if served.faults else None
            value = reply(self.path, body) if fault is None else fault
            if callable(value):
                value(self)
            elif value is None:
                send(self, 404, '{"error": {"message": "no such path"}}')
            else:
                send(self, 200, json.dumps(value))

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # a client that hangs up is part of the tests
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    served.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def fake_model() -> Iterator[FakeModel]:
    model = FakeModel()

    def reply(path: str, body: dict) -> Any:
        if path != "/v1/chat/completions":
            return None
        text = model.answer(body["messages"][-1]["content"].removeprefix("Document: "))
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        return {"choices": [{"message": {"content": text}}], "usage": usage}

    with json_server(model, reply):
        yield model
