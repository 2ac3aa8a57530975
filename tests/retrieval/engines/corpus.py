"""A corpus with copies of one vector, chunks, and metadata of every kind; and how it is put into an engine."""

import time

import numpy as np

from taugate.release.engine import EngineRecord, GraphParameters
from taugate.retrieval.documents.metadata import FieldTypes
from taugate.retrieval.documents.store import Document
from taugate.retrieval.engines.engine import (
    Engine,
    Rows,
    SampleDigest,
    recorded_fields,
    sampled_positions,
    shard_digest,
)
from tests.vectors import unit

N, D = 1500, 24
COPIES = np.arange(7, N, 37)  # 41 copies of one vector: more than k + SPARE
SHARD = 700  # the last one is shorter


def soon(seconds: float = 120) -> float:
    return time.monotonic() + seconds


def corpus(count: int = N) -> Rows:
    rng = np.random.default_rng(5)
    vectors = unit(rng.standard_normal((N, D)))
    vectors[COPIES] = vectors[COPIES[0]]
    return Rows(vectors[:count], [_document(i) for i in range(count)])


def _document(i: int) -> Document:
    metadata: dict = {"lang": ("sv", "en", "de")[i % 3], "year": 1990 + i % 30, "odd [\"name\\']": -i / 7}
    if i % 5:
        metadata["day"] = (f"20{i % 30:02}-03-0{1 + i % 9}", f"20{i % 30:02}-03-01T0{i % 9}:30:00.25+02:00", "unknown")[
            i % 3
        ]
    if i % 2:
        metadata["tags"] = [f"t{i % 5}", "å\u0000ä", '"quoted" \\'][: i % 4]
    if i % 4:
        metadata["one"] = (1, True, "1")[i % 3]
    if i % 100 == 0:
        metadata["rare"] = None if i % 200 else 2**53
    if i % 10 == 9:
        return Document(f"d{i}#0", f"part {i}", None, metadata, parent=f"p{i // 20}", span=(0, 6))
    return Document(f"d{i}", f"text {i}: å", "title" if i % 2 else None, metadata)


def shards(rows: Rows) -> list[Rows]:
    return [
        Rows(rows.vectors[i : i + SHARD], rows.documents[i : i + SHARD]) for i in range(0, len(rows.documents), SHARD)
    ]


def recorded(engine: Engine, rows: Rows, salt: str = "") -> EngineRecord:
    """What a release says of rows; a salt makes another collection of it."""
    sample = SampleDigest()
    positions = sampled_positions(len(rows.documents))
    sample.add(Rows(rows.vectors[positions], [rows.documents[i] for i in positions]))
    digests = tuple(shard_digest(row) + salt for row in shards(rows))
    return EngineRecord(
        kind=engine.kind,
        rows=len(rows.documents),
        dimension=rows.vectors.shape[1],
        shards=digests,
        sample=sample.hexdigest(),
        fields=recorded_fields(FieldTypes.of(rows.documents)),
    )


def upload(engine: Engine, name: str, rows: Rows, *, finished: bool = True) -> None:
    engine.create(name, rows.vectors.shape[1], soon())
    first = 0
    for shard in shards(rows):
        engine.upload(name, first, shard, soon())
        first += len(shard.documents)
    if finished:
        engine.finish(name, GraphParameters(), soon())
