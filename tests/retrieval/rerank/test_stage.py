"""The second stage orders candidates, and lets the first stage answer while the reranker cannot."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from taugate.errors import RerankerUnavailable
from taugate.policy.arrays import Float32
from taugate.policy.policy import Policy
from taugate.release.search_records import KnownPair
from taugate.retrieval.documents.store import Document, DocumentStore, DocumentWriter
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.rerank.endpoint import endpoint_at
from taugate.retrieval.rerank.stage import Ranked, SecondStage, SecondStageRule, TextReranker
from tests.rerank_server import RerankServer

TEXTS = ["aaaa", "b", "ccc", "dd", "e"]
TOP = TopK(np.array([[0.9, 0.8, 0.7, 0.6, 0.5]], np.float32), np.array([[4, 3, 2, 1, 0]]))


@pytest.fixture
def documents(tmp_path: Path) -> DocumentStore:
    writer = DocumentWriter(tmp_path)
    for place, text in enumerate(TEXTS):
        writer.append(Document(f"d{place}", text))
    writer.close()
    return DocumentStore(tmp_path)


@pytest.fixture
def server() -> Iterator[RerankServer]:
    with RerankServer(lambda query, text: len(text)) as started:
        yield started


def stage(server: RerankServer, documents: DocumentStore, known: Sequence[KnownPair] = ()) -> SecondStage:
    rule = SecondStageRule(5, Policy("similarity", 2.0, 3), None, None)
    return SecondStage(rule, TextReranker(endpoint_at(None, server.url, None), documents), documents, known)


def outcome(second: SecondStage, query: str, seconds: float = 30.0) -> Ranked | str:
    ranked, skipped = second.rank([query], TOP, [time.monotonic() + seconds])
    return ranked[0] if ranked else skipped[0]


def test_candidates_are_in_the_order_of_scores_and_ties_in_that_of_the_first_stage(
    server: RerankServer, documents: DocumentStore
) -> None:
    ranked = outcome(stage(server, documents), "query")
    assert isinstance(ranked, Ranked)
    assert ranked.positions.tolist() == [0, 2, 3, 4, 1]
    assert ranked.scores.tolist() == [4, 3, 2, 1, 1]
    np.testing.assert_array_equal(ranked.first_scores[[2, 0]], np.array([0.8, 0.5], np.float32))


@pytest.mark.parametrize("fault", ["stall", "drip", "flood", "nan", "short", "status"])
def test_fault_of_the_reranker_skips_the_stage_within_the_deadline(
    server: RerankServer, documents: DocumentStore, fault: str
) -> None:
    second, server.fault = stage(server, documents), fault
    assert outcome(second, "query", 0.3) in {"failed", "deadline"}
    sent = len(server.requests)
    assert outcome(second, "another", 0.3) == "paused"
    assert len(server.requests) == sent


@pytest.mark.parametrize("fault", [OverflowError("too large"), KeyError("x"), RuntimeError(), MemoryError()], ids=repr)
def test_exception_of_the_reranker_skips_the_stage(
    server: RerankServer,
    documents: DocumentStore,
    fault: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def score(*_: object) -> Float32:
        raise fault

    monkeypatch.setattr(TextReranker, "score", score)
    assert outcome(stage(server, documents), "query") == "failed"
    (record,) = caplog.records
    assert record.message.startswith("second stage skipped")
    assert record.exc_info, "a fault of the program is logged with its place"


def test_stage_returns_after_a_pause(server: RerankServer, documents: DocumentStore) -> None:
    second, server.fault = stage(server, documents), "nan"
    assert outcome(second, "query") == "failed"
    server.fault = ""
    ranked: Ranked | str = "paused"
    end = time.monotonic() + 60
    while ranked == "paused" and time.monotonic() < end:
        ranked = outcome(second, "query")
    assert isinstance(ranked, Ranked)


def test_other_model_after_a_failure_is_noticed(server: RerankServer, documents: DocumentStore) -> None:
    second, server.fault = stage(server, documents, [KnownPair("query", "d0", 4.0)]), "status"
    assert outcome(second, "query", 0.3) in {"failed", "deadline"}
    server.fault, server.score = "", lambda query, text: -len(text)
    with pytest.raises(RerankerUnavailable, match="another model"):
        second.check()
    end, ranked = time.monotonic() + 60, outcome(second, "query")
    while ranked == "paused" and time.monotonic() < end:
        ranked = outcome(second, "query")
    assert ranked == "failed"


def test_query_without_time_left_costs_no_request(server: RerankServer, documents: DocumentStore) -> None:
    assert outcome(stage(server, documents), "query", -1.0) == "deadline"
    assert not server.requests
