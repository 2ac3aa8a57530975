"""The same model behind a real OpenAI-compatible server, through a proxy that fails, and a command that is killed."""

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2

from benchmarks.llm_queries.runs import QueriesPlan, command, queries
from benchmarks.markdown import table, verdict
from taugate.ingestion.queries.local import packaged_model

HEADING = "An endpoint that fails"
_SET = "squad_v2_dev"
_SLOW = 90.0  # seconds that the slow fault takes
_TIMEOUT = 60.0  # of the client
# Each fault stands for one request, in this order; all other requests reach the server.
_FAULTS = ("429", "500", "cut", "429", "slow", "503")


def section(plan: QueriesPlan) -> str:
    """Ask the server with and without faults, and return the comparison as Markdown."""
    with tempfile.TemporaryDirectory(prefix="taugate-endpoint-") as folder, _server() as url:
        work = Path(folder)
        options = ["--method", "endpoint", "--model", "smollm2", "--yes", "--round-trip", "off"]
        options += ["--max", str(plan.requests), "--seed", str(plan.seed), "--timeout", str(_TIMEOUT)]
        (work / "plain").mkdir()
        plain = plan.copy(_SET, work / "plain")
        undisturbed = queries(
            plain, *options, "--endpoint", url, environment={"TAUGATE_CACHE": str(work / "plain-cache")}
        )
        (work / "faulty").mkdir()
        faulty = plan.copy(_SET, work / "faulty")
        environment = {**os.environ, "TAUGATE_CACHE": str(work / "faulty-cache")}
        with _proxy(url) as proxy:
            words = command(faulty, *options, "--endpoint", proxy.url)
            killed = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
            while proxy.answered < plan.requests // 2 and killed.poll() is None:
                time.sleep(0.05)
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            unchanged = not any(record.get("origin") == "llm" for record in _records(faulty))
            before = proxy.requests
            resumed = queries(faulty, *options, "--endpoint", proxy.url, environment=environment)
            same = all(
                (plain / name).read_bytes() == (faulty / name).read_bytes()
                for name in ("queries.jsonl", "qrels/generated.tsv")
            )
            faults = ", ".join(f"{count} × {name}" for name, count in proxy.faults.items())
            after = proxy.requests - before
    rows: list[list[object]] = [
        ["questions kept, without faults", f"{undisturbed['kept']} of {plan.requests}"],
        ["faults", faults],
        ["requests until the command was killed (SIGKILL)", before],
        ["queries.jsonl after that: as it was", "yes" if unchanged else "**no**"],
        ["requests of the same command, run again", after],
        ["documents that it asked about", resumed["asked"]],
        ["questions kept", f"{resumed['kept']} of {plan.requests}"],
        ["files equal, byte for byte, to those without faults", verdict(reached=same)],
    ]
    return f"""\
The server is llama.cpp's own, with its OpenAI-compatible API, and the model is the same. Between it and the command stands a proxy.
It answers single requests with status 429 and `Retry-After: 2`, with 500 or with 503; it cuts a reply after 20 bytes; and it keeps
one request waiting for {_SLOW:.0f} s, while the client gives up after {_TIMEOUT:.0f} s. Half way through, the command is killed. Then it runs again.

{table(["", ""], rows)}

Here the model gets the prompt as a chat, which a model of 135 million parameters follows less well than the plain text of
`--method local`.
"""


def _records(data: Path) -> Iterator[dict[str, str]]:
    return map(json.loads, (data / "queries.jsonl").read_text(encoding="utf-8").splitlines())


@contextmanager
def _server() -> Iterator[str]:
    """Serve the packaged model over HTTP, one request at a time, and yield the base URL."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(packaged_model())
    parameters.n_ctx, parameters.n_parallel, parameters.verbosity = 4096, 1, -1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = len(os.sched_getaffinity(0))
    parameters.cache_prompt = False  # the same reply, whatever was asked before
    server = xllamacpp.Server(parameters)
    yield f"{server.listening_address}/v1"
    del server


class _Proxy:
    """Counts of a proxy that fails: requests, answers of the server that were passed on, and faults by name."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.url = ""
        self.requests = self.answered = 0
        self.faults: Counter[str] = Counter()
        self.waiting = list(_FAULTS)
        self.lock = threading.Lock()


@contextmanager
def _proxy(target: str) -> Iterator[_Proxy]:
    proxy = _Proxy(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with proxy.lock:
                proxy.requests += 1
                fault = proxy.waiting.pop(0) if proxy.waiting and proxy.requests % 2 == 0 else None
                if fault:
                    proxy.faults[fault] += 1
            if fault is None:
                answer = httpx2.post(f"{proxy.target}/chat/completions", content=body, timeout=None)
                self._answer(answer.status_code, answer.content)
                proxy.answered += 1
            elif fault == "cut":
                self._answer(200, b'{"choices": [{"messa', length=500)
                self.close_connection = True
            elif fault == "slow":
                time.sleep(_SLOW)
                self.close_connection = True
            else:
                self._answer(int(fault), b'{"error": {"message": "on purpose"}}')

        def _answer(self, status: int, content: bytes, length: int | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(length or len(content)))
            if status == 429:
                self.send_header("Retry-After", "2")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing: what happened is counted."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    proxy.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
