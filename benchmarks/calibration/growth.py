"""Let a corpus grow under a release that limits answered questions, and measure what is still called certified.

`TAUGATE_DATA=… python -m benchmarks.calibration.growth` prints a table. Each set begins with the documents that answer its
queries, and grows to 3 and 10 times as many, by random documents or by those nearest to the queries. Two releases
follow it: one of `taugate calibrate`, by `taugate recalibrate --no-promote`, and one of `taugate calibrate-run` on the results of a store
that searches the same documents over HTTP, by `POST /gate/golden`. The exit code is 1 if more of the unanswerable
questions get a result than is certified, while the release or the gate says that it is certified.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import numpy as np

from benchmarks.calibration.changed_documents import SETS, PromiseCheck, command
from benchmarks.calibration.changing_sets import ChangingSet, Questions, Rows
from benchmarks.encoding import encoded_queries, loaded_encoder
from benchmarks.markdown import share, table
from benchmarks.page import data_folder
from taugate.policy.arrays import Float32
from taugate.registry.catalog import current_id
from taugate.retrieval.reader import load
from taugate.service.app import create_app
from taugate.service.settings import Settings

_QUERIES = _UNANSWERABLE = 150
_TIMES = (3, 10)
_LIMITS = (
    (0.1, 0.3),
    (0.2, 0.5),
    (0.4, 0.7),
)  # the first that can be certified: of unanswerable and answerable queries
_DEPTH = 20
_REQUEST = {"path": "/", "body": {"query": "$query", "k": "$depth"}, "results": "results", "id": "id", "score": "score"}


class Store:
    """A store that searches documents by cosine similarity, over HTTP."""

    def __init__(self) -> None:
        self.rows: Rows = []
        self._vectors = dict[str, Float32]()

    def fill(self, rows: Rows) -> None:
        """Replace the documents."""
        new = [row for row in rows if row["_id"] not in self._vectors]
        texts = [f"{row['title']} {row['text']}".strip() for row in new]
        encoded = loaded_encoder().encode(texts, "document") if texts else ()
        self._vectors |= {row["_id"]: vector for row, vector in zip(new, encoded, strict=True)}
        self.rows, self._matrix = rows, np.stack([self._vectors[row["_id"]] for row in rows])

    def search(self, texts: Sequence[str], depth: int = _DEPTH) -> list[list[dict[str, Any]]]:
        """Return the best documents of each query."""
        scores = encoded_queries(texts) @ self._matrix.T
        ranks = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
        return [
            [{"id": self.rows[place]["_id"], "score": float(of[place])} for place in best]
            for of, best in zip(scores, ranks.tolist(), strict=True)
        ]


@contextmanager
def served(store: Store) -> Iterator[str]:
    """Serve a store on a free port, and yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            reply = json.dumps({"results": store.search([body["query"]], body["k"])[0]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


async def _gate(releases: Path, store: Store, texts: Sequence[str]) -> tuple[str, float, int]:
    """Ask a gate its golden questions on the store; returns its reply, and how it cuts the results of other questions."""
    app = create_app(Settings(releases=releases, drift=False))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
    ):
        while (await http.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.01)
        golden = (await http.get("/gate/golden")).json()["queries"]
        results = store.search([question["query"] for question in golden])
        queries = [
            {"query_id": each["query_id"], "results": found} for each, found in zip(golden, results, strict=True)
        ]
        checked = await http.post("/gate/golden", json={"queries": queries})
        said = "200" if checked.status_code == 200 else f"{checked.status_code}: {checked.json()['error']['message']}"
        replies = [(await http.post("/gate", json={"results": found})).json() for found in store.search(texts)]
    answered = [bool(reply["results"]) for reply in replies]
    return said, float(np.mean(answered)), sum(reply["calibrated"] for reply in replies)


def _updated(work: Path, release: str, questions: Questions) -> tuple[list[str], bool]:
    """Ask a release its unanswerable questions; returns cells, and whether more get a result than it certifies."""
    opened = load(work / "releases" / release)
    try:
        replies = [
            *PromiseCheck(opened, questions, (), {}).replies(
                [questions.texts[query] for query in questions.unanswerable]
            )
        ]
        refusal, withdrawn = opened.manifest.refusal, opened.manifest.withdrawn or ()
        answered = float(np.mean([bool(reply["results"]) for reply in replies]))
        certified = refusal is not None and refusal.certified
        limits = refusal.limits if refusal is not None and certified else None
        promised = None if limits is None else limits.answered.asked
        calibrated = sum(reply["calibrated"] for reply in replies)
        names = ", ".join(each.promise for each in withdrawn) or "–"
        broken = answered > (1.0 if promised is None else promised) or (not certified and calibrated > 0)
        return [share(answered, 2), "–" if promised is None else f"{promised:g}", names, str(calibrated)], broken
    finally:
        opened.close()


def _calibrated(*words: object) -> float:
    """Calibrate with the first limits that can be certified; returns the limit on unanswerable questions."""
    for answered, empty in _LIMITS:
        if command(*words, "--max-answered", answered, "--max-empty", empty, "--force")[0] == 0:
            return answered
    raise AssertionError("no limit can be certified")


def measure(changing: ChangingSet, work: Path) -> Iterator[tuple[list[str], bool]]:
    """Yield a row for each growth, and whether a promise is broken in it."""
    questions, store, releases = changing.questions, Store(), work / "releases"
    corpora: list[tuple[str, Rows]] = [("–", changing.rows)]
    for way, others in (("random", changing.others), ("nearest", changing.nearest())):
        corpora += [
            (f"{way}, {times} times", changing.rows + others[: (times - 1) * len(changing.rows)]) for times in _TIMES
        ]
    texts, start = [questions.texts[query] for query in questions.unanswerable], work / "start"
    _calibrated("calibrate", questions.write(start, changing.rows), "--releases", releases)
    first = str(current_id(releases))
    store.fill(changing.rows)
    (work / "request.json").write_text(json.dumps(_REQUEST), "utf-8")
    run = work / "run.jsonl"
    with served(store) as url:
        command(
            "run", start, "--as", "http", "--url", url, "--request", work / "request.json", "--to", run, "--rate", 5000
        )
    gate_limit = _calibrated("calibrate-run", run, start / "qrels" / "test.tsv", "--releases", work / "gates")
    for growth, rows in corpora:
        command("release", "promote", first, "--releases", releases, "--force")
        release = first
        if growth != "–":
            written = command(
                "recalibrate", questions.write(work / "grown", rows), "--releases", releases, "--no-promote", "--json"
            )[1]
            release = json.loads(written)["release"]
        cells, broken = _updated(work, release, questions)
        store.fill(rows)
        said, answered, _ = asyncio.run(_gate(work / "gates", store, texts))
        unnoticed = said == "200" and answered > gate_limit
        yield [growth, f"{len(rows):,}", *cells, share(answered, 2), f"{gate_limit:g}", said], broken or unnoticed


def main() -> int:
    """Measure the sets asked for, and print a row for each growth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*", choices=[*SETS], default=[*SETS])
    parser.add_argument("--seed", type=int, default=0)
    arguments, data, wrong = parser.parse_args(), data_folder(), 0
    header = ["growth", "documents", "answered", "certified", "withdrawn", "calibrated replies"]
    header += ["gate: answered", "certified", "POST /gate/golden"]
    for name in arguments.sets:
        changing = ChangingSet.read(data / name, SETS[name], _QUERIES, _UNANSWERABLE, 0, arguments.seed)
        with tempfile.TemporaryDirectory() as work:
            rows = [*measure(changing, Path(work))]
        wrong += sum(broken for _, broken in rows)
        print(f"\n### {name}\n\n{table(header, [row for row, _ in rows])}", flush=True)
    print(f"\n{wrong} times more questions get a result than is certified")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
