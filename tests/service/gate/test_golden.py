"""GET and POST /gate/golden: whether the retriever is still the one that was calibrated."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.service_process import ServiceProcess

Results = list[dict[str, Any]]


@pytest.fixture(scope="module")
def golden(gate_service: ServiceProcess, queries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The golden questions with the results of the calibrated retriever."""
    by_text = {query["query"]: query["results"] for query in queries}
    questions = gate_service.http.get("/gate/golden").json()["queries"]
    return [{"query_id": question["query_id"], "results": by_text[question["query"]]} for question in questions]


def check(
    service: ServiceProcess, golden: list[dict[str, Any]], change: Callable[[Results], Results]
) -> httpx.Response:
    queries = [answer | {"results": change(answer["results"])} for answer in golden]
    return service.http.post("/gate/golden", json={"queries": queries})


def test_same_retriever_passes(gate_service: ServiceProcess, golden: list[dict[str, Any]]) -> None:
    reply = check(gate_service, golden, lambda results: results)
    assert (reply.status_code, reply.json()["moved"]) == (200, 0)
    assert reply.json()["returned"] == reply.json()["recorded"] == 5 * len(golden)


def test_missing_documents_pass_if_few(gate_service: ServiceProcess, golden: list[dict[str, Any]]) -> None:
    reply = check(gate_service, golden, lambda results: results[:2] + results[3:])
    assert (reply.status_code, reply.json()["returned"]) == (200, 4 * len(golden))


def _other_k(results: Results) -> Results:
    return [result | {"score": 1 / (20 + rank)} for rank, result in enumerate(results, start=1)]


def _other_model(results: Results) -> Results:
    return [result | {"scores": {"cosine": 0.8 * result["scores"]["cosine"]}} for result in results]


def _other_collection(results: Results) -> Results:
    return [result | {"id": f"{result['id']}-copy"} for result in results]


OTHER: dict[str, tuple[Callable[[Results], Results], str]] = {
    "other k of the fusion": (_other_k, "scores moved by 0.029 (tolerance "),
    "scores times ten": (
        lambda results: [result | {"score": 10 * result["score"]} for result in results],
        "scores moved",
    ),
    "other model": (_other_model, "scores cosine moved by"),
    "no component": (
        lambda results: [result | {"scores": None} for result in results],
        "no result has the score cosine",
    ),
    "other collection": (_other_collection, "0 of"),
}


@pytest.mark.parametrize("name", OTHER)
def test_changed_retriever_is_refused(gate_service: ServiceProcess, golden: list[dict[str, Any]], name: str) -> None:
    change, sentence = OTHER[name]
    reply = check(gate_service, golden, change)
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "other_retriever")
    assert reply.json()["error"]["message"].startswith(sentence)


def test_missing_question_is_named(gate_service: ServiceProcess, golden: list[dict[str, Any]]) -> None:
    reply = check(gate_service, golden[1:], lambda results: results)
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "invalid")
    assert golden[0]["query_id"] in reply.json()["error"]["message"]


def test_unsupported_method_lists_all_methods_of_the_path(gate_service: ServiceProcess) -> None:
    reply = gate_service.http.put("/gate/golden")
    assert (reply.status_code, reply.headers["allow"]) == (405, "GET, HEAD, POST")
    assert gate_service.http.head("/gate/golden").status_code == 200


def test_searched_release_has_no_golden_questions(service: ServiceProcess) -> None:
    reply = service.http.get("/gate/golden")
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "unsupported_by_release")
