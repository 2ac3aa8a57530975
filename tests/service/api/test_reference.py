"""GET /release/reference returns the calibration as data for a chart, to keys that may search."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from taugate.registry.catalog import find
from taugate.release.queries import quantiles, threshold_curve
from taugate.retrieval.reader import load
from tests.service.access.files import APP, JUDGE, bearer, entry, write
from tests.service_process import ServiceProcess

WITHIN = "key-of-a-tenant"


@pytest.fixture(scope="module")
def keyed(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    entries = [
        entry(APP, "app", "search"),
        entry(JUDGE, "judge", "feedback"),
        entry(WITHIN, "tenant", "search", filter={"category": "bygglov"}),
    ]
    keys = write(tmp_path_factory.mktemp("keys") / "keys.json", entries)
    with ServiceProcess(releases, TAUGATE_KEYS_FILE=str(keys)) as process:
        yield process.ready()


def test_reference_equals_release(keyed: ServiceProcess, releases: Path) -> None:
    reply = keyed.http.get("/release/reference", headers=bearer(APP))
    assert reply.status_code == 200
    shown, release = reply.json(), load(find(releases), 1)
    policy, reference = release.manifest.policy, release.reference
    assert (shown["release"], shown["policy"], shown["threshold"]) == (
        release.manifest.release_id,
        policy.kind,
        policy.tau,
    )
    assert (shown["queries"], shown["k"]) == reference.top.shape
    for name, similarities in (("topk", reference.top), ("correct", reference.correct), ("random", reference.random)):
        assert shown[name] == quantiles(similarities)
        assert len(shown[name]) == 101
    curve = threshold_curve(reference, policy.kind, policy.tau)
    assert shown["curve"] == [point.model_dump() for point in curve]
    assert 100 <= len(curve) <= 203
    assert len(reply.content) < 24_000
    assert keyed.http.get("/release/reference", headers=bearer(APP)).content == reply.content


def test_reference_needs_unfiltered_search_key(keyed: ServiceProcess) -> None:
    def refusal(key: str | None) -> tuple[int, str]:
        reply = keyed.http.get("/release/reference", headers=bearer(key) if key else {})
        return reply.status_code, reply.json()["error"]["message"]

    assert refusal(None)[0] == 401
    assert refusal(JUDGE) == (403, "this API key lacks the scope search")
    assert refusal(WITHIN) == (403, "this API key has a filter, and this path is about all documents")
