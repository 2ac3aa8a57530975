"""Alive at once, ready only with a release that fits and is trusted, and ended by one that cannot be loaded."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from onnxruntime import InferenceSession

from taugate.cli import main as cli
from taugate.errors import ReleaseError
from taugate.registry.catalog import current_id, find, release_ids
from taugate.registry.download import PRIVATE
from taugate.registry.promotion import promote
from taugate.registry.writer import read_private_key, sign
from taugate.retrieval.encoder import bert
from taugate.retrieval.encoder.encoder import RequestedPrecision
from taugate.retrieval.engines.engine import EngineAccess
from taugate.retrieval.reader import Release, load
from taugate.service.app import create_app
from taugate.service.errors import EngineAway, NotReady
from taugate.service.lifecycle.active import Ending, Failed, Loading, Ready, State, Waiting
from taugate.service.lifecycle.loading import trusting
from taugate.service.runtime.resources import bytes_held
from taugate.service.settings import Settings
from tests.keys import write_keys
from tests.object_storage import object_storage
from tests.release.clones import clone
from tests.service.inprocess import PATIENCE, Gated, serving, status, until, with_gate
from tests.service_process import ServiceProcess


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


RELEASE: Any = SimpleNamespace(release_id="release")


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        (Loading(), NotReady, "is being loaded"),
        (Waiting(EngineAway), EngineAway, ""),
        (Failed(ValueError("no")), NotReady, "no release could be loaded"),
    ],
)
def test_state_without_release_says_why(state: State, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        state.active()


def test_ending_process_serves_until_it_has_stopped() -> None:
    ending = Ending(Ready(RELEASE))
    assert ending.active() is RELEASE
    with pytest.raises(NotReady, match="shutting down"):
        ending.ready()
    stopped = Ending(ending, stopped=True)
    with pytest.raises(NotReady, match="shutting down"):
        stopped.active()
    assert stopped.release is RELEASE


def test_release_loaded_while_ending_is_not_ready() -> None:
    state = Ending(Loading()).then(Ready(RELEASE))
    assert state.active() is RELEASE
    with pytest.raises(NotReady, match="shutting down"):
        state.ready()


@pytest.mark.slow
def test_service_starts_from_copy_without_store(releases: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with object_storage() as (bucket, server):
        arguments = ["release", "push", "--releases", str(releases), "--to", bucket.url, "--promote"]
        run = [sys.executable, "-m", "taugate", *arguments]
        pushed = subprocess.run(run, env=bucket.environment, capture_output=True, text=True, check=True)
        assert pushed.stdout == f"* {bucket.url}/{current_id(releases)}\n"
        environment = bucket.environment | {"TAUGATE_RELEASES_COPY": str(copy), "TAUGATE_WORKERS": "2"}
        with ServiceProcess(bucket.url, **environment) as service:
            reply = service.ready(60).http.post("/search", json={"query": "permit"}).json()
        assert reply["release"] == current_id(releases)
        assert release_ids(copy) == [current_id(releases)]
        bucket.put("current", b"20200101T000000Z-000000000000\n")  # what is no release is not served
        with ServiceProcess(bucket.url, **environment | {"TAUGATE_WORKERS": "1"}) as service:
            answered = service.ready(60).http.post("/search", json={"query": "permit"}).json()
            assert answered["release"] == current_id(releases)
            _, log = service.stop()
        assert "cannot update the copy of the releases" in log
        server.stop()
        with ServiceProcess(bucket.url, **environment) as service:
            assert (
                service.ready(60).http.post("/search", json={"query": "permit"}).json()["results"] == reply["results"]
            )
        nowhere = environment | {"TAUGATE_RELEASES_COPY": str(tmp_path / "another")}
        with ServiceProcess(bucket.url, **nowhere) as service:
            service.process.wait(timeout=60)
            code, log = service.stop()
        assert code == 1
        assert f"taugate: {bucket.url}/current: the store does not respond" in log
        server.start()  # so that leaving the block can stop it


def test_push_promotes_only_current_release(releases: Path, tmp_path: Path, capfd) -> None:
    url = f"file://{tmp_path}/store"
    arguments = ["release", "push", "--releases", str(releases), "--to", url]
    assert cli.main([*arguments, "20200101T000000Z-000000000000", "--promote"]) == 2
    assert "no release" in capfd.readouterr().err
    assert cli.main(arguments) == 0
    assert capfd.readouterr().out == f"  {url}/{current_id(releases)}\n"
    assert not (tmp_path / "store" / "current").exists()
    assert cli.main([*arguments, "--promote"]) == 0
    assert (tmp_path / "store" / "current").read_text() == f"{current_id(releases)}\n"


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_unsigned_release_is_not_served(releases: Path, tmp_path: Path, workers: str) -> None:
    copy = shutil.copytree(releases, tmp_path / "releases")
    private, public = write_keys(tmp_path)
    trust = {"TAUGATE_TRUSTED_KEYS": str(public), "TAUGATE_WORKERS": workers}
    with ServiceProcess(copy, **trust) as service:
        service.process.wait(timeout=60)
        code, log = service.stop()
    assert code == 2
    assert "not signed" in log
    assert "Traceback" not in log
    sign(find(copy), read_private_key(private))
    with ServiceProcess(copy, **trust) as service:
        assert service.ready().http.post("/search", json={"query": "permit"}).status_code == 200


def test_missing_trusted_keys_end_service(releases: Path, tmp_path: Path) -> None:
    with ServiceProcess(releases, TAUGATE_TRUSTED_KEYS=str(tmp_path / "none.pem")) as service:
        service.process.wait(timeout=60)
        code, log = service.stop()
    assert code == 2
    assert "none.pem: cannot read the trusted keys" in log


@pytest.fixture
def signed(releases: Path, tmp_path: Path) -> Settings:
    """Settings that trust the key which signed the release."""
    copy = shutil.copytree(releases, tmp_path / "releases")
    private, public = write_keys(tmp_path)
    sign(find(copy), read_private_key(private))
    return Settings(releases=copy, trusted_keys=public, releases_copy=tmp_path / "copies")


def exchanged(tokenizer: Path, golden: Path) -> tuple[bytes, str]:
    """A tokenizer that takes a word for another, and that word: none that a golden query has."""
    raw = json.loads(tokenizer.read_bytes())
    vocabulary, asked = raw["model"]["vocab"], golden.read_text(encoding="utf-8").lower()
    one, other = [word for word in vocabulary if word.isalpha() and len(word) > 3 and word not in asked][:2]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    return json.dumps(raw).encode(), one


def replaced(path: Path, content: bytes) -> None:
    path.with_suffix(".new").write_bytes(content)
    path.with_suffix(".new").replace(path)


@pytest.mark.parametrize("exchange", [replaced, Path.write_bytes], ids=["by name", "in place"])
def test_file_replaced_after_check_is_not_opened(
    signed: Settings, monkeypatch: pytest.MonkeyPatch, exchange: Callable[[Path, bytes], object]
) -> None:
    release = find(signed.releases.directory)
    tokenizer = release / "encoder" / "tokenizer.json"
    forged, word = exchanged(tokenizer, release / "golden.jsonl")
    honest = load(release).retriever.vectors([word])

    def session(model: Path, threads: int) -> InferenceSession:
        """Digests were compared for the last time; the tokenizer is opened next."""
        exchange(tokenizer, forged)
        return open_session(model, threads)

    open_session = bert.load_session
    monkeypatch.setattr(bert, "load_session", session)
    opened = trusting(signed, EngineAccess())(release, 1, "auto")
    assert tokenizer.read_bytes() == forged
    np.testing.assert_array_equal(opened.retriever.vectors([word]), honest)
    np.testing.assert_array_equal(
        opened.retriever.single_threaded().vectors([word]), honest
    )  # which opens it once more
    opened.close()
    assert release_ids(signed.releases.copies / PRIVATE) == []
    with pytest.raises(ReleaseError, match=rf"{release}/encoder/tokenizer\.json: (SHA-256|its size is not)"):
        trusting(signed, EngineAccess())(release, 1, "auto")
    assert [path.name for path in (signed.releases.copies / PRIVATE).iterdir()] == [".lock"]


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
