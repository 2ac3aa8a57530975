"""Which index serves: exact in float32, unless the gate admits what was asked for."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from taugate.calibration.gate.gate import Candidate, Judge, Outcome, Trial
from taugate.calibration.progress import speeds
from taugate.calibration.settings.settings import IndexChoice
from taugate.errors import InputError
from taugate.retrieval.index.approximate import ApproximateIndex
from taugate.retrieval.index.build import FEWEST_FOR_CODES, AnyIndex, build
from taugate.retrieval.index.files import sizes
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.kinds import Kind
from taugate.retrieval.index.top_k import Index, TopK
from taugate.retrieval.release.manifest import IndexRecord
from taugate.retrieval.vectors.projection import Projection
from taugate.retrieval.vectors.similarity import Float32

# Share of the margin that may be missed of the exact top-K. On mixed_large accuracy@5 loses half of what is missed, so
# that an eighth of the margin is lost and the rest is left for chance (docs/benchmarks/gate.md).
_MISSED = 0.25
_BREADTHS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


def recall(index: Index, flat: FlatIndex, queries: Float32, exact: TopK) -> float:
    """Mean share of the exact top-K that `index` finds; a document as similar as the last of them will do as well."""
    found = index.search(queries, exact.positions.shape[1]).positions
    return float(np.mean(flat.score(queries, found) >= exact.scores[:, -1:]))


def set_breadth(index: ApproximateIndex, flat: FlatIndex, queries: Float32, depth: int, margin: float) -> None:
    """The first of growing breadths with the recall at `depth` that a margin wants, the widest where none has it.

    flat: exact search of the same documents.
    """
    exact = flat.search(queries, depth)
    for breadth in _BREADTHS:
        if breadth >= index.least_breadth(depth):
            index.breadth = breadth
            everything = index.breadth < breadth  # there are no more lists
            if everything or recall(index, flat, queries, exact) >= 1 - _MISSED * margin:
                return


_TIMED, _LONE = 256, 64  # queries together, and one by one


def search_gain(
    trial: Trial, flat: FlatIndex, index: AnyIndex, projection: Projection | None = None
) -> dict[str, float]:
    """Queries of the trial to `flat`, of its documents, and through the projection, where there is one, to `index`.

    bytes_per_document: of the file that every search reads; disk_bytes_per_document: of all files.
    """
    lone = [trial.vectors[row : row + 1] for row in range(min(_LONE, len(trial.vectors)))]
    gain = speeds(
        lambda vectors: flat.search(vectors, trial.k),
        lambda vectors: index.search(projection.apply(vectors) if projection else vectors, trial.k),
        trial.vectors[:_TIMED],
        lone,
    )
    for name, each in (("baseline_", flat), ("", index)):
        memory, disk = sizes(each)
        gain[f"{name}bytes_per_document"] = memory / len(each)
        gain[f"{name}disk_bytes_per_document"] = disk / len(each)
    return gain


# What `auto` tries, the preferred first, in a corpus of at most so many documents. Encoding a query takes some 4 ms;
# exact search of 10,000 documents takes less than half of that, int8 of 100,000 as much, and from 1,000,000 on a graph
# takes minutes to build and 1.8 GB of memory, codes a tenth (384 dimensions on 2 cores, docs/benchmarks/gate.md).
_AUTO: tuple[tuple[float, tuple[Kind, ...]], ...] = (
    (10_000, ()),
    (100_000, ("flat-int8", "flat-float16")),
    (1_000_000, ("hnsw", "flat-int8")),
    (math.inf, ("ivf-pq", "flat-int8")),
)


@dataclass(frozen=True)
class Indexed:
    """The index that serves, and what the manifest says of it."""

    index: AnyIndex
    record: IndexRecord

    @classmethod
    def exact(cls, trial: Trial) -> Self:
        """The baseline's."""
        return cls.of(FlatIndex.build(trial.documents))

    @classmethod
    def of(cls, index: AnyIndex, recall: float | None = None, depth: int | None = None) -> Self:
        """recall: share of the exact top `depth` that it finds."""
        breadth = index.breadth if isinstance(index, ApproximateIndex) else None
        record = IndexRecord(
            kind=index.kind, metric="cosine", documents=len(index), breadth=breadth, recall=recall, depth=depth
        )
        return cls(index, record)


def kinds_asked(asked: IndexChoice, documents: int) -> tuple[Kind, ...]:
    """What is tried, the preferred first; empty for exact search. Raises InputError with too few documents."""
    if asked == "auto":
        return next(kinds for most, kinds in _AUTO if documents <= most)
    if asked == "ivf-pq" and documents < FEWEST_FOR_CODES:
        raise InputError(
            f"--index ivf-pq: its codes take {FEWEST_FOR_CODES} documents to train, there are {documents}; "
            "name another index, or auto"
        )
    return () if asked == "flat" else (asked,)


def admit_index(trial: Trial, unseen: Outcome | None, kinds: tuple[Kind, ...], margin: float, judged: Judge) -> Indexed:
    """The first of the kinds that is admitted, exact search where none is.

    trial: the calibration queries; unseen: their outcome by exact search with projections that had not seen them, where
    there is a projection. What an index changes is then added to it: the projection here was fitted on these queries.
    """
    flat = FlatIndex.build(trial.documents)
    if not kinds:
        return Indexed.of(flat)
    exact = flat.search(trial.vectors, trial.depth)
    before = Outcome.of(trial.queries, exact.positions, trial.k)
    tried = [built(kind, trial, flat, margin) for kind in kinds]
    candidates = [
        Candidate(
            _name(each), "index", (unseen or before).moved(before, trial.outcome(each)), search_gain(trial, flat, each)
        )
        for each in tried
    ]
    for index, record in zip(tried, judged(candidates), strict=True):
        if record.admitted:
            return Indexed.of(index, recall(index, flat, trial.vectors, exact), trial.depth)
    return Indexed.of(flat)


def built(kind: Kind, trial: Trial, flat: FlatIndex, margin: float) -> AnyIndex:
    """An index of the trial's documents, as wide as the margin wants it; flat: exact search of the same."""
    index = build(kind, trial.documents)
    if isinstance(index, ApproximateIndex):
        set_breadth(index, flat, trial.vectors, trial.depth, margin)
    return index


def _name(index: AnyIndex) -> str:
    return f"{index.kind}, breadth {index.breadth}" if isinstance(index, ApproximateIndex) else index.kind
