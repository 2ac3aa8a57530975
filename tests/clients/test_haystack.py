"""Haystack's pipeline on the real service: run, saved, loaded, filtered, empty."""

import asyncio
import hashlib
import json
from pathlib import Path

import pytest
from haystack import Document, Pipeline
from haystack.components.builders import PromptBuilder
from haystack.utils import Secret

from haystack_integrations.components.retrievers.taugate import TaugateRetriever
from taugate_client import ConnectionFailed, Unauthorized, UnsupportedFilter
from tests.loopback import free_port
from tests.service_process import ServiceProcess

QUESTION = "Who is liable for hidden defects?"


@pytest.fixture
def url(service: ServiceProcess) -> str:
    return f"http://127.0.0.1:{service.port}"


def pipeline(retriever: TaugateRetriever) -> Pipeline:
    made = Pipeline()
    made.add_component("retriever", retriever)
    made.add_component("prompt", PromptBuilder("{% for each in documents %}{{ each.content }}\n{% endfor %}"))
    made.connect("retriever.documents", "prompt.documents")
    return made


def test_pipeline_survives_save_and_load(url: str, service: ServiceProcess) -> None:
    reply = service.http.post("/search", json={"query": QUESTION, "k": 2}).json()
    saved = pipeline(TaugateRetriever(url, k=2)).dumps()
    assert "TAUGATE_KEY" in saved
    loaded = Pipeline.loads(saved)
    assert loaded.dumps() == saved
    done = loaded.run({"retriever": {"query": QUESTION}}, include_outputs_from={"retriever"})
    assert all(result["text"] in done["prompt"]["prompt"] for result in reply["results"])
    documents = done["retriever"]["documents"]
    assert all(isinstance(each, Document) for each in documents)
    assert [(each.id, each.score) for each in documents] == [(each["id"], each["score"]) for each in reply["results"]]
    meta = documents[0].meta
    assert (meta["release"], meta["calibration"]) == (reply["release"], reply["calibration"])
    assert meta["relevance"] == reply["results"][0]["relevance"]
    assert meta["query_id"] == done["retriever"]["query_id"]
    assert done["retriever"]["reason"] is None


def test_empty_result_has_reason_output(url: str) -> None:
    retriever = TaugateRetriever(url)
    assert retriever.run(QUESTION, threshold=0.99)["reason"] == "all_below_threshold"
    found = retriever.run(QUESTION, threshold=0.99)
    assert found["documents"] == []
    assert len(found["query_id"]) == 32
    assert len(retriever.run(QUESTION, threshold=0)["documents"]) == len(retriever.run(QUESTION)["documents"])


def test_pipeline_runs_asynchronously(url: str) -> None:
    made = pipeline(TaugateRetriever(url))
    done = asyncio.run(made.run_async({"retriever": {"query": QUESTION, "k": 1}}, include_outputs_from={"retriever"}))
    assert len(done["retriever"]["documents"]) == 1
    assert done["prompt"]["prompt"].strip() == done["retriever"]["documents"][0].content


def test_haystack_filter_limits_results(url: str) -> None:
    retriever = TaugateRetriever(url)
    category = retriever.run(QUESTION, k=1)["documents"][0].meta["category"]
    wanted = {"field": "meta.category", "operator": "==", "value": category}
    for documents in (retriever.run(QUESTION, filters=wanted), TaugateRetriever(url, filters=wanted).run(QUESTION)):
        assert {each.meta["category"] for each in documents["documents"]} == {category}
    with pytest.raises(UnsupportedFilter, match="meta.year|year"):
        TaugateRetriever(url, filters={"field": "meta.year", "operator": ">", "value": "recent"})


def test_key_is_saved_as_variable_name(releases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = {"name": "app", "sha256": hashlib.sha256(b"of-the-test").hexdigest(), "scopes": ["search"]}
    with ServiceProcess(releases, TAUGATE_KEYS=json.dumps([key])) as guarded:
        url = f"http://127.0.0.1:{guarded.ready().port}"
        with pytest.raises(Unauthorized):
            TaugateRetriever(url).run(QUESTION)
        monkeypatch.setenv("RAG_KEY", "of-the-test")
        saved = TaugateRetriever(url, Secret.from_env_var("RAG_KEY")).to_dict()
        assert "of-the-test" not in json.dumps(saved)
        assert TaugateRetriever.from_dict(saved).run(QUESTION)["documents"]
        monkeypatch.delenv("RAG_KEY")
        monkeypatch.setenv("TAUGATE_KEY", "of-the-test")
        assert TaugateRetriever(url).run(QUESTION)["documents"]
    with pytest.raises(ValueError, match="token"):
        TaugateRetriever(url, Secret.from_token("of-the-test")).to_dict()


def test_unreachable_service_raises_error() -> None:
    with pytest.raises(ConnectionFailed):
        TaugateRetriever(f"http://127.0.0.1:{free_port()}").run(QUESTION)
