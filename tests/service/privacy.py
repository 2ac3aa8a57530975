"""Search everything that a service writes for words that only its callers sent: none may be there where texts are off.

Real servers run: two workers, Redis, a collector of traces, a shadow release, the query log, and the log at its most
talkative. Callers send words that are in no release: in queries, filters, feedback, explanations, paths, headers and
bodies that are not valid. Then whatever anybody could read later is searched, in the encodings that hide a word from a
plain search: files, open files without a name, every command that Redis was sent, spans, metrics and logs.

By itself: python -m tests.service.privacy [--rounds N] [--seed N]. The exit code is 1 if a word is found.
"""

import argparse
import base64
import io
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np

from taugate.cli import main as cli
from taugate.registry.catalog import release_ids
from taugate.release.layout import SHADOW
from tests.loopback import LoopbackHTTPServer
from tests.redis_process import RedisProcess
from tests.sample_release import write_sample_release
from tests.service.drift.traffic import FastDriftService

_LETTERS = np.array([*"abcdefghijklmnopqrstuvwxyz"])
_LENGTH = 18  # letters of a word: none occurs by chance in a gigabyte
# Where a word is sent. Each place has words of its own, so that a word that is found names the place.
PLACES = (
    "query", "batch", "filter value", "filter field", "feedback", "feedback text", "explained query",
    "explained document", "unknown field", "broken body", "wrong encoding", "path", "query string", "header",
    "vector store", "Dify",
)  # fmt: skip


class Leak(NamedTuple):
    """A word that was found: where it was sent, what holds it, and in which encoding."""

    place: str
    source: str
    encoding: str


@dataclass(frozen=True)
class Words:
    """Words that are in no release, by the place where they are sent."""

    by_place: Mapping[str, str]

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Words":
        """Draw a word for each place."""
        return cls({place: "".join(rng.choice(_LETTERS, _LENGTH)) for place in PLACES})

    def __getitem__(self, place: str) -> str:
        return self.by_place[place]


@dataclass
class Written:
    """Everything that was written, by the name of what holds it."""

    sources: dict[str, bytes] = field(default_factory=dict)

    def add(self, name: str, content: bytes) -> None:
        """Add content, behind what the same source has already."""
        self.sources[name] = self.sources.get(name, b"") + content

    def add_folder(self, folder: Path) -> None:
        """Add every file below a folder, and its name."""
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            self.add("names of files", name.encode("utf-8", "surrogateescape") + b"\n")
            if path.is_file():
                self.add(name, path.read_bytes())

    def leaks(self, words: Sequence[Words]) -> list[Leak]:
        """Search every source for every word, in any case and encoding."""
        found = []
        for source, content in self.sources.items():
            folded = content.lower()
            for each in words:
                for place, word in each.by_place.items():
                    found += [
                        Leak(place, source, encoding)
                        for encoding, pattern, plain in _hidden(word)
                        if pattern in (folded if plain else content)
                    ]
        return found


