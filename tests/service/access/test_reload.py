"""Keys can be changed while the service runs; unreadable ones change nothing; no secret is logged."""

import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.service.access.files import APP, ENTRIES, SCRAPER, bearer, entry, write
from tests.service_process import ServiceProcess

NEW = "new-secret"
Guarded = tuple[ServiceProcess, Path]


@pytest.fixture
def guarded(releases: Path, tmp_path: Path) -> Iterator[Guarded]:
    keys = write(tmp_path / "keys.json", ENTRIES)
    with ServiceProcess(releases, TAUGATE_KEYS_FILE=str(keys)) as process:
        yield process.ready(), keys


def search(service: ServiceProcess, key: str) -> int:
    return service.http.post("/search", json={"query": "a secret question"}, headers=bearer(key)).status_code


def metrics(service: ServiceProcess) -> dict[str, float]:
    return service.metrics(**bearer(SCRAPER))


def soon(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_key_rotation_needs_no_restart(guarded: Guarded) -> None:
    service, keys = guarded
    assert (search(service, APP), search(service, NEW)) == (200, 401)
    write(keys, [*ENTRIES, entry(NEW, "new", "search")])
    soon(lambda: search(service, NEW) == 200)
    assert search(service, APP) == 200, "both are in force while callers change over"
    write(keys, [*ENTRIES[1:], entry(NEW, "new", "search")])
    soon(lambda: search(service, APP) == 401)
    assert search(service, NEW) == 200
    counted = metrics(service)
    assert counted['taugate_key_requests_total{key="app"}'] >= 2
    assert counted['taugate_key_requests_total{key="new"}'] >= 2
    assert counted['taugate_refused_total{reason="unauthorized"}'] >= 2
    assert counted['taugate_requests_total{code="401",route="/search"}'] >= 2


@pytest.mark.slow
def test_key_expiry_is_exported_until_key_is_removed(guarded: Guarded) -> None:
    service, keys = guarded
    series = 'taugate_key_expires_timestamp_seconds{key="%s"}'
    exported = metrics(service)
    assert exported[series % "old"] == 1577836800  # 2020-01-01
    assert series % "app" not in exported, "it never expires"
    write(keys, [*ENTRIES[:-1], entry(NEW, "new", "search", expires="2030-01-01T00:00:00Z")])
    soon(lambda: metrics(service).get(series % "new") == 1893456000)
    assert math.isnan(metrics(service)[series % "old"])


@pytest.mark.parametrize("broken", ['[{"name": "app"', '[{"name": "app"}]', None])
@pytest.mark.slow
def test_broken_key_file_keeps_previous_keys(guarded: Guarded, broken: str | None) -> None:
    service, keys = guarded
    assert metrics(service)["taugate_keys_reload_failed"] == 0
    if broken is None:
        keys.unlink()
    else:
        write(keys, broken)
    soon(lambda: metrics(service)["taugate_keys_reload_failed"] == 1)
    assert search(service, APP) == 200
    write(keys, [*ENTRIES[1:]])
    soon(lambda: search(service, APP) == 401)
    assert metrics(service)["taugate_keys_reload_failed"] == 0
    _, log = service.stop()
    errors = [line for line in map(json.loads, log.splitlines()) if line["level"] == "error"]
    assert {line["message"] for line in errors} == {"cannot reload API keys; keeping the previous ones"}
    assert all(str(keys) in line["reason"] for line in errors)


def test_last_key_can_be_removed(guarded: Guarded) -> None:
    service, keys = guarded
    write(keys, [])
    soon(lambda: search(service, APP) == 401)


@pytest.mark.slow
def test_log_has_key_names_but_no_secrets(guarded: Guarded) -> None:
    service, _ = guarded
    search(service, APP)
    search(service, "a-stranger's-secret")
    service.http.post("/search", json={"query": "a secret question"}, headers={"X-API-Key": APP})
    _, log = service.stop()
    lines = [json.loads(line) for line in log.splitlines()]
    assert [line.get("key") for line in lines if line.get("route") == "/search"] == ["app", None, "app"]
    assert "secret" not in log
    assert not any(each["sha256"] in log for each in ENTRIES)


@pytest.mark.slow
def test_all_workers_reload_keys(releases: Path, tmp_path: Path) -> None:
    keys = write(tmp_path / "keys.json", ENTRIES)
    with ServiceProcess(releases, TAUGATE_KEYS_FILE=str(keys), TAUGATE_WORKERS="2") as service:
        service.ready()
        write(keys, [*ENTRIES[1:]])
        soon(lambda: {search(service, APP) for _ in range(20)} == {401})  # each looks every two seconds
