"""POST /admin/reload: needs an admin key, replies when done, and reaches every worker."""

import json

import httpx
import pytest

from taugate.registry.promotion import promote
from taugate.release.layout import MANIFEST
from tests.prometheus_process import until
from tests.service.access.files import entry
from tests.service.conftest import Two
from tests.service_process import ServiceProcess

ADMIN, SEARCH = ({"Authorization": f"Bearer {name}-key"} for name in ("admin", "search"))
KEYS = {
    "TAUGATE_KEYS": json.dumps([entry("admin-key", "admin", "admin", "search"), entry("search-key", "app", "search")])
}


def test_reload_reply_names_releases(two: Two) -> None:
    with ServiceProcess(two.folder, **KEYS) as service:
        service.ready()
        promote(two.folder, two.new)
        reply = service.http.post("/admin/reload", headers=ADMIN)
        expected = {"status": "loaded", "release": two.new, "previous": two.old, "shadow": None}
        assert (reply.status_code, reply.json()) == (200, expected)
        assert service.http.get("/readyz").json()["release"] == two.new
        (two.folder / "shadow").write_text(f"{two.old}\n")
        expected = {"status": "unchanged", "release": two.new, "previous": two.new, "shadow": two.old}
        assert service.http.post("/admin/reload", headers=ADMIN).json() == expected


def test_failed_reload_names_reason(two: Two) -> None:
    with ServiceProcess(two.folder, **KEYS) as service:
        service.ready()
        (two.folder / "current").write_text(f"{two.new}\n")
        (two.folder / two.new / MANIFEST).write_bytes(b"[]")
        reply = service.http.post("/admin/reload", headers=ADMIN)
        error = reply.json()["error"]
        assert (reply.status_code, error["code"]) == (409, "reload_failed")
        assert error["message"].startswith(f"{two.old} remains in service: ")
        assert MANIFEST in error["message"]
        assert service.http.get("/readyz").json()["release"] == two.old


@pytest.mark.parametrize(("headers", "status"), [({}, 401), (SEARCH, 403)], ids=["no key", "another scope"])
def test_reload_needs_admin_key(two: Two, headers: dict[str, str], status: int) -> None:
    with ServiceProcess(two.folder, **KEYS) as service:
        service.ready()
        promote(two.folder, two.new)
        assert service.http.post("/admin/reload", headers=headers).status_code == status
        assert service.http.get("/readyz").json()["release"] == two.old


@pytest.mark.slow
def test_reload_reaches_all_workers(two: Two) -> None:
    with ServiceProcess(two.folder, TAUGATE_WORKERS="2", **KEYS) as service:
        service.ready()
        promote(two.folder, two.new)
        assert service.http.post("/admin/reload", headers=ADMIN).json()["release"] == two.new

        def answering() -> set[str]:
            url = f"http://127.0.0.1:{service.port}/readyz"
            return {httpx.get(url, timeout=30).json()["release"] for _ in range(8)}  # a connection each

        until(lambda: answering() == {two.new})
        assert service.stop()[0] == 0
