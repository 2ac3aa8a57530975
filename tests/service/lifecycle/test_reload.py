"""A new current release replaces the active one between two requests, or nothing changes."""

import asyncio
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from prometheus_client.utils import floatToGoString

from taugate.registry.promotion import promote
from taugate.registry.transfer import promote_remote, push
from taugate.release.layout import MANIFEST
from taugate.retrieval.reader import load
from taugate.service.app import create_app
from taugate.service.drift.alarms import similarity_buckets
from taugate.service.settings import Settings
from tests.prometheus_process import until
from tests.service.access.files import OPS, bearer, entry
from tests.service.conftest import Two
from tests.service.drift.traffic import FastDriftService
from tests.service.inprocess import serving, status
from tests.service.inprocess import until as until_in_process
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess

ADMIN, SEARCH = ({"Authorization": f"Bearer {name}-key"} for name in ("admin", "search"))
KEYS = {
    "TAUGATE_KEYS": json.dumps(
        [entry("admin-key", "admin", "admin", "search", "metrics"), entry("search-key", "app", "search")]
    )
}


def in_service(service: ServiceProcess) -> str:
    return str(service.http.get("/readyz").json()["release"])


def reload_by_signal(service: ServiceProcess) -> None:
    service.process.send_signal(signal.SIGHUP)


@pytest.mark.slow
def test_sighup_loads_current_release(two: Two) -> None:
    with ServiceProcess(two.folder) as service:
        service.ready()
        for name in (two.new, two.old, two.new):
            promote(two.folder, name)
            reload_by_signal(service)
            until(lambda name=name: in_service(service) == name)
            reply = service.http.post("/search", json={"query": "Do I need a building permit?"}).json()
            assert reply["release"] == name
            assert reply["considered"] == (3 if name == two.new else 5)
            assert service.http.get("/release").json()["release"] == name
            series = scrape(service)
            assert [key for key in series if key.startswith("taugate_release_info")] == [
                key for key in series if key.startswith("taugate_release_info") and name in key
            ]
        assert series["taugate_reloads_total{loaded}"] == 3
        assert series["taugate_reload_failed{}"] == 0
        code, log = service.stop()
    assert code == 0
    assert [json.loads(line)["release"] for line in log.splitlines() if '"previous release closed"' in line] == [
        two.old,
        two.new,
        two.old,
    ]


def test_unchanged_release_is_not_reloaded(two: Two) -> None:
    with ServiceProcess(two.folder) as service:
        service.ready()
        loaded = service.http.get("/release").json()["loaded_at"]
        reload_by_signal(service)
        until(lambda: scrape(service)["taugate_reloads_total{unchanged}"] == 1)
        assert service.http.get("/release").json()["loaded_at"] == loaded


def spoil(two: Two, name: str) -> None:
    path = two.folder / two.new / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["encoder/model.onnx", "golden.jsonl", MANIFEST])
@pytest.mark.slow
def test_damaged_release_is_not_loaded(two: Two, name: str) -> None:
    with ServiceProcess(two.folder) as service:
        service.ready()
        promote(two.folder, two.new)
        spoil(two, name)
        reload_by_signal(service)
        until(lambda: scrape(service)["taugate_reloads_total{failed}"] == 1)
        assert in_service(service) == two.old
        assert service.http.post("/search", json={"query": "permit"}).json()["release"] == two.old
        assert scrape(service)["taugate_reload_failed{}"] == 1
        promote(two.folder, two.old)
        reload_by_signal(service)
        until(lambda: scrape(service)["taugate_reload_failed{}"] == 0)
        _, log = service.stop()
    (line_of_log,) = [json.loads(line) for line in log.splitlines() if '"error"' in line]
    assert line_of_log["message"] == "cannot load the current release; keeping the previous one"
    assert name in line_of_log["reason"]
    assert "traceback" not in line_of_log


def point(two: Two, name: str) -> None:
    """Name the current release by hand, whatever it is; promote() would refuse a bad one. Never half written."""
    written = two.folder / "written"
    written.write_text(f"{name}\n")
    written.replace(two.folder / "current")


