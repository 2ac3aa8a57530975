"""A server of embeddings on a loopback port, in both dialects; a test sets its model and its faults."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np

from tests.language_model import Fault, JsonServer, json_server, status

Encode = Callable[[Sequence[str]], np.ndarray]


def random_directions(texts: Sequence[str], dimension: int = 32) -> np.ndarray:
    """Return a random vector for each text, which only the text decides."""
    return np.stack([np.random.default_rng([*text.encode()]).standard_normal(dimension) for text in texts])


@dataclass
class EmbeddingServer(JsonServer):
    """A server of embeddings.

    Attributes:
        encode: Its model; the vectors need no unit length.
        change: Changes the JSON of every reply.
        refused: A text with these words is refused,
        refusal: with this status.
        max_digits: A text with more digits is refused as too long, as each is a token,
        too_long: with this status and body.
    """

    encode: Encode = random_directions
    change: Callable[[Any], Any] = field(default=lambda reply: reply)
    refused: str | None = None
    refusal: int = 413
    max_digits: int | None = None
    too_long: tuple[int, str] = (400, '{"error": {"message": "maximum context length is 512 tokens"}}')

    @property
    def texts(self) -> list[str]:
        """All texts that were sent so far."""
        return [text for body in self.requests for text in body.get("input") or body["inputs"]]


@contextmanager
def embedding_server(encode: Encode = random_directions) -> Iterator[EmbeddingServer]:
    served = EmbeddingServer(encode=encode)

    def reply(path: str, body: dict) -> Any:
        if served.refused is not None and any(served.refused in text for text in body["input"]):
            return status(served.refusal, '{"error": {"message": "input is too long"}}')
        texts = body.get("input") or body["inputs"]
        if served.max_digits is not None and any(sum(map(str.isdigit, t)) > served.max_digits for t in texts):
            return status(*served.too_long)
        if path == "/v1/embeddings":
            vectors = served.encode(body["input"])[:, : body.get("dimensions")]
            data = [{"object": "embedding", "index": row, "embedding": v.tolist()} for row, v in enumerate(vectors)]
            usage = {"prompt_tokens": 1, "total_tokens": 1}
            return served.change({"object": "list", "data": data[::-1], "model": body["model"], "usage": usage})
        return served.change(served.encode(body["inputs"]).tolist()) if path == "/v1/embed" else None

    with json_server(served, reply):
        yield served


def dribbling(seconds: float) -> Fault:
    """Send a header every 50 ms, for so many seconds."""

    def fault(handler: BaseHTTPRequestHandler) -> None:
        handler.connection.sendall(b"HTTP/1.1 200 OK\r\n")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            handler.connection.sendall(b"X-Padding: x\r\n")
            time.sleep(0.05)
        handler.close_connection = True

    return fault


def flooding(megabytes: int, part: bytes) -> Fault:
    """Send a reply of so many megabytes, which repeats a part."""

    def fault(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(megabytes << 20))
        handler.end_headers()
        block = part * ((1 << 20) // len(part))
        for _ in range(megabytes):
            handler.wfile.write(block)
        handler.close_connection = True

    return fault
