"""A large collection in an engine: uploaded once, and what that took is kept beside the corpus for later runs."""

import json
import time
from contextlib import suppress
from dataclasses import dataclass

from pydantic import ValidationError

from benchmarks.engines.tiled import TiledCorpus
from taugate.calibration.encoding.sharded_vectors import ShardedVectors
from taugate.calibration.engines.upload import engine_record, ensure_uploaded
from taugate.calibration.progress import Stopwatch
from taugate.errors import EngineUnavailable
from taugate.retrieval.engines.engine import Collection, Engine, EngineKind, GraphParameters, Rows
from taugate.retrieval.engines.record import EngineRecord

_LOADING, _ANSWER = 300.0, 10.0  # seconds: of a collection that was there, and of one question


@dataclass(frozen=True)
class UploadTimes:
    """Seconds that an upload took: to send all documents, and to build the index."""

    sent: float
    built: float


def uploaded(engine: Engine, corpus: TiledCorpus, vectors: ShardedVectors) -> tuple[EngineRecord, UploadTimes | None]:
    """Upload a corpus unless the engine has it; returns its record, and the upload times where they are known.

    Args:
        engine: That is to have it.
        corpus: That are uploaded.
        vectors: That are uploaded.
    """
    took = corpus.folder / f"{engine.kind}-upload.json"
    record = _described(engine.kind, corpus, vectors)
    _let_load(engine, record)
    timed = _Timed(engine)
    ensure_uploaded(timed, record, corpus.spool, vectors, print, Stopwatch())
    if timed.sent:
        took.write_text(json.dumps({"sent": timed.sent, "built": timed.built}))
    return record, UploadTimes(**json.loads(took.read_text())) if took.is_file() else None


def _described(kind: EngineKind, corpus: TiledCorpus, vectors: ShardedVectors) -> EngineRecord:
    """Return the record of a corpus, which is kept beside it; what another version wrote is made anew."""
    kept = corpus.folder / f"{kind}-record.json"
    with suppress(OSError, ValidationError):
        return EngineRecord.model_validate_json(kept.read_text())
    record = engine_record(kind, corpus.spool, vectors, Stopwatch())
    kept.write_text(record.model_dump_json())
    return record


def _let_load(engine: Engine, record: EngineRecord) -> None:
    """Wait while a server that has just been started loads the finished collection that it may have."""
    deadline = time.monotonic() + _LOADING
    while time.monotonic() < deadline:
        with suppress(EngineUnavailable):
            soon = time.monotonic() + _ANSWER
            if record.collection not in engine.names(soon):
                return
            state = engine.collection(record.collection, record.breadth, soon).state(soon)
            if state.loaded or not state.built:
                return
        time.sleep(1)


class _Timed:
    """An Engine that adds up how long its uploads and the building of its index take."""

    def __init__(self, engine: Engine) -> None:
        self.kind: EngineKind = engine.kind
        self.sent = self.built = 0.0
        self._engine = engine

    def create(self, name: str, dimension: int, deadline: float) -> None:
        """See Engine.create."""
        self._engine.create(name, dimension, deadline)

    def upload(self, name: str, first: int, shard: Rows, deadline: float) -> None:
        """See Engine.upload."""
        began = time.perf_counter()
        self._engine.upload(name, first, shard, deadline)
        self.sent += time.perf_counter() - began

    def finish(self, name: str, graph: GraphParameters, deadline: float) -> None:
        """See Engine.finish."""
        began = time.perf_counter()
        self._engine.finish(name, graph, deadline)
        self.built += time.perf_counter() - began

    def drop(self, name: str, deadline: float) -> None:
        """See Engine.drop."""
        self._engine.drop(name, deadline)

    def names(self, deadline: float) -> list[str]:
        """See Engine.names."""
        return self._engine.names(deadline)

    def created(self, name: str, deadline: float) -> float | None:
        """See Engine.created."""
        return self._engine.created(name, deadline)

    def collection(self, name: str, breadth: int, deadline: float) -> Collection:
        """See Engine.collection."""
        return self._engine.collection(name, breadth, deadline)
