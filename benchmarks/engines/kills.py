"""Kill an engine under load: what callers are told, and how long until they are answered again."""

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.engines.plan import EnginePlan
from benchmarks.engines.servers import WORDS, killable
from benchmarks.markdown import Target, table, targets
from taugate.errors import TaugateError
from taugate.registry.catalog import find
from taugate.retrieval.engines.connect import connect
from taugate.retrieval.engines.engine import Engine, EngineKind
from taugate.retrieval.release.verify import verify
from tests.engine_release import write_pair
from tests.faults.load import Load, Told, answers
from tests.postgres_process import postgres
from tests.retrieval.engines.corpus import soon
from tests.sample_release import write_sample_release
from tests.service_process import ServiceProcess

HEADING = "An engine that is killed"
_CLIENTS = 4
_DEADLINE, _RECOVERED = 5.0, 10.0  # seconds: TAUGATE_DEADLINE_MS; from the engine's first answer to the service's
_LOOK, _PATIENCE = 0.05, 300.0


def section(plan: EnginePlan) -> str:
    """Kill each engine and start it again; then kill the primary of two PostgreSQL servers."""
    parts = [_killed(plan, kind) for kind in plan.kinds]
    if "pgvector" in plan.kinds:
        parts.append(_primary_killed(plan))
    return "\n\n".join(
        [
            f"{_CLIENTS} clients ask a service all the while; a reply is right where its results are those from before. The release is that of the "
            "sample data set, by an encoder of word vectors; settings are the defaults, without a cache. Seconds count "
            "from the kill.",
            *parts,
        ]
    )


def _killed(plan: EnginePlan, kind: EngineKind) -> str:
    with killable(plan, kind) as server, _serving(kind, server.url, [server.url]) as (service, engine, collection):
        expected = answers(service)
        with Load(service.port, expected, _CLIENTS, keep=True) as load:
            time.sleep(plan.seconds)
            killed = time.monotonic()
            server.kill()
            time.sleep(plan.seconds)
            with _FirstAnswer(engine, collection) as first:
                server.start()
                answered = first.wait()
            served = _first_right(load, answered)
            time.sleep(plan.seconds)
    wrong = [each for each in load.told if not (each.right or each.status == 503)]
    goals = [
        Target("replies that are neither right nor a 503", len(wrong), at_most=0),
        Target("longest reply", max(each.seconds for each in load.told), at_most=_DEADLINE, unit=" s"),
        Target("from the engine's first answer to the service's", served - answered, at_most=_RECOVERED, unit=" s"),
    ]
    return (
        f"### {WORDS[kind]}, killed and started again\n\nIts first answer, a row of the collection, came after "
        f"{answered - killed:.1f} s.\n\n{by_second(load.told, killed)}\n\n{targets(goals)}"
    )


def _primary_killed(plan: EnginePlan) -> str:
    with postgres(replicas=1) as (primary, replica):
        urls = [primary.url, replica.url]
        with _serving("pgvector", primary.url, urls) as (service, _, _):
            expected = answers(service)
            with Load(service.port, expected, _CLIENTS, keep=True) as load:
                time.sleep(plan.seconds)
                killed = time.monotonic()
                primary.kill()
                time.sleep(plan.seconds)
    goals = [
        Target("failed requests", sum(not each.right for each in load.told), at_most=0),
        Target("longest reply", max(each.seconds for each in load.told), at_most=_DEADLINE, unit=" s"),
    ]
    return (
        f"### {WORDS['pgvector']}: the primary of two is killed\n\nThe service has the URLs of both, and asks the other one once.\n\n"
        f"{by_second(load.told, killed)}\n\n{targets(goals)}"
    )


@contextmanager
def _serving(kind: EngineKind, writes: str, urls: Sequence[str]) -> Iterator[tuple[ServiceProcess, Engine, str]]:
    """Yield a service over an engine, the engine, and the collection.

    Args:
        writes: URL of the server that is written to.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sample").mkdir()
        releases, engine = write_sample_release(Path(folder) / "sample"), connect(kind, [writes])
        pair = write_pair(releases, Path(folder) / "pair", engine)
        (pair.folder / "current").write_text(f"{pair.there}\n")
        record = verify(find(pair.folder)).engine
        assert record is not None  # noqa: S101 (a type for the reader)
        with ServiceProcess(pair.folder, TAUGATE_ENGINE_URL=",".join(urls), TAUGATE_CACHE_BYTES="0") as service:
            yield service.ready(), engine, record.collection


class _FirstAnswer:
    """Asks an engine again and again, from the start of the context on, until it returns a row."""

    def __init__(self, engine: Engine, collection: str) -> None:
        self._engine, self._collection = engine, collection
        self._at: float | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def wait(self) -> float:
        """Return when it answered, of `time.monotonic()`.

        Raises:
            TimeoutError: Where it never does.
        """
        self._thread.join(_PATIENCE)
        if self._at is None:
            raise TimeoutError(f"the engine does not answer within {_PATIENCE:g} s")
        return self._at

    def _ask(self) -> None:
        while not self._stopped.wait(_LOOK):
            try:
                self._engine.collection(self._collection, 64, soon(1)).fetch(np.array([0]), soon(1))
            except TaugateError:
                continue
            self._at = time.monotonic()
            return

    def __enter__(self) -> "_FirstAnswer":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join()


def _first_right(load: Load, since: float) -> float:
    """Return the time of the first correct reply to a request sent after a given time, both of `time.monotonic()`."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        for each in [*load.told]:
            if each.right and each.at >= since:
                return each.at + each.seconds
        time.sleep(_LOOK)
    raise TimeoutError(f"the service does not answer within {_PATIENCE:g} s after the engine does")


def by_second(told: Sequence[Told], killed: float) -> str:
    """Count statuses by the second in which they came; seconds with the same statuses are one row."""
    seconds: dict[int, Counter[str]] = {}
    for each in told:
        name = "200" if each.right else f"wrong 200, {each.said[:80]}" if each.status == 200 else str(each.status)
        seconds.setdefault(int(np.floor(each.at + each.seconds - killed)), Counter())[name] += 1
    rows: list[tuple[int, int, Counter[str]]] = []
    for second, counted in sorted(seconds.items()):
        if rows and {*rows[-1][2]} == {*counted}:
            rows[-1] = (rows[-1][0], second, rows[-1][2] + counted)
        else:
            rows.append((second, second, counted))
    cells = [
        (f"{first} to {last + 1}", ", ".join(f"{count:,} × {name}" for name, count in sorted(counted.items())))
        for first, last, counted in rows
    ]
    return table(("seconds", "replies"), cells)
