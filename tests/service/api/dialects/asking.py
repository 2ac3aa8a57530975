"""Requests of the dialects' tests, and the equivalent /search requests."""

from typing import Any

from tests.service_process import ServiceProcess

# With the encoder of the tests, a rare word is similar to much, and a long query to little: τ lies between them.
QUERY, ANOTHER, OFF_TOPIC = "m", "m years exterior", "How many people can be there at the same time?"
KEY, FILTERED, SLOW = ("tg_" + letter * 40 for letter in "kfs")
AUTHORIZED = {"Authorization": f"Bearer {KEY}"}
OPENAI, DIFY = "/v1/vector_stores/current/search", "/dify/retrieval"


def ask(service: ServiceProcess, path: str, body: Any, headers: dict[str, str] = AUTHORIZED) -> Any:
    return service.http.post(path, json=body, headers=headers)


def search(service: ServiceProcess, **fields: Any) -> dict[str, Any]:
    return ask(service, "/search", {"query": QUERY, **fields}).json()


def openai(service: ServiceProcess, **fields: Any) -> dict[str, Any]:
    reply = ask(service, OPENAI, {"query": QUERY, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def dify(service: ServiceProcess, **fields: Any) -> dict[str, Any]:
    reply = ask(service, DIFY, {"knowledge_id": "current", "query": QUERY, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def shown(results: list[dict[str, Any]]) -> list[tuple[str, float]]:
    scores = (each["score"] if each["relevance"] is None else each["relevance"] for each in results)
    return [(each["id"], max(0.0, score)) for each, score in zip(results, scores, strict=True)]


def check_refused(service: ServiceProcess, path: str, fields: dict[str, Any], message: str) -> dict[str, Any]:
    """Check that a request is refused by name, and that nothing of the caller's own is repeated."""
    reply = ask(service, path, {"knowledge_id": "current", "query": QUERY, **fields})
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "invalid"), reply.text
    assert message in reply.json()["error"]["message"]
    assert "sesame" not in reply.text
    return reply.json()
