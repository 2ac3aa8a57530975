"""POST /search and /search/batch: exactly the results of the release's retriever, and what was dropped."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zaragoza_construction_faq

from taugate.release.queries import quantiles, threshold_curve
from taugate.retrieval.query import Query
from taugate.retrieval.reader import Release
from taugate.retrieval.vectors import shortest_decimal
from taugate.service.api.schemas import BatchResponse, SearchResponse
from tests.fake_encoder import MAX_LENGTH
from tests.service.access.files import APP, JUDGE, WITHIN, bearer
from tests.service_process import ServiceProcess, without_id

QUESTIONS = [entry["q"] for entry in zaragoza_construction_faq.load(lang="en")]
QUERY = "What does a building permit cost?"
ANSWERS = " ".join(entry["a"] for entry in zaragoza_construction_faq.load(lang="en"))
KEEP_ALL, DROP_ALL = -2.0, 2.0  # beyond any cosine


@pytest.fixture(scope="module")
def service(releases: Path) -> Iterator[ServiceProcess]:
    """One that has had no other traffic."""
    with ServiceProcess(releases) as process:
        yield process.ready()


def expected(release: Release, query: Query) -> list[tuple[str, float]]:
    (answer,) = release.retriever.search([query])
    ids = [release.documents[position].id for position in answer.positions.tolist()]
    return list(zip(ids, map(shortest_decimal, answer.scores), strict=True))


def found(reply: dict[str, Any]) -> list[tuple[str, float]]:
    return [(result["id"], result["score"]) for result in reply["results"]]


def test_reply_has_exactly_contract_fields(service: ServiceProcess, release: Release) -> None:
    reply = service.http.post("/search", json={"query": QUERY})
    body = reply.json()
    assert " ".join(body) == (
        "results threshold policy calibrated calibration considered dropped best_score reason refusal release drift "
        "query_id"
    )
    assert body["refusal"]["rho"] == shortest_decimal(release.manifest.refusal.rho) <= body["refusal"]["score"]
    assert body["results"]
    documents = {document.id: document for document in release.documents}
    for result in body["results"]:
        assert " ".join(result) == "id document_id rank score relevance below_threshold title text metadata"
        assert result["document_id"] == result["id"]
        document = documents[result["id"]]
        stored = (document.title, document.text, document.metadata)
        assert (result["title"], result["text"], result["metadata"]) == stored
    SearchResponse.model_validate_json(reply.content, strict=True)
    assert (body["release"], body["policy"]) == (release.manifest.release_id, "similarity")


@pytest.mark.parametrize("threshold", [None, KEEP_ALL, 0.5])
def test_scores_equal_retriever_scores(service: ServiceProcess, release: Release, threshold: float | None) -> None:
    for query in QUESTIONS[:20]:
        reply = service.search(query, k=20, threshold=threshold)
        assert found(reply) == expected(release, Query(query, 20, threshold))


@pytest.mark.parametrize("k", [None, 1, 100])
@pytest.mark.parametrize("threshold", [None, KEEP_ALL, 0.0, 0.6, DROP_ALL])
@pytest.mark.parametrize("min_results", [0, 1])
def test_reply_counts_add_up(
    service: ServiceProcess, release: Release, k: int | None, threshold: float | None, min_results: int
) -> None:
    reply = service.search(k=k, threshold=threshold, min_results=min_results)
    results, cut = reply["results"], reply["threshold"]
    scores = [result["score"] for result in results]
    assert reply["considered"] == (k or release.manifest.policy.k)
    assert reply["dropped"] == reply["considered"] - len(results)
    assert [result["rank"] for result in results] == list(range(1, len(results) + 1))
    assert scores == sorted(scores, reverse=True)
    assert np.float32(cut) == (release.retriever.policy.threshold if threshold is None else np.float32(threshold))
    assert all(score >= cut for score in scores[min_results:])
    assert reply["best_score"] == expected(release, Query(QUERY, 1, KEEP_ALL))[0][1]
    assert (reply["reason"] is None) == bool(results)
    assert reply["reason"] in (None, "all_below_threshold")


def test_score_equal_to_threshold_is_kept(service: ServiceProcess) -> None:
    for _, score in found(service.search(k=20, threshold=KEEP_ALL)):
        assert found(service.search(k=20, threshold=score))[-1][1] == score
        above = float(np.nextafter(np.float32(score), np.float32(2)))
        assert all(kept > score for _, kept in found(service.search(k=20, threshold=above)))


def test_changed_k_or_threshold_is_uncalibrated(service: ServiceProcess, release: Release) -> None:
    k, tau = release.manifest.policy.k, release.manifest.policy.tau
    assert all(service.search(k=each)["calibrated"] for each in (None, 1, k))
    assert {service.search(k=each)["calibration"] for each in (None, k + 1)} == {"calibrated"}
    assert not service.search(k=k + 1)["calibrated"]
    assert not service.search(threshold=tau)["calibrated"]
    assert not service.search(threshold=0.0)["calibrated"]


@pytest.mark.parametrize("least", [1, 3, 5])
def test_min_results_returns_results_below_threshold(service: ServiceProcess, least: int) -> None:
    reply = service.search(k=5, threshold=DROP_ALL, min_results=least)
    assert found(reply) == found(service.search(k=5, threshold=KEEP_ALL))[:least]
    assert (reply["dropped"], reply["reason"]) == (5 - least, None)
    assert [result["below_threshold"] for result in reply["results"]] == [True] * least


def test_result_below_threshold_clears_calibrated(service: ServiceProcess, release: Release) -> None:
    for query in QUESTIONS[:20]:
        kept = len(service.search(query)["results"])
        for least in (1, kept, 5):
            for _ in ("worked out", "from the cache"):
                reply = service.search(query, min_results=least)
                below = [result["below_threshold"] for result in reply["results"]]
                assert below == [result["score"] < reply["threshold"] for result in reply["results"]]
                assert below == [False] * kept + [True] * max(0, least - kept)
                assert reply["calibrated"] == (not any(below))


def test_include_text_false_omits_texts(service: ServiceProcess) -> None:
    whole, bare = service.search()["results"], service.search(include_text=False)["results"]
    assert bare == [result | {"title": None, "text": None} for result in whole]


UNUSUAL = [
    "Hur lång tid? åäö",
    "a\u030a",
    "🏗️",
    "هل أحتاج رخصة؟",
    "建築許可",
    "a\x00b",
    "a\u2028b",
    "\u200ba",
    "!",
    '\\"',
]


@pytest.mark.parametrize("query", UNUSUAL)
def test_any_character_is_accepted(service: ServiceProcess, release: Release, query: str) -> None:
    assert found(service.search(query, threshold=KEEP_ALL)) == expected(release, Query(query, 5, KEEP_ALL))


def similarities(service: ServiceProcess, query: str) -> list[float]:
    """The cosines of a query and the first documents of the sample."""
    bodies = [{"query": query, "document_id": f"bygglov-{number:03}"} for number in range(1, 6)]
    explained = [service.http.post("/explain", json=body).json() for body in bodies]
    return [reply["parts"]["cosine"] if "parts" in reply else reply["score"] for reply in explained]


def test_long_query_equals_its_beginning(service: ServiceProcess) -> None:
    words = [word for word in ANSWERS.split() if word.isalpha()][: 4 * MAX_LENGTH]
    lengths = MAX_LENGTH - 1, MAX_LENGTH, len(words)
    shorter, cut, whole = (similarities(service, " ".join(words[:length])) for length in lengths)
    assert whole == cut != shorter


MIXED = [
    QUESTIONS[0],
    {"query": QUESTIONS[0]},
    {"query": QUESTIONS[1], "k": 1},
    {"query": QUESTIONS[2], "k": 100, "threshold": 0.0},
    {"query": QUESTIONS[3], "threshold": 2.0},
    {"query": QUESTIONS[4], "threshold": 2.0, "min_results": 2, "include_text": False},
    "🏗️ " + " ".join(QUESTIONS[:40]),
    QUESTIONS[5],
]


def batch(service: ServiceProcess, queries: list[Any]) -> list[dict[str, Any]]:
    reply = service.http.post("/search/batch", json={"queries": queries})
    assert reply.status_code == 200, reply.text
    assert list(reply.json()) == ["responses"]
    BatchResponse.model_validate_json(reply.content, strict=True)
    return reply.json()["responses"]


@pytest.mark.parametrize("queries", [QUESTIONS[:1], QUESTIONS[:40], MIXED, MIXED[::-1]], ids=len)
def test_batch_equals_single_searches(service: ServiceProcess, queries: list[Any]) -> None:
    singles = [each if isinstance(each, dict) else {"query": each} for each in queries]
    alone = [service.http.post("/search", json=body).json() for body in singles]
    together = batch(service, queries)
    assert [without_id(reply) for reply in together] == [without_id(reply) for reply in alone]


def test_batch_replies_have_distinct_ids(service: ServiceProcess) -> None:
    replies = [reply for _ in range(3) for reply in batch(service, [QUESTIONS[0]] * 20)]
    assert len({reply["query_id"] for reply in replies}) == 60


def test_reference_equals_release(keyed: ServiceProcess, release: Release) -> None:
    reply = keyed.http.get("/release/reference", headers=bearer(APP))
    assert reply.status_code == 200
    shown = reply.json()
    policy, reference = release.manifest.policy, release.reference
    assert (shown["release"], shown["policy"], shown["threshold"]) == (
        release.manifest.release_id,
        policy.kind,
        policy.tau,
    )
    assert (shown["queries"], shown["k"]) == reference.top.shape
    for name, similarities in (("topk", reference.top), ("correct", reference.correct), ("random", reference.random)):
        assert shown[name] == quantiles(similarities)
        assert len(shown[name]) == 101
    curve = threshold_curve(reference, policy.kind, policy.tau)
    assert shown["curve"] == [point.model_dump() for point in curve]
    assert 100 <= len(curve) <= 203
    assert len(reply.content) < 24_000
    assert keyed.http.get("/release/reference", headers=bearer(APP)).content == reply.content


def test_reference_needs_unfiltered_search_key(keyed: ServiceProcess) -> None:
    def refusal(key: str | None) -> tuple[int, str]:
        reply = keyed.http.get("/release/reference", headers=bearer(key) if key else {})
        return reply.status_code, reply.json()["error"]["message"]

    assert refusal(None)[0] == 401
    assert refusal(JUDGE) == (403, "this API key lacks the scope search")
    assert refusal(WITHIN) == (403, "this API key has a filter, and this path is about all documents")
