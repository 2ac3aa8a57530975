"""The service works without plug-ins, and a plug-in that cannot be imported is named in the log and stops nothing."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from taugate import plugins
from taugate.retrieval.encoder.bert import kernel
from taugate.service.app import create_app
from taugate.service.settings import Settings
from tests.service.inprocess import serving, status, until

HTML = {"Accept": "text/html"}


@pytest.fixture(autouse=True)
def _kernel_is_sought_again() -> Iterator[None]:
    kernel.cache_clear()
    yield
    kernel.cache_clear()


def replies(releases: Path) -> tuple[httpx.Response, httpx.Response]:
    """What a started service replies to a search, and to a browser at its address."""

    async def scenario() -> tuple[httpx.Response, httpx.Response]:
        async with serving(create_app(Settings(releases=releases))) as http:
            await until(lambda: status(http, "/readyz", 200))
            return await http.post("/search", json={"query": "a roof"}), await http.get("/", headers=HTML)

    return asyncio.run(scenario())


def test_service_without_plugins_searches(releases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = replies(releases)
    monkeypatch.setattr(plugins, "entry_points", lambda group: ())
    kernel.cache_clear()
    found, home = replies(releases)
    assert kernel() is None
    assert [(each["id"], each["score"]) for each in found.json()["results"]] == [
        (each["id"], pytest.approx(each["score"], abs=1e-6)) for each in before.json()["results"]
    ]
    message = "playground is not installed: it is in the plug-in taugate-playground (in a clone: pip install plugins/"
    assert message in home.text


@pytest.mark.parametrize("group", ["pages", "encoders"])
def test_plugin_that_raises_is_logged_and_stops_nothing(
    group: str, releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "odd.py").write_text("raise RuntimeError('out of order')\n")
    metadata = tmp_path / "taugate_odd-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: taugate-odd\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[taugate.{group}]\nodd = odd:thing\n")
    monkeypatch.syspath_prepend(tmp_path)
    found, home = replies(releases)
    assert found.status_code == 200
    assert home.headers["location"] == "playground", "the others are there"
    kernel()  # a search with a graph does without it
    said = [record.getMessage() for record in caplog.records if "odd" in record.getMessage()]
    assert said == ["the plug-in taugate-odd cannot be imported: out of order"]


def test_playground_that_raises_is_named_on_the_page(
    releases: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "taugate_playground.routes", None)
    found, home = replies(releases)
    assert found.status_code == 200
    assert "The playground cannot be loaded; the log says why." in home.text
    assert "the plug-in taugate-playground cannot be imported" in caplog.text
