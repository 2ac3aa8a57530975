"""Switch releases over an engine under load: two that differ in τ alone, and one of another collection."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.engines.plan import EnginePlan
from benchmarks.engines.releases import Source
from benchmarks.engines.servers import WORDS, killable
from benchmarks.markdown import Target, table, targets
from benchmarks.reliability.checked_replies import CheckedLoad, Replies
from benchmarks.reliability.swaps import until_served
from benchmarks.serving.servers import Server
from benchmarks.serving.services import taugate
from taugate.registry.catalog import find
from taugate.registry.promotion import promote
from taugate.retrieval.engines.connect import URL, connect
from taugate.retrieval.engines.engine import Engine, EngineKind, Rows
from taugate.retrieval.engines.record import EngineRecord
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.policy.background import ReadDocuments
from taugate.retrieval.release.golden import GoldenQuery
from taugate.retrieval.release.reader import Release, load
from tests.retrieval.engines.corpus import recorded, upload
from tests.sample_release import write_sample_release

HEADING = "Switches of the release"
_CLIENTS = 16
_TAUS = (0.0, 0.01, 0.02)  # so low that every reply has documents, by which it is known


def section(plan: EnginePlan) -> str:
    """Switch releases over each engine, and count replies that failed or mix two releases."""
    rows, goals = [], []
    for kind in plan.kinds:
        replies, seconds = _switched(plan, kind)
        took = np.quantile(seconds, [0.5, 1])
        rows.append((WORDS[kind], len(seconds), f"{took[0]:.2f}", f"{took[1]:.2f}", f"{len(replies):,}"))
        goals += [
            Target(f"{WORDS[kind]}: failed requests", replies.failed, at_most=0),
            Target(f"{WORDS[kind]}: replies that mix two releases", replies.mixed, at_most=0),
        ]
    heads = ("engine", "switches", "a switch, median s", "longest, s", "replies")
    return (
        f"Three releases of the sample data set, by an encoder of word vectors, take turns at random. Two share a collection and differ in τ; the third "
        f"has a collection of its own, whose documents have other ids. Meanwhile {_CLIENTS} clients ask new queries in a closed "
        "loop. Of each reply, the threshold and every document must be those of the release that it names. A switch lasts from the promotion, which "
        f"verifies the collection, until the service answers with the new release.\n\n{table(heads, rows)}\n\n{targets(goals)}"
    )


def _switched(plan: EnginePlan, kind: EngineKind) -> tuple[Replies, list[float]]:
    with (
        tempfile.TemporaryDirectory(prefix="tg-", dir="/tmp") as folder,
        killable(plan, kind) as engine,
        _engine_url(engine.url),
    ):
        sample, releases = Path(folder) / "sample", Path(folder) / "releases"
        sample.mkdir()
        names = _written(find(write_sample_release(sample)), releases, connect(kind, [engine.url]))
        promote(releases, names[0], force=True)
        service = taugate(releases, "float32")
        service = replace(service, environment=service.environment | {URL: engine.url})
        rng, seconds = np.random.default_rng(0), list[float]()
        with Server(service) as server:
            texts = [each.text for each in load(releases / names[0], 1).golden]
            with CheckedLoad(server.port, _CLIENTS, texts, [releases / name for name in names]) as checked:
                current = 0
                for _ in range(plan.switches):
                    current = (current + int(rng.integers(1, len(names)))) % len(names)
                    seconds.append(_switch(server, releases, names[current]))
    return checked.replies, seconds


def _switch(server: Server, releases: Path, name: str) -> float:
    began = time.monotonic()
    promote(releases, name, force=True)
    server.signal(signal.SIGHUP)
    until_served(server, name)
    return time.monotonic() - began


def _written(source: Path, releases: Path, engine: Engine) -> list[str]:
    """Write the three releases, and put their two collections into the engine; returns their ids."""
    sample = load(source)
    rows = _rows(sample)
    others = Rows(rows.vectors, [replace(each, id=f"other-{each.id}") for each in rows.documents])
    asked = sample.retriever.vectors([each.text for each in sample.golden])

    def read(positions: np.ndarray) -> ReadDocuments:
        return ReadDocuments.of(rows.vectors[positions], [rows.documents[at] for at in positions.tolist()])

    _, relevance = Source(source).relevance(rows.vectors, asked, read)
    renamed = [replace(each, documents=[f"other-{name}" for name in each.documents]) for each in sample.golden]
    names: list[str] = []
    ours, theirs = _collection(engine, rows), _collection(engine, others)
    golden: list[Sequence[GoldenQuery]] = [sample.golden, sample.golden, renamed]
    for record, queries, tau in zip((ours, ours, theirs), golden, _TAUS, strict=True):
        names.append(Source(source).over_engine(releases, record, 1.0, queries, relevance, tau))
    return names


def _rows(release: Release) -> Rows:
    index = release.retriever.index
    assert isinstance(index, FlatIndex)  # noqa: S101 (the sample is searched exactly)
    return Rows(index.vectors[np.arange(len(index))], [*release.documents])


def _collection(engine: Engine, rows: Rows) -> EngineRecord:
    record = recorded(engine, rows)
    upload(engine, record.collection, rows)
    return record


@contextmanager
def _engine_url(url: str) -> Iterator[None]:
    """Let commands of this process find the engine, as promotion does."""
    before = os.environ.get(URL)
    os.environ[URL] = url
    try:
        yield
    finally:
        if before is None:
            del os.environ[URL]
        else:
            os.environ[URL] = before