@pytest.mark.slow
def test_polling_tries_damaged_release_once(two: Two) -> None:
    with ServiceProcess(two.folder, TAUGATE_RELOAD_SECONDS="0.1") as service:
        service.ready()
        promote(two.folder, two.new)
        until(lambda: in_service(service) == two.new)
        point(two, "20200101T000000Z-000000000000")
        until(lambda: "cannot read the current-release pointer" in service.log())
        assert in_service(service) == two.new
        (two.folder / two.old / MANIFEST).write_bytes(b"{")
        point(two, two.old)
        until(lambda: scrape(service)["taugate_reloads_total{failed}"] == 1)
        time.sleep(0.5)
        assert scrape(service)["taugate_reloads_total{failed}"] == 1
        point(two, two.new)
        until(lambda: scrape(service)["taugate_reload_failed{}"] == 0)
        assert in_service(service) == two.new
        _, log = service.stop()
    assert log.count("cannot read the current-release pointer") == 1


@pytest.mark.slow
def test_requests_never_fail_during_reload(two: Two) -> None:
    """Single searches and batches all the while; every reply is of one release, by its K as by its name."""
    k = {two.old: 5, two.new: 3}
    faults: list[object] = []
    seen: set[str] = set()
    done = threading.Event()

    def ask(client: int) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{service.port}", timeout=30) as http:
            number = 0
            while not done.is_set():
                number += 1
                queries = [f"permit {client} {number} {each}" for each in range(3)]
                reply = http.post("/search/batch", json={"queries": queries}) if number % 3 else None
                replies = reply.json()["responses"] if reply else [http.post("/search", json={"query": "roof"}).json()]
                releases = {each["release"] for each in replies}
                seen.update(releases)
                if len(releases) != 1 or any(each["considered"] != k[each["release"]] for each in replies):
                    faults.append(replies)

    def guarded(client: int) -> None:
        try:
            ask(client)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is a fault)
            faults.append(error)

    with ServiceProcess(two.folder) as service:
        service.ready()
        clients = [threading.Thread(target=guarded, args=(client,)) for client in range(4)]
        for client in clients:
            client.start()
        for name in (two.new, two.old) * 3:
            promote(two.folder, name)
            reload_by_signal(service)
            until(lambda name=name: in_service(service) == name)
        done.set()
        for client in clients:
            client.join()
        series = scrape(service)
    assert not faults
    assert seen == {two.old, two.new}
    assert {
        key for key in series if key.startswith("taugate_requests_total{/search") and not key.endswith(",200}")
    } == set()


def buckets(service: ServiceProcess) -> set[str]:
    """Bounds of the similarities, from whichever worker is asked."""
    text = httpx.get(f"http://127.0.0.1:{service.port}/metrics", headers=ADMIN, timeout=30).text
    return set(re.findall(r'taugate_similarity_bucket{le="([^"]*)",set="topk"}', text))


@pytest.mark.slow
def test_reload_reaches_all_workers(two: Two) -> None:
    """By a signal, and by a request to any of them."""
    url = "http://127.0.0.1:{}/search"

    def ask(service: ServiceProcess) -> None:
        for number in range(20):
            body = {"query": f"permit {number}"}
            httpx.post(url.format(service.port), json=body, headers=ADMIN, timeout=30).raise_for_status()

    def served_by() -> set[str]:
        """What the workers serve: each of eight connections goes to any of them."""
        ready = f"http://127.0.0.1:{service.port}/readyz"
        return {httpx.get(ready, timeout=30).json()["release"] for _ in range(8)}

    with FastDriftService(two.folder, TAUGATE_WORKERS="2", **KEYS) as service:
        service.http.headers.update(ADMIN)
        service.ready()
        ask(service)
        until(lambda: buckets(service))
        before = buckets(service)
        promote(two.folder, two.new)
        reload_by_signal(service)

        until(lambda: served_by() == {two.new})
        series = scrape(service)
        assert [key.count(two.new) for key in series if key.startswith("taugate_release_info")] == [1]
        ask(service)
        bounds = {floatToGoString(bound) for bound in similarity_buckets(load(two.folder / two.new).reference)}
        # A worker that is loading takes no connection, so the other one may have answered all eight of them.
        until(lambda: set() < buckets(service) <= {*bounds, "+Inf"})
        assert buckets(service) != before
        promote(two.folder, two.old)
        assert service.http.post("/admin/reload").json()["release"] == two.old
        until(lambda: served_by() == {two.old})
        code, _ = service.stop()
    assert code == 0


