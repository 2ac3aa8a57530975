"""Lines of a query log, as the service writes them of traffic like the calibration's or unlike it."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from taugate.registry.catalog import find
from taugate.release.queries import Reference
from taugate.retrieval.reader import load

START = 1e9  # 2001-09-09 01:46:40 UTC
DAY = 86400.0


class Service:
    """One that answers with the similarities of calibration queries, drawn at random."""

    def __init__(self, releases: Path) -> None:
        self.release = find(releases).name
        self.reference: Reference = load(find(releases)).reference
        self._rng = np.random.default_rng(0)
        self._asked = 0

    def queries(self, times: Sequence[float], off: float = 0.0, query: str | None = None) -> list[dict]:
        """At each time a query that nobody asked before, or always the same.

        Args:
            off: How much lower the best ones are.
        """
        return [self._query(at, off, query) for at in times]

    def judged(self, queries: Collection[dict], **fields: object) -> list[dict]:
        """The first result of each, of two that are kept, is judged relevant."""
        return [
            {
                "v": 2,
                "at": line["at"],
                "query_id": line["query_id"],
                "query": None,
                "document_id": f"d{line['query_id']}",
                "relevant": True,
                "rank": None,
                "score": line["topk"][0],
                "key": None,
                "collection": "data",
                "release": self.release,
                "stage": None,
                "not_comparable": None,
                "kept": True,
                "of": 2,
                "query_hash": line["query"],
                **fields,
            }
            for line in queries
        ]

    def _query(self, at: float, off: float, query: str | None) -> dict:
        row = self._rng.integers(len(self.reference))
        self._asked += 1
        return {
            "v": 2,
            "at": at,
            "query_id": f"q{self._asked}",
            "query": f"{self._asked:016x}" if query is None else query,
            "key": None,
            "collection": "data",
            "release": self.release,
            "filter": None,
            "k": 5,
            "threshold": None,
            "group_by": None,
            "kept": 0 if off else int(self.reference.kept[row]),
            "topk": (self.reference.top[row] - np.float32(off)).tolist(),
            "random": self.reference.random[self._rng.integers(len(self.reference), size=4)].tolist(),
            "shown": [],
        }


def day(service: Service) -> list[dict]:
    """4,800 queries over a day, of which 600 from noon on are not as at calibration; each tenth was judged."""
    times = START + np.arange(4800) * DAY / 4800
    parts = ((0, 2400, 0.0), (2400, 3000, 0.5), (3000, 4800, 0.0))
    queries = [line for first, last, off in parts for line in service.queries(times[first:last].tolist(), off)]
    return queries + service.judged(queries[::10])


def write(path: Path, records: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path