def _hidden(word: str) -> Iterator[tuple[str, bytes, bool]]:
    """Yield the encodings of a word: name, bytes, and whether case does not matter."""
    raw = word.encode()
    yield "UTF-8", raw, True
    yield "UTF-16", word.encode("utf-16-le"), True
    yield "hexadecimal", raw.hex().encode(), True
    yield "reversed", raw[::-1], True
    for shift in range(3):  # base64 of a text that the word stands in: its own letters, whatever comes before
        coded = base64.b64encode(b"\0" * shift + raw)
        yield "base64", coded[(0, 2, 3)[shift] : len(coded) // 4 * 4 - 4], False


class _Spans(LoopbackHTTPServer):
    """A collector of traces that keeps the bytes it is sent."""

    def __init__(self) -> None:
        self.content = b""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.content += self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(Handler)


class _RedisMonitor:
    """Keeps every command that a Redis is sent, as its command MONITOR tells them."""

    def __init__(self, port: int) -> None:
        self.content = b""
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(b"MONITOR\r\n")
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with suppress(OSError):
            while part := self._socket.recv(1 << 16):
                self.content += part

    def close(self) -> None:
        self._socket.close()


def requests(words: Words) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield requests that carry the words: method, path, and what httpx sends with them."""
    ask = f"What does a permit for a {words['query']} cost?"
    yield "POST", "/search", {"json": {"query": ask}}
    yield "POST", "/search", {"json": {"query": ask, "include_text": False, "k": 3}}
    yield "POST", "/search", {"json": {"query": words["query"], "min_results": 2}}
    yield "POST", "/search/batch", {"json": {"queries": [words["batch"], {"query": f"a {words['batch']}"}]}}
    yield "POST", "/search", {"json": {"query": "roof", "filter": {"category": words["filter value"]}}}
    yield "POST", "/search", {"json": {"query": "roof", "filter": {"category": [words["filter value"], "b"]}}}
    yield "POST", "/search", {"json": {"query": "roof", "filter": {words["filter field"]: 1}}}
    yield "POST", "/feedback", {"json": {"query_id": "0" * 32, "document_id": words["feedback"], "relevant": True}}
    yield "POST", "/feedback", {"json": {"query_id": words["feedback"], "document_id": "d1", "relevant": False}}
    yield "POST", "/feedback", {"json": {"query": words["feedback text"], "document_id": "q1", "relevant": True}}
    yield "POST", "/explain", {"json": {"query": words["explained query"], "document_id": "q1"}}
    yield "POST", "/explain", {"json": {"query": "roof", "document_id": words["explained document"]}}
    yield "POST", "/search", {"json": {"query": "roof", words["unknown field"]: words["unknown field"]}}
    yield "POST", "/search", {"content": f'{{"query": "{words["broken body"]}'.encode()}
    yield "POST", "/search", {"content": f'"{words["broken body"]}"'.encode()}
    yield "POST", "/search", {"content": words["wrong encoding"].encode("utf-16")}
    yield "POST", "/search", {"json": {"query": words["broken body"] * 1000}}
    yield "POST", "/search", {"json": {"query": words["broken body"], "k": 10**9}}
    openai, dify = words["vector store"], words["Dify"]
    compared = {"type": "eq", "key": "category", "value": openai}
    yield "POST", "/v1/vector_stores/current/search", {"json": {"query": [openai, f"a {openai}"]}}
    yield "POST", "/v1/vector_stores/current/search", {"json": {"query": "roof", "filters": compared}}
    yield "POST", f"/v1/vector_stores/{openai}/search", {"json": {"query": openai}}
    yield "POST", "/dify/retrieval", {"json": {"knowledge_id": "current", "query": dify}}
    yield "POST", "/dify/retrieval", {"json": {"knowledge_id": dify, "query": dify}}
    yield "GET", f"/{words['path']}", {}
    yield "POST", f"/search/{words['path']}", {"json": {"query": "roof"}}
    yield "POST", "/search", {"json": {"query": "roof"}, "params": {"q": words["query string"]}}
    yield "GET", "/search", {"params": {"query": words["query string"]}}
    yield (
        "POST",
        "/search",
        {"json": {"query": "roof"}, "headers": {"X-Note": words["header"], "Referer": words["header"]}},
    )


def send(http: httpx.Client, words: Words) -> list[int]:
    """Send all requests, and feedback on real replies, by their ids and by their texts; returns the statuses."""
    statuses = [http.request(method, path, **more).status_code for method, path, more in requests(words)]
    reply = http.post("/search", json={"query": f"{words['query']} roof", "min_results": 1}).json()
    judged = {"query_id": reply["query_id"], "document_id": reply["results"][0]["id"]}
    verdicts = ({**judged, "relevant": relevant} for relevant in (True, False))
    asked = {"query": f"What does a roof for a {words['feedback text']} cost?"}
    shown = http.post("/search", json=asked).json()["results"]
    by_text = ({**asked, "document_id": each["id"], "relevant": True} for each in shown[:1])
    return [*statuses, *(http.post("/feedback", json=verdict).status_code for verdict in (*verdicts, *by_text))]


def open_files(process: int) -> Iterator[tuple[str, bytes]]:
    """Yield the open regular files of a process and its children that no folder shows, as memory that they share."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    for each in [process, *map(int, children)]:
        with suppress(FileNotFoundError):  # a child may have ended
            for entry in Path(f"/proc/{each}/fd").iterdir():
                with suppress(OSError):
                    target = str(entry.readlink())
                    if entry.is_file() and ("(deleted)" in target or target.startswith("/memfd:")):
                        yield f"open file {target}", entry.read_bytes()
    for each in map(int, children):
        yield from open_files(each)


def observe(releases: Path, work: Path, words: Sequence[Words], **environment_of_service: str) -> Written:
    """Run the servers, send the words, and collect everything that was written.

    Args:
        releases: A releases directory with a current release, and perhaps a shadow.
        work: An empty folder.
        words: To send.
        environment_of_service: Further variables of the service.
    """
    written = Written()
    log = work / "log" / "queries.jsonl"
    for folder in ("log", "tmp", "cache", "redis"):
        (work / folder).mkdir()
    with ExitStack() as stack:
        redis = stack.enter_context(RedisProcess(work / "redis"))
        redis.client.config_set("rdbcompression", "no")
        monitor = _RedisMonitor(redis.port)
        stack.callback(monitor.close)
        spans = stack.enter_context(_Spans())
        variables = {
            "TMPDIR": str(work / "tmp"),
            "TAUGATE_CACHE": str(work / "cache"),
            "TAUGATE_QUERY_LOG": str(log),
            "TAUGATE_LOG_LEVEL": "debug",
            "TAUGATE_OTLP_ENDPOINT": spans.url,
            "TAUGATE_REDIS_URL": redis.url,
            "TAUGATE_REDIS_TIMEOUT_MS": "200",
            "TAUGATE_SHADOW_SHARE": "1",
            "TAUGATE_WORKERS": "2",
            "TAUGATE_CANARY_SECONDS": "1",
            "TAUGATE_EXPLORE_SHARE": "0.1",
            "TAUGATE_DIALECTS": "openai,dify",
        } | environment_of_service
        service = stack.enter_context(FastDriftService(releases, forked=False, **variables)).ready()  # type: ignore[arg-type]  # no variable is called port or stderr
        for each in words:
            statuses = send(service.http, each)
            if any(status >= 500 for status in statuses) or 200 not in statuses:
                raise AssertionError(f"the service answered {statuses}")
        until_logged(log)
        for path in ("/metrics", "/release", "/readyz"):
            written.add(path, service.http.get(path).content)
        written.add_folder(work)  # what workers share while they run is gone when they end
        for name, content in open_files(service.process.pid):
            written.add(name, content)
        redis.kill()  # what does it log without Redis?
        send(service.http, words[0])
        written.add("log of the service", service.stop()[1].encode())
        written.add("commands to Redis", monitor.content)
        written.add("traces", spans.content)
    written.add("taugate drift replay", _replayed(log, releases))
    written.add_folder(work)
    written.add_folder(releases)
    if not monitor.content or not spans.content or not log.stat().st_size:
        raise AssertionError("nothing was written to Redis, the collector or the query log: there is nothing to search")
    return written


def until_logged(log: Path, seconds: float = 30) -> None:
    """Wait until the query log has lines, which are written every few seconds."""
    deadline = time.monotonic() + seconds
    while not (log.exists() and log.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.1)


def _replayed(log: Path, releases: Path) -> bytes:
    command = [sys.executable, "-m", "taugate", "drift", "replay", str(log), "--releases", str(releases), "--json"]
    done = subprocess.run(command, capture_output=True, check=False)
    return done.stdout + done.stderr


def with_shadow(folder: Path) -> Path:
    """Write two releases of the sample, of which the second is the shadow; returns the releases directory."""
    releases = write_sample_release(folder)
    before = {*release_ids(releases)}
    command = ["calibrate", str(folder / "zaragoza"), "--releases", str(releases), "--encoder", str(folder / "encoder")]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
        status = cli.main([*command, "--seed", "1", "--no-promote"])
    if status:
        raise RuntimeError(f"the second release could not be written: {said.getvalue()}")
    (new,) = {*release_ids(releases)} - before
    (releases / SHADOW).write_text(f"{new}\n")
    return releases


def main() -> None:
    """Send the words to real servers, and print what was searched and what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50, help="how often every request is sent, with other words")
    parser.add_argument("--seed", type=int, default=0, help="of the words")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    words = [Words.draw(rng) for _ in range(arguments.rounds)]
    with tempfile.TemporaryDirectory(prefix="taugate-privacy-") as folder:
        work = Path(folder)
        (work / "made").mkdir()
        releases = with_shadow(work / "made")
        quiet, talkative = work / "off", work / "on"
        quiet.mkdir()
        talkative.mkdir()
        written = observe(releases, quiet, words)
        control = observe(releases, talkative, words[:1], TAUGATE_QUERY_LOG_TEXTS="true").leaks(words[:1])
    found = written.leaks(words)
    for name, content in written.sources.items():
        sys.stdout.write(f"{len(content):>12,} bytes of {name}\n")
    sys.stdout.write(
        f"\n{len(words) * len(PLACES):,} words in {len(written.sources)} sources: {len(found)} found with texts off\n"
    )
    where = json.dumps(sorted({(leak.place, leak.source) for leak in control}))
    sys.stdout.write(f"with TAUGATE_QUERY_LOG_TEXTS=true: {where}\n")
    for leak in found:
        sys.stdout.write(f"found: a word sent as {leak.place}, in {leak.source}, as {leak.encoding}\n")
    if not control:
        sys.exit("no word was found where texts are on: the search is broken")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
