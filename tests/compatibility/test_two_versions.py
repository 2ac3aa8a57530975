"""Two versions of the service behind one Service, while the schema of releases rises: the order, and the way back."""

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.registry import promotion
from taugate.registry.catalog import current_id, find, release_ids
from taugate.release.manifest import SCHEMA_VERSION
from tests.compatibility.test_releases import QUESTION
from tests.compatibility.write import DATA, FOLDER
from tests.prometheus_process import until
from tests.service_process import ServiceProcess


class OlderService(ServiceProcess):
    """A service that reads the schema before this one."""

    module = "tests.compatibility.older_service"


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    """Releases of the older schema, the current one among them, and one of the newer schema."""
    copy = shutil.copytree(FOLDER / "releases" / f"schema-{SCHEMA_VERSION - 1}-last", tmp_path / "releases")
    if current_id(copy) is None:
        promotion.promote(copy, release_ids(copy)[0])
    document = (DATA / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[0].split('"')[3]
    assert cli.main(["release", "erase", find(copy).name, document, "--releases", str(copy)]) == 0
    return copy


@pytest.fixture
def both(releases: Path) -> Iterator[tuple[ServiceProcess, ServiceProcess]]:
    with (
        OlderService(releases, TAUGATE_RELOAD_SECONDS="0.2") as older,
        ServiceProcess(releases, TAUGATE_RELOAD_SECONDS="0.2") as newer,
    ):
        yield older.ready(), newer.ready()


def balanced(services: tuple[ServiceProcess, ServiceProcess], count: int = 4) -> list[str]:
    """Return the release of each reply to searches that a Service sends to its ready pods in turn."""
    pods = itertools.cycle(service for service in services if service.http.get("/readyz").status_code == 200)
    replies = [next(pods).http.post("/search", json={"query": QUESTION, "threshold": -1}) for _ in range(count)]
    assert {reply.status_code for reply in replies} == {200}
    return [reply.json()["release"] for reply in replies]


def served(service: ServiceProcess) -> str:
    (release,) = balanced((service, service), 1)
    return release


def test_rollout_promotion_and_way_back(releases: Path, both: tuple[ServiceProcess, ServiceProcess]) -> None:
    older, newer = both
    first = find(releases).name
    second = release_ids(releases)[-1]
    # Services first: both versions serve the release that is there, with the same scores.
    assert set(balanced(both)) == {first}
    scores = [
        [
            result["score"]
            for result in service.http.post("/search", json={"query": QUESTION, "threshold": -1}).json()["results"]
        ]
        for service in both
    ]
    assert scores[0] == scores[1]
    # A release of the newer version, promoted too early: the older one keeps what it has, and says so.
    promotion.promote(releases, second)
    until(lambda: served(newer) == second)
    until(lambda: "taugate_reload_failed 1.0" in older.http.get("/metrics").text)
    assert set(balanced(both)) == {first, second}
    # The way back: the release first, then the service.
    assert cli.main(["release", "rollback", "--releases", str(releases)]) == 0
    until(lambda: served(newer) == first)
    until(lambda: "taugate_reload_failed 0.0" in older.http.get("/metrics").text)
    assert set(balanced(both)) == {first}
    assert f"schema version {SCHEMA_VERSION}" in older.log()


def test_older_service_cannot_start_on_newer_release(releases: Path) -> None:
    promotion.promote(releases, release_ids(releases)[-1])
    with OlderService(releases) as older:
        assert older.process.wait(timeout=120) == 2
        assert f"schema version {SCHEMA_VERSION}" in older.log()
