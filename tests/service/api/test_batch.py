"""POST /search/batch returns the replies of single searches, in request order."""

from typing import Any

import pytest
import zaragoza_construction_faq

from taugate.service.api.schemas import BatchResponse
from tests.service_process import ServiceProcess

QUESTIONS = [entry["q"] for entry in zaragoza_construction_faq.load(lang="en")]
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


def without_id(reply: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in reply.items() if name != "query_id"}


@pytest.mark.parametrize("queries", [QUESTIONS[:1], QUESTIONS[:40], MIXED, MIXED[::-1]], ids=len)
def test_batch_equals_single_searches(service: ServiceProcess, queries: list[Any]) -> None:
    singles = [each if isinstance(each, dict) else {"query": each} for each in queries]
    alone = [service.http.post("/search", json=body).json() for body in singles]
    together = batch(service, queries)
    assert [without_id(reply) for reply in together] == [without_id(reply) for reply in alone]


def test_batch_replies_have_distinct_ids(service: ServiceProcess) -> None:
    replies = [reply for _ in range(3) for reply in batch(service, [QUESTIONS[0]] * 20)]
    assert len({reply["query_id"] for reply in replies}) == 60
