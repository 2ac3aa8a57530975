"""/gate, /gate/batch and /gate/golden, from the point of view of clients."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from taugate.calibration.replay import AnsweredLog
from taugate.drift.observations import hashed
from taugate.drift.query_log import LoggedQuery, read_query_log
from taugate.registry.catalog import find
from taugate.retrieval.gate import MAX_RESULTS, Gate, ScoredResult
from tests.service.access.files import bearer, entry, write
from tests.service_process import ServiceProcess

Results = list[dict[str, Any]]


def gate(service: ServiceProcess, **body: object) -> httpx.Response:
    return service.http.post("/gate", json=body)


def test_reply_has_what_the_gate_in_process_keeps(
    gate_service: ServiceProcess, gate_releases: Path, queries: list[dict[str, Any]]
) -> None:
    local = Gate.load(find(gate_releases))
    for query in queries[:20]:
        reply = gate(gate_service, **query).json()
        expected = local.cut([ScoredResult(**result) for result in query["results"]])
        assert reply["results"] == [
            {"id": kept.id, "rank": kept.rank, "score": kept.score, "relevance": kept.relevance}
            for kept in expected.results
        ]
        assert (reply["calibrated"], reply["why_not"], reply["considered"]) == (True, None, 5)
        assert (reply["threshold"], reply["policy"]) == (expected.threshold, "probability")
        assert (reply["release"], reply["drift"]) == (find(gate_releases).name, {"alarm": False, "signals": []})


def test_batch_replies_are_those_of_single_requests(
    gate_service: ServiceProcess, queries: list[dict[str, Any]]
) -> None:
    replies = gate_service.http.post("/gate/batch", json={"queries": queries[:5]}).json()["responses"]
    assert [reply["results"] for reply in replies] == [
        gate(gate_service, **query).json()["results"] for query in queries[:5]
    ]


Change = Callable[[Results], Results]
NOT_COVERED: dict[str, Change] = {
    "fewer_than_k": lambda results: results[:3],
    "not_sorted": lambda results: results[::-1],
    "missing_score:cosine": lambda results: [result | {"scores": None} for result in results],
    "outside_calibrated_range": lambda results: [result | {"score": 10 * result["score"]} for result in results],
}


@pytest.mark.parametrize("reason", NOT_COVERED)
def test_results_outside_the_calibration_say_why(
    gate_service: ServiceProcess, queries: list[dict[str, Any]], reason: str
) -> None:
    reply = gate(gate_service, results=NOT_COVERED[reason](queries[0]["results"]))
    assert (reply.status_code, reply.json()["calibrated"], reply.json()["why_not"]) == (200, False, reason)


def test_ten_thousand_equal_scores_are_cut(gate_service: ServiceProcess) -> None:
    results = [{"id": place, "score": 0.016, "scores": {"cosine": 0.5}} for place in range(MAX_RESULTS)]
    reply = gate(gate_service, results=results)
    assert (reply.status_code, reply.json()["considered"]) == (200, 5)


def test_no_results_are_a_reply_with_its_reason(gate_service: ServiceProcess) -> None:
    reply = gate(gate_service, results=[]).json()
    assert (reply["results"], reply["reason"], reply["best_score"]) == ([], "no_results", None)


@pytest.mark.parametrize(
    ("results", "field"),
    [
        ('[{"id": "a", "score": NaN}]', "results.0.score"),
        ('[{"id": "a", "score": 1e39}]', "results.0.score"),
        ('[{"id": "a", "score": 1, "scores": {"cosine": Infinity}}]', "results.0.scores.cosine"),
        ('[{"id": "a", "score": 1}, {"id": "a", "score": 0.5}]', "results.1.id"),
        ('[{"id": "", "score": 1}]', "results.0.id"),
        ('[{"score": 1}]', "results.0.id"),
        ('[{"id": "a"}]', "results.0.score"),
        ('[{"id": "a", "score": "1"}]', "results.0.score"),
        ('{"id": "a", "score": 1}', "results"),
        ("[" + ",".join(f'{{"id":"{place}","score":1}}' for place in range(MAX_RESULTS + 1)) + "]", "results"),
    ],
    ids=["NaN", "too large", "infinity", "repeated", "blank id", "no id", "no score", "text", "no list", "too many"],
)
def test_invalid_results_name_their_field(gate_service: ServiceProcess, results: str, field: str) -> None:
    headers = {"Content-Type": "application/json"}
    reply = gate_service.http.post("/gate", content=f'{{"results": {results}}}', headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "invalid")
    assert reply.json()["error"]["message"].startswith(field)


def test_k_over_the_limit_is_422(gate_service: ServiceProcess) -> None:
    assert gate(gate_service, results=[], k=101).json()["error"]["message"] == "k: 101 is over 100 (TAUGATE_MAX_K)"


def test_search_paths_name_the_gate(gate_service: ServiceProcess) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "/search": {"query": "a"},
        "/search/batch": {"queries": ["a"]},
        "/explain": {"query": "a", "document_id": "d"},
        "/feedback": {"query": "a", "document_id": "d", "relevant": True},
    }
    for path, body in bodies.items():
        reply = gate_service.http.post(path, json=body)
        assert (reply.status_code, reply.json()["error"]["code"]) == (409, "unsupported_by_release")
        assert "/gate" in reply.json()["error"]["message"]


def test_gate_of_a_searched_release_names_search(service: ServiceProcess) -> None:
    reply = gate(service, results=[])
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "unsupported_by_release")
    assert "/search" in reply.json()["error"]["message"]


def test_operators_see_the_release_without_encoder(gate_service: ServiceProcess) -> None:
    release = gate_service.http.get("/release").json()
    assert (release["precision"], release["drift"]["roe"]) == (None, None)
    reference = gate_service.http.get("/release/reference").json()
    assert "random" not in reference
    assert len(reference["topk"]) == 101


def test_kept_result_can_be_judged_and_is_logged(gate_service: ServiceProcess, queries: list[dict[str, Any]]) -> None:
    reply = next(reply for query in queries if (reply := gate(gate_service, **query).json())["results"])
    body = {"query_id": reply["query_id"], "document_id": reply["results"][0]["id"], "relevant": True}
    assert gate_service.http.post("/feedback", json=body).json() == {"status": "accepted"}
    assert gate_service.http.post("/feedback", json=body).json() == {"status": "repeated"}
    other = gate_service.http.post("/feedback", json=body | {"document_id": "elsewhere"})
    assert (other.status_code, other.json()["error"]["code"]) == (422, "invalid")


def test_process_loads_neither_encoder_nor_index(gate_service: ServiceProcess, queries: list[dict[str, Any]]) -> None:
    for query in queries:
        assert gate(gate_service, **query).status_code == 200
    process = Path(f"/proc/{gate_service.process.pid}")
    maps, status = ((process / name).read_text(encoding="utf-8") for name in ("maps", "status"))
    assert not [name for name in ("torch", "onnxruntime", "faiss", "tokenizers") if name in maps]
    (resident,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    assert int(resident) < 100_000  # kB


def test_traffic_is_in_the_metrics_and_the_log(
    gate_releases: Path, queries: list[dict[str, Any]], tmp_path: Path
) -> None:
    log = tmp_path / "queries.jsonl"
    with ServiceProcess(gate_releases, TAUGATE_QUERY_LOG=str(log)) as service:
        service.ready()
        replies = [gate(service, **query).json() for query in queries]
        gate(service, results=[])
        metrics = service.metrics()
        service.stop()
    kept = sum(len(reply["results"]) for reply in replies)
    assert metrics['taugate_results_total{outcome="kept"}'] == kept
    assert metrics['taugate_empty_responses_total{reason="no_results"}'] == 1
    assert np.isnan([metrics["taugate_roe"], metrics["taugate_canary_timestamp_seconds"]]).all()

    lines = [line.record for line in read_query_log([log]) if isinstance(line.record, LoggedQuery)]
    assert [line.query for line in lines[:-1]] == [hashed(query["query"]) for query in queries]
    assert sum(len(line.shown) for line in lines) == kept
    assert [len(line.topk) for line in lines] == [5] * len(queries) + [0]
    replayed = AnsweredLog.read(gate_releases, None, [log]).log.queries
    expected = [np.mean([result["scores"]["cosine"] for result in query["results"][:5]]) for query in queries]
    np.testing.assert_allclose(replayed.components[:, 0], expected, rtol=1e-6)


def test_results_are_charged_as_the_rows_of_searches(gate_releases: Path, tmp_path: Path) -> None:
    """A query of /gate costs one for each TAUGATE_MAX_K results; an invalid body costs one for each search body."""
    few, many = ([{"id": place, "score": 0.01} for place in range(number)] for number in (100, 1001))
    bodies: dict[str, tuple[str, dict[str, Any], int]] = {
        "few": ("/gate", {"results": few}, 1),
        "many": ("/gate", {"results": many}, 11),
        "batch": ("/gate/batch", {"queries": [{"results": few}, {"results": []}, {"results": many}]}, 13),
        "golden": ("/gate/golden", {"queries": [{"query_id": "q", "results": many}]}, 11),
        "invalid": ("/gate", {"results": [{"id": "a"}]}, 1),
        "large": ("/gate", {"results": [{"id": "a"}], "query": "a" * (5 << 16)}, 6),
    }
    keys = write(tmp_path / "keys", [entry(key, key, "search", queries_per_second=0.1) for key in bodies])
    with ServiceProcess(gate_releases, TAUGATE_KEYS_FILE=str(keys)) as service:
        service.ready()
        for key, (path, body, cost) in bodies.items():
            service.http.post(path, json=body, headers=bearer(key))
            refused = service.http.post("/gate", json={"results": few}, headers=bearer(key))
            assert refused.status_code == 429
            assert 10 * cost - 5 < int(refused.headers["Retry-After"]) <= 10 * cost, key


def test_scores_of_a_result_are_limited(gate_service: ServiceProcess) -> None:
    for number in (1001, 40_000):
        result = {"id": "a", "score": 1, "scores": {f"n{place}": 0.5 for place in range(number)}}
        assert gate(gate_service, results=[result]).json()["error"]["message"].startswith("results.0")


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
