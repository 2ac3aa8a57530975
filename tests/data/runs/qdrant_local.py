"""Qdrant's REST API for searches, answered by the local mode of qdrant-client, which is Qdrant's own code."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from pydantic import TypeAdapter
from qdrant_client import QdrantClient, models

from tests.loopback import LoopbackHTTPServer

_ONE, _BATCH = TypeAdapter(models.QueryRequest), TypeAdapter(models.QueryRequestBatch)
COLLECTION = "documents"


@contextmanager
def qdrant(client: QdrantClient) -> Iterator[str]:
    """Serve the collection of a client; yields the URL. Every other request is 404."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            path = self.path.removeprefix(f"/collections/{COLLECTION}/points/query")
            if path not in {"", "/batch"}:
                return self._send(404, {"status": {"error": "Not found"}})
            requests = [_ONE.validate_json(body)] if not path else _BATCH.validate_json(body).searches
            with lock:
                replies = client.query_batch_points(COLLECTION, requests=requests)
            result = [json.loads(reply.model_dump_json()) for reply in replies]
            return self._send(200, {"result": result if path else result[0], "status": "ok", "time": 0.0})

        def _send(self, status: int, value: object) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with LoopbackHTTPServer(Handler) as server:
        yield server.url
