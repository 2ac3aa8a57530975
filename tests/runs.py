"""Runs: what a release finds for the queries of a data set, in the formats that `taugate calibrate-run` reads."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from taugate.registry.catalog import find
from taugate.retrieval.reader import load


@dataclass(frozen=True)
class Found:
    """The results of a query, best first."""

    query: str
    text: str
    ids: Sequence[str]
    scores: Sequence[float]


def dense_results(data: Path | Sequence[str], releases: Path, depth: int = 10) -> list[Found]:
    """Search for texts, or for the queries of a data set in the order of its file, by exact search of the release."""
    release = load(find(releases))
    if isinstance(data, Path):
        queries = [json.loads(line) for line in (data / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    else:
        queries = [{"_id": f"off-topic-{number}", "text": text} for number, text in enumerate(data)]
    texts = [query["text"] for query in queries]
    top = release.retriever.index.search(release.retriever.encode(texts), depth)
    return [
        Found(query["_id"], query["text"], [release.documents[int(place)].id for place in places], scores.tolist())
        for query, places, scores in zip(queries, top.positions, top.scores, strict=True)
    ]


def write_json(path: Path, results: Sequence[Found]) -> Path:
    records = [
        {
            "query_id": found.query,
            "query": found.text,
            "results": [{"id": name, "score": score} for name, score in zip(found.ids, found.scores, strict=True)],
        }
        for found in results
    ]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return path


def write_trec(path: Path, results: Sequence[Found]) -> Path:
    lines = [
        f"{found.query} Q0 {name} {rank} {score!r} dense"
        for found in results
        for rank, (name, score) in enumerate(zip(found.ids, found.scores, strict=True), start=1)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def fused_with_cosine(run: Path) -> Path:
    """Write a run beside a dense one: its scores are reciprocal ranks, as of a fusion, with the cosine beside them."""
    records = [json.loads(line) for line in run.read_text(encoding="utf-8").splitlines()]
    for record in records:
        for place, result in enumerate(record["results"], start=1):
            result |= {"score": 1 / (60 + place), "scores": {"cosine": result["score"]}}
    path = run.with_name("fused.jsonl")
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return path
