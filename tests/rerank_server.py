"""A reranker behind a real HTTP server on this machine, which can fail in every way that a test names."""

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.loopback import LoopbackHTTPServer

Score = Callable[[str, str], float]


class RerankServer(LoopbackHTTPServer):
    """Serves /rerank in both dialects.

    Attributes:
        score: Scores a query and a text.
        fault: How it fails: stall, drip, flood, nan, short, status, or nothing.
        requests: The bodies that it received, and the Authorization header of each.
    """

    def __init__(self, score: Score) -> None:
        self.score, self.fault = score, ""
        self.requests: list[tuple[dict[str, Any], str | None]] = []
        self.stopped = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                """Print nothing."""

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.requests.append((body, self.headers["Authorization"]))
                try:
                    server.reply(self, body)
                except OSError:  # the client has left
                    self.close_connection = True

        super().__init__(Handler)

    def __exit__(self, *exception: object) -> None:
        self.stopped.set()
        super().__exit__(*exception)

    def reply(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        """Reply to one request, or fail."""
        if self.fault == "stall":
            self.stopped.wait(30)
            return
        field = "relevance_score" if "documents" in body else "score"
        rows: list[dict[str, Any]] = [
            {"index": place, field: self.score(body["query"], text)}
            for place, text in enumerate(body.get("documents") or body["texts"])
        ]
        rows.sort(key=lambda row: -float(row[field]))
        if self.fault == "nan":
            rows[0][field] = float("nan")
        if self.fault == "short":
            del rows[-1]
        content = json.dumps({"results": rows} if "documents" in body else rows).encode()
        handler.send_response(503 if self.fault == "status" else 200)
        endless = self.fault in {"drip", "flood"}
        handler.send_header("Content-Length", str(3 << 30 if endless else len(content)))
        handler.end_headers()
        while endless and not self.stopped.is_set():
            handler.wfile.write(b" " * (1 if self.fault == "drip" else 1 << 16))
            handler.wfile.flush()
            time.sleep(0.02 if self.fault == "drip" else 0)
        handler.wfile.write(content)
