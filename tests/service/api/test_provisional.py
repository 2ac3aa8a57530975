"""A provisional release is served like any other, and every reply says that it is provisional."""

import asyncio
import shutil
from pathlib import Path

import httpx

from taugate.registry.catalog import find
from taugate.registry.promotion import promote
from taugate.service.app import create_app
from taugate.service.settings import Settings
from tests.release.clones import clone
from tests.service.inprocess import serving, status, until

QUERY = {"query": "What does a building permit cost?"}


def provisional(manifest: dict) -> None:
    manifest["calibration"] |= {"state": "provisional", "reasons": ["few_queries"], "human": 29}


async def said(http: httpx.AsyncClient) -> tuple[list[tuple[bool, str]], str, str]:
    """`calibrated` and `calibration` of replies, found out and from the cache; the gauge; the state in /release."""
    replies = [(await http.post("/search", json=QUERY)).json() for _ in range(2)]
    replies += (await http.post("/search/batch", json={"queries": [QUERY, QUERY | {"k": 100}]})).json()["responses"]
    assert all(reply["results"] for reply in replies)
    metrics = (await http.get("/metrics")).text.splitlines()
    (gauge,) = (line.split()[1] for line in metrics if line.startswith("taugate_release_provisional "))
    release = (await http.get("/release")).json()
    state = release["calibration"]
    assert release["manifest"]["calibration"]["state"] == state
    return [(reply["calibrated"], reply["calibration"]) for reply in replies], gauge, state


def test_calibrated_release_replaces_provisional(releases: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(releases, tmp_path / "releases")
    first = find(copy).name
    promote(copy, clone(copy / first, 0, provisional), force=True)

    async def run() -> None:
        app = create_app(Settings(releases=copy))
        async with serving(app) as http:
            await until(lambda: status(http, "/readyz", 200))
            assert await said(http) == ([(False, "provisional")] * 4, "1.0", "provisional")
            promote(copy, first)
            await app.state.serving.reload()
            replies, gauge, state = await said(http)
            assert replies == [(True, "calibrated")] * 3 + [(False, "calibrated")], "the last asks for more than K"
            assert (gauge, state) == ("0.0", "calibrated")

    asyncio.run(run())
