"""Two services with the same release, one over an engine, and the comparison of their replies."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.redis_process import RedisProcess
from tests.service.access.files import bearer, entry
from tests.service_process import ServiceProcess

WHOLE, FILTERED = "key-whole", "key-filtered"
VISIBLE = "dolda-fel"  # the category that the second key may see: 25 documents
KEYS = [
    entry(WHOLE, "whole", "search", "feedback", "metrics"),
    entry(FILTERED, "filtered", "search", filter={"category": VISIBLE}),
]
OWN = {"query_id", "release", "request_id", "approximate"}  # what each service may say differently
ROUNDED = {"relevance"}  # from moments of vectors, which are stored in the one release and computed in the other


@dataclass(frozen=True)
class Services:
    """here, there: the two services. kind: of the engine. folder, release: of the second one; redis: that both use.

    logs: their query logs. settings: of the second service.
    """

    here: ServiceProcess
    there: ServiceProcess
    kind: str
    folder: Path
    release: str
    redis: RedisProcess
    logs: tuple[Path, Path]
    settings: dict[str, str]

    def ask(self, path: str, body: Any, key: str = WHOLE) -> tuple[httpx.Response, httpx.Response]:
        """Ask both the same."""
        one, other = (each.http.post(path, json=body, headers=bearer(key)) for each in (self.here, self.there))
        return one, other


def check_same(one: Any, other: Any, rounded: bool = False) -> None:
    """Compare two replies, all but OWN."""
    if isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() - OWN == other.keys() - OWN
        for name in one.keys() - OWN:
            check_same(one[name], other[name], rounded or name in ROUNDED)
    elif isinstance(one, list) and isinstance(other, list):
        assert len(one) == len(other)
        for each in zip(one, other, strict=True):
            check_same(*each, rounded)
    elif rounded and isinstance(one, float):
        assert other == pytest.approx(one, rel=1e-5)
    else:
        assert other == one


def same(services: Services, path: str, body: Any, key: str = WHOLE, *, rounded: bool = False) -> Any:
    """Ask both, compare their replies, and return that of the service over the engine.

    Args:
        rounded: Compare no last bit.
    """
    one, other = services.ask(path, body, key)
    assert (one.status_code, other.status_code) == (200, 200), other.text
    check_same(one.json(), other.json(), rounded)
    return other.json()


def refused(services: Services, path: str, body: Any) -> str:
    """What the service over the engine says to a request that it cannot answer."""
    reply = services.there.http.post(path, json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "invalid"), reply.text
    return str(reply.json()["error"]["message"])


def stages(service: ServiceProcess) -> Counter[str]:
    """How often each stage was timed."""
    (family,) = (
        each
        for each in text_string_to_metric_families(service.http.get("/metrics").text)
        if each.name == "taugate_stage_duration_seconds"
    )
    return Counter({each.labels["stage"]: each.value for each in family.samples if each.name.endswith("_count")})
