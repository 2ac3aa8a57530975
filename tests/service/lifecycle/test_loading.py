"""Alive at once, ready only with a release, and ended by a release that cannot be loaded."""

import asyncio
import re
import threading
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from taugate.errors import ReleaseError
from taugate.retrieval.encoder.encoder import RequestedPrecision
from taugate.retrieval.reader import Release, load
from taugate.service.app import create_app
from taugate.service.runtime.resources import bytes_held
from taugate.service.settings import Settings
from tests.service.inprocess import PATIENCE, Gated, serving, status, until, with_gate


async def check_not_ready(http: httpx.AsyncClient, message: str) -> None:
    """Everything that needs a release says not_ready, and /livez does not need one."""
    assert (await http.get("/livez")).json() == {"status": "alive"}
    assert (await http.get("/metrics")).status_code == 200
    search, batch = {"query": "permit"}, {"queries": ["permit"]}
    replies = [await http.get("/readyz"), await http.get("/release")]
    replies += [await http.post("/search", json=search), await http.post("/search/batch", json=batch)]
    for reply in replies:
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "not_ready")
        assert message in reply.json()["error"]["message"]


def test_service_is_not_ready_while_loading(releases: Path) -> None:
    loading, go_on = threading.Event(), threading.Event()

    def slow(folder: Path, threads: int, precision: RequestedPrecision) -> Release:
        loading.set()
        assert go_on.wait(PATIENCE)
        return load(folder, threads, precision)

    async def scenario() -> None:
        async with serving(create_app(Settings(releases=releases), slow)) as http:
            try:
                assert await asyncio.to_thread(loading.wait, PATIENCE)
                await check_not_ready(http, "being loaded")
            finally:
                go_on.set()
            await until(lambda: status(http, "/readyz", 200))
            assert (await http.post("/search", json={"query": "permit"})).status_code == 200
            assert (await http.get("/readyz")).json() == {"status": "ready", "release": _name(releases)}

    asyncio.run(scenario())


def test_release_above_memory_limit_is_refused_with_both_numbers(
    releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taugate.service.runtime.resources.memory_limit", lambda: 200 << 20)

    async def scenario() -> None:
        app = create_app(Settings(releases=releases))
        async with serving(app):
            await asyncio.wait_for(app.state.serving.attempted.wait(), PATIENCE)
        assert re.fullmatch(
            rf"{_name(releases)} needs 0\.\d\d GiB of memory, the control group allows 0\.20 GiB: raise the limit .+ "
            r'index = "flat-int8"',
            str(app.state.serving.failure),
        )

    asyncio.run(scenario())


def test_release_near_memory_limit_is_served_with_a_warning(releases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = int((bytes_held(releases / _name(releases)) + (300 << 20)) / 0.9)
    monkeypatch.setattr("taugate.service.runtime.resources.memory_limit", lambda: limit)

    async def scenario() -> None:
        async with serving(create_app(Settings(releases=releases))) as http:
            await until(lambda: status(http, "/readyz", 200))
            assert "raise the limit" in (await http.get("/readyz")).json()["warning"]

    asyncio.run(scenario())


def test_service_is_not_ready_while_stopping(releases: Path) -> None:
    async def scenario(http: httpx.AsyncClient, retriever: Gated, app: FastAPI) -> None:
        await app.state.serving.stop()
        await check_not_ready(http, "shutting down")

    with_gate(releases, scenario)


@pytest.mark.parametrize("error", [ReleaseError("not whole"), PermissionError("not readable"), RuntimeError("a bug")])
def test_loading_error_ends_process(releases: Path, error: Exception) -> None:
    ended = asyncio.Event()

    def broken(folder: Path, threads: int, precision: RequestedPrecision) -> Release:
        raise error

    async def scenario() -> None:
        app = create_app(Settings(releases=releases), broken)
        app.state.serving.on_failure = ended.set
        async with serving(app) as http:
            await asyncio.wait_for(ended.wait(), 1)
            await check_not_ready(http, "no release could be loaded")

    asyncio.run(scenario())


def _name(releases: Path) -> str:
    return (releases / "current").read_text().strip()
