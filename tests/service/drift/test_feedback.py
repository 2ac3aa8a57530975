"""POST /feedback, from the point of view of clients."""

import time

import pytest

from tests.service_process import ServiceProcess

QUERY = {"query": "What does a building permit cost?", "threshold": -2.0, "k": 3}


@pytest.fixture
def reply(service: ServiceProcess) -> dict:
    return service.http.post("/search", json=QUERY).json()


def judge(service: ServiceProcess, query_id: object, document_id: object, relevant: object = True) -> tuple[int, dict]:
    body = {"query_id": query_id, "document_id": document_id, "relevant": relevant}
    response = service.http.post("/feedback", json=body)
    return response.status_code, response.json()


def test_repeated_judgement_is_not_counted(service: ServiceProcess, reply: dict) -> None:
    document = reply["results"][0]["id"]
    assert judge(service, reply["query_id"], document) == (202, {"status": "accepted"})
    assert judge(service, reply["query_id"], document) == (202, {"status": "repeated"})


def test_results_of_one_reply_are_judged_separately(service: ServiceProcess, reply: dict) -> None:
    first, second, third = (result["id"] for result in reply["results"])
    assert judge(service, reply["query_id"], third, relevant=False) == (202, {"status": "accepted"})
    assert judge(service, reply["query_id"], third, relevant=False) == (202, {"status": "repeated"})
    assert judge(service, reply["query_id"], first) == (202, {"status": "accepted"})
    assert judge(service, reply["query_id"], second) == (202, {"status": "accepted"})
    assert judge(service, reply["query_id"], second, relevant=False) == (202, {"status": "accepted"})


def test_cached_reply_has_own_query_id(service: ServiceProcess, reply: dict) -> None:
    again = service.http.post("/search", json=QUERY).json()
    assert again["query_id"] != reply["query_id"]
    assert judge(service, again["query_id"], again["results"][0]["id"]) == (202, {"status": "accepted"})


def test_batch_reply_can_be_judged(service: ServiceProcess) -> None:
    (reply,) = service.http.post("/search/batch", json={"queries": [QUERY]}).json()["responses"]
    assert judge(service, reply["query_id"], reply["results"][0]["id"]) == (202, {"status": "accepted"})


def test_unknown_query_id_is_404(service: ServiceProcess) -> None:
    status, body = judge(service, "0" * 32, "d1")
    assert (status, body["error"]["code"]) == (404, "not_found")
    assert "feedback_seconds of TAUGATE_DRIFT" in body["error"]["message"]


def test_document_not_shown_is_422(service: ServiceProcess, reply: dict) -> None:
    status, body = judge(service, reply["query_id"], "elsewhere")
    assert (status, body["error"]["code"]) == (422, "invalid")
    assert reply["results"][0]["id"] in body["error"]["message"]


def test_empty_reply_cannot_be_judged(service: ServiceProcess) -> None:
    reply = service.http.post("/search", json=QUERY | {"threshold": 2.0}).json()
    status, body = judge(service, reply["query_id"], "d1")
    assert (status, body["error"]["message"]) == (422, "document_id: the reply did not show it; it showed nothing")


@pytest.mark.parametrize(
    ("field", "value"), [("query_id", ""), ("query_id", "x" * 65), ("document_id", 5), ("relevant", "yes")]
)
def test_malformed_field_is_422(service: ServiceProcess, reply: dict, field: str, value: object) -> None:
    body = {"query_id": reply["query_id"], "document_id": reply["results"][0]["id"], "relevant": True}
    response = service.http.post("/feedback", json=body | {field: value})
    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid")
    assert field in response.json()["error"]["message"]


def test_feedback_metric_counts_outcomes(service: ServiceProcess, reply: dict) -> None:
    def counts() -> dict[str, float]:
        lines = service.http.get("/metrics").text.splitlines()
        pairs = (line.split() for line in lines if line.startswith("taugate_feedback_total"))
        return {name.split('"')[1]: float(value) for name, value in pairs}

    before = counts()
    for _ in range(2):
        judge(service, reply["query_id"], reply["results"][0]["id"])
    judge(service, reply["query_id"], reply["results"][1]["id"], relevant=False)
    judge(service, "nobody", "d1")
    moved = {name: value - before.get(name, 0) for name, value in counts().items()}
    assert moved == {"relevant": 1, "repeated": 1, "irrelevant": 1, "unknown": 1}


def judge_query(service: ServiceProcess, query: str, document_id: str, relevant: bool = True) -> tuple[int, dict]:
    body = {"query": query, "document_id": document_id, "relevant": relevant}
    response = service.http.post("/feedback", json=body)
    return response.status_code, response.json()


def test_query_text_can_be_judged(service: ServiceProcess) -> None:
    title = service.http.post("/search", json=QUERY).json()["results"][0]
    query = f"{title['title'] or ''} {title['text']}"[:300]  # which finds its own document
    (document, *_) = (each["id"] for each in service.http.post("/search", json={"query": query}).json()["results"])
    before = observed(service)
    assert judge_query(service, query, document) == (202, {"status": "accepted"})
    assert judge_query(service, query, document) == (202, {"status": "repeated"})
    status, body = judge_query(service, query, "elsewhere")
    assert (status, body["error"]["code"]) == (422, "invalid")
    assert body["error"]["message"].startswith("document_id: a search for this query does not show it; it shows ")
    assert document in body["error"]["message"]
    assert observed(service) == before, "feedback is no traffic"


def test_judged_new_query_is_searched_for(service: ServiceProcess) -> None:
    query = f"a permit for {time.time_ns()}"
    status, body = judge_query(service, query, "elsewhere")
    assert status == 422
    shown = [each["id"] for each in service.http.post("/search", json={"query": query}).json()["results"]]
    assert body["error"]["message"].endswith(f"it shows {', '.join(shown) or 'nothing'}")


def observed(service: ServiceProcess) -> list[str]:
    """Metrics that count searches and their results."""
    counted = ("taugate_results_total", "taugate_empty_responses_total")
    return [line for line in service.http.get("/metrics").text.splitlines() if line.startswith(counted)]


@pytest.mark.parametrize("given", [{}, {"query_id": "0" * 32, "query": "a permit"}, {"query_id": None, "query": None}])
def test_judgement_needs_query_id_or_query(service: ServiceProcess, given: dict) -> None:
    response = service.http.post("/feedback", json=given | {"document_id": "d1", "relevant": True})
    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid")
    assert "give either query_id or query" in response.json()["error"]["message"]


def test_judged_query_over_limit_is_422(service: ServiceProcess) -> None:
    status, body = judge_query(service, "permit " * 2000, "d1")
    assert (status, body["error"]["code"]) == (422, "invalid")
    assert "TAUGATE_MAX_QUERY_CHARS" in body["error"]["message"]