def test_reload_needs_admin_key_and_names_releases(two: Two) -> None:
    with ServiceProcess(two.folder, **KEYS) as service:
        service.ready()
        promote(two.folder, two.new)
        for headers, status in (({}, 401), (SEARCH, 403)):
            assert service.http.post("/admin/reload", headers=headers).status_code == status
            assert in_service(service) == two.old
        reply = service.http.post("/admin/reload", headers=ADMIN)
        expected = {"status": "loaded", "release": two.new, "previous": two.old, "shadow": None}
        assert (reply.status_code, reply.json()) == (200, expected)
        assert service.http.get("/readyz").json()["release"] == two.new
        (two.folder / "shadow").write_text(f"{two.old}\n")
        expected = {"status": "unchanged", "release": two.new, "previous": two.new, "shadow": two.old}
        assert service.http.post("/admin/reload", headers=ADMIN).json() == expected
        (two.folder / "current").write_text(f"{two.old}\n")
        (two.folder / two.old / MANIFEST).write_bytes(b"[]")
        reply = service.http.post("/admin/reload", headers=ADMIN)
        error = reply.json()["error"]
        assert (reply.status_code, error["code"]) == (409, "reload_failed")
        assert error["message"].startswith(f"{two.new} remains in service: ")
        assert MANIFEST in error["message"]
        assert in_service(service) == two.new


def reloaded(settings: Settings, meanwhile: Callable[[], None]) -> httpx.Response:
    """The answer to a reload after something has happened; the release in service is the same before and after."""

    async def scenario() -> httpx.Response:
        async with serving(create_app(settings)) as http:
            await until_in_process(lambda: status(http, "/readyz", 200))
            before = (await http.get("/readyz")).json()
            meanwhile()
            reply = await http.post("/admin/reload", headers=bearer(OPS))
            assert (await http.get("/readyz")).json() == before
            return reply

    return asyncio.run(scenario())


def keyed(releases: Path | str, copy: Path) -> Settings:
    return Settings(releases=releases, releases_copy=copy, keys=json.dumps([entry(OPS, "ops", "admin")]))


def test_named_pipe_as_pointer_fails_reload(two: Two, tmp_path: Path) -> None:
    url, current = f"file://{tmp_path}/store", tmp_path / "store" / "current"
    push(two.folder / two.old, url)
    promote_remote(url, two.old)

    def pipe() -> None:
        """Of which a reader would get the id of the release in service, so that no test waits."""
        current.unlink()
        os.mkfifo(current)

        def write() -> None:
            with suppress(OSError):
                current.write_text(two.old)

        threading.Thread(target=write, daemon=True).start()

    reply = reloaded(keyed(url, tmp_path / "copy"), pipe)
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "reload_failed")
    assert f"{two.old} remains in service: {url}/current" in reply.json()["error"]["message"]
    assert "not a plain file" in reply.json()["error"]["message"]


def test_non_utf8_file_name_fails_reload(two: Two, tmp_path: Path) -> None:
    def stray() -> None:
        promote(two.folder, two.new)
        Path(os.fsdecode(os.fsencode(two.folder / two.new) + b"/\xff")).touch()

    reply = reloaded(keyed(two.folder, tmp_path / "copy"), stray)
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "reload_failed")
    assert rf"{two.new}/\udcff: not part of this release; remove it" in reply.json()["error"]["message"]
