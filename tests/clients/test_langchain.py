"""LangChain's own retriever tests, and tests of metadata, thresholds, filters and empty results."""

import asyncio
import logging
import math
from typing import Any
from uuid import UUID

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.structured_query import Comparator, Comparison
from langchain_tests.integration_tests import RetrieversIntegrationTests

from langchain_taugate import TaugateRetriever
from taugate_client import (
    ConnectionFailed,
    Drift,
    InvalidRequest,
    Result,
    SearchResponse,
    TaugateClient,
    UnsupportedFilter,
)
from taugate_client.retrieval import Retrieval, metadata, tighten
from tests.loopback import free_port
from tests.service_process import ServiceProcess

QUESTION = "Who is liable for hidden defects?"


@pytest.fixture
def url(service: ServiceProcess) -> str:
    return f"http://127.0.0.1:{service.port}"


@pytest.mark.anyio
class TestStandard(RetrieversIntegrationTests):
    """Every test of langchain-tests, with no exception."""

    @pytest.fixture(autouse=True)
    def _service(self, url: str) -> None:
        self.url = url

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return TaugateRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"url": self.url}

    @property
    def retriever_query_example(self) -> str:
        return QUESTION


class Events(BaseCallbackHandler):
    """Keeps the custom events of a run."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    def on_custom_event(self, name: str, data: Any, *, run_id: UUID, **rest: Any) -> None:
        self.seen.append((name, data))


def test_documents_carry_score_and_reply_fields(url: str, service: ServiceProcess) -> None:
    reply = service.http.post("/search", json={"query": QUESTION}).json()
    documents = TaugateRetriever(url=url).invoke(QUESTION)
    assert [document.page_content for document in documents] == [result["text"] for result in reply["results"]]
    for document, result in zip(documents, reply["results"], strict=True):
        assert document.id == result["id"]
        assert document.metadata["category"] == result["metadata"]["category"]
        for name in ("score", "relevance", "rank", "document_id"):
            assert document.metadata[name] == result[name]
        for name in ("release", "calibration", "calibrated"):
            assert document.metadata[name] == reply[name]
    judgement = {"query_id": documents[0].metadata["query_id"], "document_id": documents[0].id, "relevant": True}
    assert service.http.post("/feedback", json=judgement).status_code == 202


@pytest.mark.parametrize("threshold", [None, 0, 0.0, 0.01])
def test_threshold_below_tau_changes_nothing(url: str, threshold: float | None) -> None:
    documents = TaugateRetriever(url=url, threshold=threshold).invoke(QUESTION)
    assert [each.id for each in documents] == [each.id for each in TaugateRetriever(url=url).invoke(QUESTION)]
    assert all(each.metadata["calibrated"] for each in documents)


def test_higher_threshold_drops_results(url: str) -> None:
    every = TaugateRetriever(url=url).invoke(QUESTION)
    best = every[0].metadata["score"]
    assert [each.id for each in TaugateRetriever(url=url, threshold=best).invoke(QUESTION)] == [every[0].id]
    assert [each.id for each in TaugateRetriever(url=url).invoke(QUESTION, threshold=best)] == [every[0].id]
    with pytest.raises(ValueError, match="tighten"):
        TaugateRetriever(url=url).invoke(QUESTION, threshold=-1)


def test_empty_result_logs_reason_and_event(url: str, caplog: pytest.LogCaptureFixture) -> None:
    events = Events()
    retriever = TaugateRetriever(url=url, threshold=0.99)
    with caplog.at_level(logging.INFO, "taugate_client"):
        assert retriever.invoke(QUESTION, {"callbacks": [events]}) == []
    assert "all_below_threshold" in caplog.text
    ((name, data),) = events.seen
    assert (name, data["reason"]) == ("taugate_empty", "all_below_threshold")
    assert data["best_score"] > 0

    async def stream() -> list[Any]:
        chain = retriever | RunnableLambda(len)
        return [each async for each in chain.astream_events(QUESTION, version="v2")]

    streamed = asyncio.run(stream())
    (empty,) = [each for each in streamed if each["event"] == "on_custom_event"]
    assert empty["data"]["reason"] == "all_below_threshold"
    assert streamed[-1]["data"]["output"] == 0


def test_langchain_filter_limits_results(url: str) -> None:
    (category,) = {each.metadata["category"] for each in TaugateRetriever(url=url, k=1).invoke(QUESTION)}
    structured = Comparison(comparator=Comparator.EQ, attribute="category", value=category)
    for chosen in ({"category": category}, structured):
        for documents in (
            TaugateRetriever(url=url, filter=chosen).invoke(QUESTION),
            TaugateRetriever(url=url).invoke(QUESTION, filter=chosen),
        ):
            assert {each.metadata["category"] for each in documents} == {category}
    like = Comparison(comparator=Comparator.LIKE, attribute="category", value="a")
    with pytest.raises(UnsupportedFilter, match="like"):
        TaugateRetriever(url=url, filter=like).invoke(QUESTION)


def test_invalid_or_unreachable_service_raises(url: str) -> None:
    with pytest.raises(InvalidRequest):
        TaugateRetriever(url=url, k=0).invoke(QUESTION)
    with pytest.raises(ConnectionFailed):
        TaugateRetriever(url=f"http://127.0.0.1:{free_port()}").invoke(QUESTION)


def test_retriever_works_in_successive_event_loops(url: str) -> None:
    retriever = TaugateRetriever(url=url)
    assert [len(asyncio.run(retriever.ainvoke(QUESTION, k=k))) for k in (1, 2, 3)] == [1, 2, 3]
    assert len(retriever._retrieval._of_loop) == 1, "clients of loops that ended are let go"


def test_key_is_hidden_in_repr(url: str) -> None:
    retriever = TaugateRetriever(url=url, key="of-the-test")
    assert "of-the-test" not in repr(retriever) + retriever.model_dump_json()


def result(score: float, /, **metadata: object) -> Result:
    return Result("c1", "d1", 1, score, None, False, None, "text", metadata)


def reply(*scores: float) -> SearchResponse:
    results = tuple(result(score) for score in scores)
    return SearchResponse(
        results, 0.3, "similarity", True, "calibrated", 5, 5 - len(results), 0.9,
        None if results else "unanswerable", "r1", Drift(False, ()), "q1",
    )  # fmt: skip


@pytest.mark.parametrize("threshold", [None, 0, 0.0, 0.1, 0.5])
def test_low_threshold_changes_nothing(threshold: float | None) -> None:
    found = reply(0.9, 0.5)
    assert tighten(found, threshold) is found
    assert tighten(reply(), threshold).reason == "unanswerable", "nothing to drop, and the reason stays"


def test_higher_threshold_drops_and_counts() -> None:
    some = tighten(reply(0.9, 0.5), 0.6)
    assert ([each.score for each in some.results], some.dropped, some.reason) == ([0.9], 4, None)
    none = tighten(reply(0.9, 0.5), 0.95)
    assert (none.results, none.dropped, none.reason) == ((), 5, "all_below_threshold")


def test_retrieval_turns_exploration_off(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    def answer(self: TaugateClient, query: str, **options: object) -> SearchResponse:
        asked.append({"query": query, **options})
        return reply(0.9)

    monkeypatch.setattr(TaugateClient, "search", answer)
    Retrieval("http://h").search("q", k=3, filter={"year": 2020})
    assert asked == [{"query": "q", "explore": False, "k": 3, "filter": {"year": 2020}}]


@pytest.mark.parametrize("threshold", [-0.1, math.nan])
def test_negative_threshold_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="tighten"):
        tighten(reply(0.9), threshold)


def test_metadata_keeps_conflicting_document_fields() -> None:
    fields = metadata(reply(), result(0.9, score="five stars", year=2020))
    assert (fields["score"], fields["document.score"], fields["year"]) == (0.9, "five stars", 2020)
    assert (fields["query_id"], fields["release"], fields["calibration"]) == ("q1", "r1", "calibrated")
    assert fields["truncated"] is False
    assert "title" not in fields
