"""The application in the test's process, on a release whose retriever waits for the test."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from taugate.policy.arrays import Float32
from taugate.retrieval.encoder.encoder import Tokens
from taugate.retrieval.index.top_k import Observe, unobserved
from taugate.retrieval.reader import Release, load
from taugate.retrieval.retriever import Retriever
from taugate.service.app import create_app
from taugate.service.settings import Settings
from tests.service_process import read_metrics

PATIENCE = 10  # seconds before a test that waits for something gives up


class Gated:
    """A retriever behind a gate; `seen` are the texts that reached it, `error` is raised in place of an answer."""

    def __init__(self, retriever: Retriever) -> None:
        self.retriever = retriever
        self.gate = threading.Event()
        self.seen: list[str] = []
        self._texts: dict[tuple[int, ...], str] = {}
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.retriever, name)

    def single_threaded(self) -> "Gated":
        return self

    def tokens(self, texts: Sequence[str]) -> list[Tokens]:
        tokens = self.retriever.tokens(texts)
        self._texts |= {tuple(each.ids): text for each, text in zip(tokens, texts, strict=True)}
        return tokens

    def embed(self, tokens: Sequence[Tokens], observe: Observe = unobserved) -> Float32:
        self.seen += [self._texts[tuple(each.ids)] for each in tokens]
        assert self.gate.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return self.retriever.embed(tokens, observe)


def gated(releases: Path) -> tuple[Gated, Release]:
    """The current release with its retriever behind a gate."""
    (folder,) = (entry for entry in releases.iterdir() if entry.is_dir())
    release = load(folder, 1)
    retriever = Gated(release.retriever)
    return retriever, replace(release, retriever=retriever)  # type: ignore[arg-type]


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a started application."""
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
    ):
        yield http


def with_gate(
    releases: Path, scenario: Callable[[httpx.AsyncClient, Gated, FastAPI], Awaitable[None]], **settings: Any
) -> None:
    """Run a scenario on a ready application; the gate is closed at first, and open afterwards whatever happened."""
    retriever, release = gated(releases)
    settings = {"encoder_threads": 1, **settings}  # so that what is behind the gate keeps the rest waiting
    app = create_app(Settings(releases=releases, **settings), lambda folder, threads, precision: release)

    async def run() -> None:
        async with serving(app) as http:
            try:
                await until(lambda: status(http, "/readyz", 200))
                await scenario(http, retriever, app)
            finally:
                retriever.gate.set()

    asyncio.run(asyncio.wait_for(run(), 3 * PATIENCE))


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.005)


async def status(http: httpx.AsyncClient, path: str, expected: int) -> bool:
    return (await http.get(path)).status_code == expected


async def depth(http: httpx.AsyncClient) -> float:
    """taugate_queue_depth as /metrics shows it."""
    return read_metrics((await http.get("/metrics")).text)["taugate_queue_depth"]


async def depth_is(http: httpx.AsyncClient, expected: float) -> bool:
    return await depth(http) == expected
