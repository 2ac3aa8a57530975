"""The services that are measured: how each is started, and how it is asked one query."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import orjson

from benchmarks.checkout import ROOT, python_path
from benchmarks.serving.client import get, post

PEERS = "benchmarks.serving.peers"
Call = tuple[str, str, bytes | None]  # method, path, body


@dataclass(frozen=True)
class ServiceUnderTest:
    """A service to be measured: how it is started and how one query is put to it.

    Attributes:
        command: Of a port.
        call: Of a query text.
        found: Ids of the documents in a reply.
        headers: Of each request.
    """

    name: str
    command: Callable[[int], list[str]]
    call: Callable[[str], Call]
    found: Callable[[bytes], list[str]]
    environment: dict[str, str] = field(default_factory=dict)
    folder: Path = ROOT
    headers: dict[str, str] = field(default_factory=dict)

    def request(self, text: str) -> bytes:
        """Build a whole HTTP request for a query."""
        _, path, body = self.call(text)
        line, rest = (get(path) if body is None else post(path, body)).split(b"\r\n", 1)
        headers = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        return line + b"\r\n" + headers.encode() + rest


def taugate(
    releases: Path, precision: str, *, cache: bool = False, drains: bool = False, python: Path | str = sys.executable
) -> ServiceUnderTest:
    """The service itself with its default settings."""
    start = [str(python), "-m", "taugate", "serve", "--releases", str(releases)]
    environment = {"PYTHONPATH": python_path(), "TAUGATE_PRECISION": precision}
    if not drains:
        environment["TAUGATE_DRAIN_SECONDS"] = "0"
    if not cache:
        environment["TAUGATE_CACHE_BYTES"] = "0"
    return ServiceUnderTest(
        f"taugate {precision}", lambda port: [*start, "--port", str(port)], _posted, _results, environment
    )


def usual(
    corpus: Path, model: Path, threads: int | None = None, encoder: str = "torch", python: str = sys.executable
) -> ServiceUnderTest:
    """FastAPI, SentenceTransformer or another encoder, and faiss, in peers/usual.py."""
    environment = {"PYTHONPATH": python_path(), "USUAL_CORPUS": str(corpus), "USUAL_MODEL": str(model)} | _OFFLINE
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    environment["USUAL_ENCODER"] = encoder
    name = "usual service" if threads is None else f"usual service, OMP_NUM_THREADS={threads}"
    name += "" if encoder == "torch" else f", {encoder}"
    return ServiceUnderTest(name, _uvicorn(python, f"{PEERS}.usual:app"), _posted, _results, environment)


def txtai(index: Path, python: str) -> ServiceUnderTest:
    """Txtai's own API on an index made beforehand; the configuration lies beside it."""

    def call(text: str) -> Call:
        return "GET", f"/search?query={quote(text, safe='')}&limit=5", None

    def found(reply: bytes) -> list[str]:
        return [load["id"] for load in json.loads(reply)]

    configuration = index.parent / "txtai.yml"
    configuration.write_text(f"path: {index}\nwritable: false\nembeddings:\n  content: true\n  gpu: false\n")
    environment = {"CONFIG": str(configuration)} | _OFFLINE
    return ServiceUnderTest("txtai API", _uvicorn(python, "txtai.api:app"), call, found, environment, index.parent)


def echo(reply_bytes: int) -> ServiceUnderTest:
    """Describe a bare endpoint in peers/echo.py."""
    environment = {"PYTHONPATH": python_path(), "ECHO_BYTES": str(reply_bytes)}
    start = _uvicorn(sys.executable, f"{PEERS}.echo:app", "--http", "h11")  # the server that taugate is on as well
    return ServiceUnderTest("bare FastAPI", start, _posted, lambda _: [], environment)


_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def _uvicorn(python: str, application: str, *more: str) -> Callable[[int], list[str]]:
    start = [python, "-m", "uvicorn", application, "--host", "127.0.0.1", "--no-access-log", "--log-level", "warning"]
    return lambda port: [*start, *more, "--port", str(port)]


def _posted(text: str) -> Call:
    return "POST", "/search", orjson.dumps({"query": text})


def _results(reply: bytes) -> list[str]:
    return [load["id"] for load in json.loads(reply)["results"]]
