"""LangChain, LlamaIndex and Haystack cut the results of their own retrievers by a release of a run."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from haystack import Document as HaystackDocument
from haystack import Pipeline
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.schema import NodeWithScore, TextNode
from mcp import Client

from haystack_integrations.components.retrievers.taugate import TaugateGate
from langchain_taugate import TaugateCompressor
from llama_index.retrievers.taugate import TaugatePostprocessor
from taugate.cli import main as cli
from taugate_client import AsyncTaugateClient, Gate, InvalidRequest
from taugate_mcp.server import make_server
from tests.runs import dense_results, fused_with_cosine, write_json
from tests.service_process import ServiceProcess

Results = list[dict[str, Any]]
Kept = list[tuple[str, float, float]]  # id, score and relevance
Cut = Callable[[str, Results], Kept]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, sample: Path, releases: Path) -> Path:
    """A fused run with its cosine as a component."""
    folder = tmp_path_factory.mktemp("fused")
    return fused_with_cosine(write_json(folder / "dense.jsonl", dense_results(sample, releases)))


@pytest.fixture(scope="module")
def gates(run: Path, sample: Path) -> str:
    folder = str(run.parent / "gates")
    qrels = str(sample / "qrels" / "test.tsv")
    command = ["calibrate-run", str(run), qrels, "--releases", folder, "--max-loss", "0.1", "--policy", "probability"]
    assert cli.main(command) == 0
    return folder


@pytest.fixture(scope="module")
def gate_service(gates: str) -> Iterator[str]:
    with ServiceProcess(Path(gates)) as service:
        yield f"http://127.0.0.1:{service.ready().port}"


@pytest.fixture(scope="module")
def queries(run: Path) -> list[Results]:
    return [json.loads(line)["results"] for line in run.read_text(encoding="utf-8").splitlines()[:40]]


def by_langchain(gates: str, results: Results) -> Kept:
    documents = [
        Document(id=result["id"], page_content="text", metadata={"rrf": result["score"], "scores": result["scores"]})
        for result in results
    ]
    compressor = TaugateCompressor(releases=gates, score="rrf")
    kept = compressor.compress_documents(documents, "a question")
    assert all(document.metadata["scores"] for document in documents)
    assert "relevance" not in documents[0].metadata  # the retriever's documents are not changed
    return [(str(each.id), each.metadata["rrf"], each.metadata["relevance"]) for each in kept]


def by_llama_index(gates: str, results: Results) -> Kept:
    nodes = [
        NodeWithScore(node=TextNode(id_=result["id"], metadata={"scores": result["scores"]}), score=result["score"])
        for result in results
    ]
    kept = TaugatePostprocessor(releases=gates).postprocess_nodes(nodes, query_str="a question")
    assert all("relevance" not in each.node.get_metadata_str("llm") for each in kept)
    return [(each.node_id, each.score or 0.0, each.metadata["relevance"]) for each in kept]


def by_haystack(gates: str, results: Results) -> Kept:
    documents = [
        HaystackDocument(id=result["id"], score=result["score"], meta={"scores": result["scores"]})
        for result in results
    ]
    kept = TaugateGate(gates).run(documents)["documents"]
    return [(each.id, each.score, each.meta["relevance"]) for each in kept]


@pytest.mark.parametrize("cut", [by_langchain, by_llama_index, by_haystack])
def test_service_keeps_what_the_gate_keeps(cut: Cut, gates: str, gate_service: str, queries: list[Results]) -> None:
    for results in queries[:5]:
        assert cut(gate_service, results) == cut(gates, results)


@pytest.mark.parametrize("cut", [by_langchain, by_llama_index, by_haystack])
def test_framework_keeps_what_the_gate_keeps(cut: Cut, gates: str, queries: list[Results]) -> None:
    gate = Gate(gates)
    numbers = set()
    for results in queries:
        reply = gate.cut(results)
        assert cut(gates, results) == [(each.id, each.score, each.relevance) for each in reply.results]
        numbers.add(len(reply.results))
    assert len(numbers) > 1


def test_agent_gets_what_the_gate_keeps(gates: str, gate_service: str, queries: list[Results]) -> None:
    async def ask() -> list[dict[str, Any]]:
        async with AsyncTaugateClient(gate_service) as taugate, Client(make_server(taugate)) as client:
            asked = [{"results": [_scored(each) for each in results]} for results in [*queries[:5], []]]
            return [(await client.call_tool("gate", arguments)).structured_content for arguments in asked]

    *replies, nothing = asyncio.run(ask())
    gate = Gate(gates)
    for results, reply in zip(queries, replies, strict=False):
        kept = gate.cut(results)
        fields = ("id", "score", "relevance")
        assert reply["results"] == [{name: getattr(each, name) for name in fields} for each in kept.results]
        assert reply["note"].startswith(f"{len(kept.results)} of {kept.considered} results pass")
    assert (nothing["results"], nothing["reason"], nothing["note"].split(".")[0]) == (
        [],
        "no_results",
        "There were no results to gate",
    )


def _scored(result: dict[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in ("id", "score", "scores")}


def test_langchain_reports_why_nothing_is_kept(gates: str, queries: list[Results]) -> None:
    compressor = TaugateCompressor(releases=gates)
    far = [{**result, "scores": {"cosine": -1.0}} for result in queries[0]]
    documents = [Document("text", metadata=result) for result in far]
    events: list[Any] = []

    def compress(_: str, config: Any) -> Any:
        return compressor.compress_documents(documents, "a question", config["callbacks"])

    class Listener(BaseCallbackHandler):
        def on_custom_event(self, name: str, data: Any, **_: Any) -> None:
            events.append((name, data["reason"]))

    assert RunnableLambda(compress).invoke("", config={"callbacks": [Listener()]}) == []
    assert events == [("taugate_empty", "all_below_threshold")]


def test_result_without_a_score_is_an_error(gates: str) -> None:
    with pytest.raises(InvalidRequest, match="every result needs an id, a score"):
        TaugateCompressor(releases=gates).compress_documents([Document("text")], "a question")


def test_llama_index_takes_it_in_place_of_similarity_postprocessor(gates: str, queries: list[Results]) -> None:
    nodes = [NodeWithScore(node=TextNode(id_=each["id"], metadata=each), score=each["score"]) for each in queries[0]]
    guessed = SimilarityPostprocessor(similarity_cutoff=0.7).postprocess_nodes(nodes)
    assert guessed == []  # no reciprocal rank reaches a threshold that was made for cosines
    kept = TaugatePostprocessor(releases=gates).postprocess_nodes(nodes)
    assert kept[0].node_id == queries[0][0]["id"]


def test_haystack_pipeline_is_saved_and_run(sample: Path, tmp_path: Path) -> None:
    store = InMemoryDocumentStore()
    corpus = [json.loads(line) for line in (sample / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    store.write_documents([HaystackDocument(id=each["_id"], content=each["text"]) for each in corpus])
    retriever = InMemoryBM25Retriever(store, top_k=5)
    questions = [json.loads(line) for line in (sample / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    with (tmp_path / "run.jsonl").open("w", encoding="utf-8") as run:
        for question in questions[:200]:
            found = retriever.run(question["text"])["documents"]
            results = [{"id": each.id, "score": each.score} for each in found]
            run.write(json.dumps({"query_id": question["_id"], "results": results}) + "\n")
    gates = str(tmp_path / "gates")
    qrels = str(sample / "qrels" / "test.tsv")
    assert cli.main(["calibrate-run", str(tmp_path / "run.jsonl"), qrels, "--releases", gates, "--max-loss", ".1"]) == 0
    pipeline = Pipeline()
    pipeline.add_component("retriever", retriever)
    pipeline.add_component("gate", TaugateGate(gates))
    pipeline.connect("retriever.documents", "gate.documents")
    saved: Any = Pipeline.loads(pipeline.dumps()).get_component("gate")
    assert (saved.releases, saved.release, saved.k) == (gates, None, None)
    done = pipeline.run({"retriever": {"query": questions[0]["text"]}})
    assert done["gate"]["reason"] is None
    assert done["gate"]["documents"][0].meta["rank"] == 1
