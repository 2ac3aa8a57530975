"""POST /search with group_by: documents are counted, each with its best passage, cached or not."""

from pathlib import Path

import pytest

from taugate.registry.catalog import find
from taugate.retrieval.documents.store import Document
from taugate.retrieval.query import Query
from taugate.retrieval.reader import Release, load
from taugate.retrieval.vectors import shortest_decimal
from tests.prometheus_process import until
from tests.service.drift.traffic import FastDriftService
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess, without_id

QUERIES = ["What does a building permit cost?", "Is an inspector insured?", "kitchen fan", "noise from a neighbour"]
KEEP_ALL = -2.0


@pytest.fixture(scope="module")
def release(hybrid: Path) -> Release:
    return load(find(hybrid), 1)


def listed(release: Release, query: str) -> list[tuple[Document, float]]:
    """All passages, best first."""
    (answer,) = release.retriever.search([Query(query, len(release.documents), KEEP_ALL)])
    found = zip(answer.positions.tolist(), map(shortest_decimal, answer.scores), strict=True)
    return [(release.documents[position], score) for position, score in found]


@pytest.mark.parametrize("k", [1, 3, 10, 100])
def test_grouping_returns_best_passages(chunked: ServiceProcess, release: Release, k: int) -> None:
    for query in QUERIES:
        best: dict[str, tuple[str, float]] = {}
        for passage, score in listed(release, query):
            best.setdefault(passage.document_id, (passage.id, score))
        reply = chunked.search(query, k=k, group_by="document", threshold=KEEP_ALL)
        found = [(each["document_id"], (each["id"], each["score"])) for each in reply["results"]]
        assert found == [*best.items()][:k]
        assert [each["rank"] for each in reply["results"]] == [*range(1, k + 1)]
        assert (reply["considered"], reply["dropped"]) == (k, 0)
        cut = chunked.search(query, k=k, group_by="document")
        tau = cut["threshold"]
        assert [each["id"] for each in cut["results"]] == [name for _, (name, score) in found if score >= tau]
        assert (cut["considered"], cut["dropped"]) == (k, k - len(cut["results"]))
        assert cut["best_score"] == found[0][1][1]


def test_ungrouped_search_counts_passages(chunked: ServiceProcess, release: Release) -> None:
    for query in QUERIES:
        results = chunked.search(query, k=10, threshold=KEEP_ALL)["results"]
        expected = [(each.id, each.document_id) for each, _ in listed(release, query)[:10]]
        assert [(each["id"], each["document_id"]) for each in results] == expected
        assert chunked.search(query, k=10, threshold=KEEP_ALL, group_by=None)["results"] == results


def test_grouped_reply_is_cached_separately(chunked: ServiceProcess) -> None:
    bodies = [{"k": 50, "group_by": group, "threshold": KEEP_ALL, "query": QUERIES[0]} for group in ("document", None)]
    grouped, plain = (chunked.search(**body) for body in bodies)
    assert [each["id"] for each in grouped["results"]] != [each["id"] for each in plain["results"]]
    batch = chunked.http.post("/search/batch", json={"queries": bodies * 2}).json()["responses"]
    assert [without_id(each) for each in batch] == [without_id(each) for each in (grouped, plain)] * 2


def test_grouped_search_is_calibrated_for_k_one(chunked: ServiceProcess) -> None:
    replies = [chunked.search(QUERIES[0], k=k, group_by="document") for k in (1, 2, 5)]
    assert [reply["calibrated"] for reply in replies] == [True, False, False]


def test_unknown_group_is_refused(chunked: ServiceProcess) -> None:
    reply = chunked.http.post("/search", json={"query": "x", "group_by": "page"})
    assert reply.status_code == 422
    assert "group_by" in reply.json()["error"]["message"]


def test_drift_observes_passages_when_grouped(hybrid: Path) -> None:
    """The same query, grouped or not, moves the similarities that drift is watched by in the same way."""
    name = "taugate_similarity_%s{topk}"
    sums = []
    with FastDriftService(hybrid) as service:
        service.ready()
        for number, group in enumerate(("document", None), 1):
            service.search(QUERIES[0], k=9, group_by=group)
            until(lambda number=number: scrape(service)[name % "count"] == 5 * number)
            sums.append(scrape(service)[name % "sum"])
    assert sums[1] == pytest.approx(2 * sums[0], rel=1e-6)


def test_grouping_without_chunks_changes_nothing(service: ServiceProcess) -> None:
    for query in QUERIES:
        for fields in ({}, {"k": 20, "threshold": 0.2}, {"k": 3, "min_results": 3}):
            plain, grouped = (service.search(query, group_by=group, **fields) for group in (None, "document"))
            assert without_id(plain) == without_id(grouped)


def test_feedback_accepts_chunk_or_document_id(chunked: ServiceProcess) -> None:
    for name in ("id", "document_id"):
        reply = chunked.search(QUERIES[1], k=5, group_by="document", threshold=KEEP_ALL)
        chunk = next(each for each in reply["results"] if each["id"] != each["document_id"])
        body = {"query_id": reply["query_id"], "document_id": chunk[name], "relevant": True}
        judged = [chunked.http.post("/feedback", json=body).json()["status"] for _ in range(2)]
        assert judged == ["accepted", "repeated"]
