"""LlamaIndex's query engine on the real service, including an empty result."""

import asyncio

import pytest
from llama_index.core import get_response_synthesizer
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from llama_index_instrumentation import get_dispatcher

from llama_index.retrievers.taugate import TaugateEmptyEvent, TaugateRetriever
from taugate_client import ConnectionFailed, UnsupportedFilter
from tests.loopback import free_port
from tests.service_process import ServiceProcess

QUESTION = "Who is liable for hidden defects?"


@pytest.fixture
def url(service: ServiceProcess) -> str:
    return f"http://127.0.0.1:{service.port}"


class Empty(BaseEventHandler):
    """Keeps the events of empty answers."""

    seen: list[TaugateEmptyEvent]

    def handle(self, event: BaseEvent, **rest: object) -> None:
        if isinstance(event, TaugateEmptyEvent):
            self.seen.append(event)


def engine(retriever: TaugateRetriever) -> RetrieverQueryEngine:
    return RetrieverQueryEngine(retriever, get_response_synthesizer(llm=MockLLM()))


def test_query_engine_uses_retrieved_passages(url: str, service: ServiceProcess) -> None:
    reply = service.http.post("/search", json={"query": QUESTION, "k": 2}).json()
    response = engine(TaugateRetriever(url, k=2)).query(QUESTION)
    assert [node.node_id for node in response.source_nodes] == [result["id"] for result in reply["results"]]
    assert [node.score for node in response.source_nodes] == [result["score"] for result in reply["results"]]
    metadata = response.source_nodes[0].metadata
    assert metadata["release"] == reply["release"]
    assert metadata["calibration"] == "calibrated"
    assert len(metadata["query_id"]) == 32
    assert reply["results"][0]["text"] in str(response), "MockLLM repeats its prompt"
    assert metadata["query_id"] not in str(response), "what is known of the search is nothing for the model"
    assert "None" not in str(response), "a document without a title has no line that says so"
    assert f"category: {metadata['category']}" in response.source_nodes[0].get_content(MetadataMode.LLM)


def test_empty_result_emits_event_with_reason(url: str) -> None:
    handler = Empty(seen=[])
    get_dispatcher().add_event_handler(handler)
    response = engine(TaugateRetriever(url, threshold=0.99)).query(QUESTION)
    assert str(response) == "Empty Response"
    assert response.source_nodes == []
    assert [event.reply["reason"] for event in handler.seen] == ["all_below_threshold"]


def test_async_retrieval_returns_same_nodes(url: str) -> None:
    retriever = TaugateRetriever(url, k=3)
    for _ in range(2):  # each in an event loop of its own
        nodes = asyncio.run(retriever.aretrieve(QUESTION))
        assert [node.node_id for node in nodes] == [node.node_id for node in retriever.retrieve(QUESTION)]


def test_llamaindex_filter_limits_results(url: str) -> None:
    (first,) = TaugateRetriever(url, k=1).retrieve(QUESTION)
    wanted = MetadataFilters(filters=[MetadataFilter(key="category", value=first.metadata["category"])])
    nodes = TaugateRetriever(url, filters=wanted).retrieve(QUESTION)
    assert {node.metadata["category"] for node in nodes} == {first.metadata["category"]}
    text = MetadataFilters(filters=[MetadataFilter(key="category", value="a", operator="text_match")])
    with pytest.raises(UnsupportedFilter, match="text_match"):
        TaugateRetriever(url, filters=text)


def test_unreachable_service_raises_error() -> None:
    with pytest.raises(ConnectionFailed):
        TaugateRetriever(f"http://127.0.0.1:{free_port()}").retrieve(QUESTION)
