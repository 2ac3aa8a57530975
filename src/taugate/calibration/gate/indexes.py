"""The index that serves: exact in float32, unless the gate admits a cheaper one that was asked for."""

import math

import numpy as np

from taugate.calibration.gate.baseline import GateBaseline, GateState, SearchTrial
from taugate.calibration.gate.gate import GateCandidate, judge
from taugate.calibration.progress import speeds
from taugate.calibration.settings.settings import MARGIN, GateSettings, IndexChoice
from taugate.errors import InputError
from taugate.retrieval.index.approximate import AnyIndex, ApproximateIndex
from taugate.retrieval.index.build import MIN_FOR_CODES, build
from taugate.retrieval.index.files import sizes
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.kinds import Kind
from taugate.retrieval.index.top_k import Scorer, Searchable, TopK
from taugate.retrieval.release.records import GateRecord
from taugate.retrieval.vectors.projection import Projection
from taugate.retrieval.vectors.similarity import Float32

# Share of the margin that may be missed of the exact top-K. On mixed_large accuracy@5 loses half of what is missed, so
# that an eighth of the margin is lost and the rest is left for chance (docs/benchmarks/gate.md).
MISSED = 0.25
_BREADTHS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_TIMED, _LONE = 256, 64  # queries together, and one by one
# What `auto` tries, the preferred first, in a corpus of at most so many documents. Encoding a query takes some 4 ms;
# exact search of 10,000 documents takes less than half of that, int8 of 100,000 as much, and from 1,000,000 on a graph
# takes minutes to build and 1.8 GB of memory, codes a tenth (384 dimensions on 2 cores, docs/benchmarks/gate.md).
_AUTO: tuple[tuple[float, tuple[Kind, ...]], ...] = (
    (10_000, ()),
    (100_000, ("flat-int8", "flat-float16")),
    (1_000_000, ("hnsw", "flat-int8")),
    (math.inf, ("ivf-pq", "flat-int8")),
)


def kinds_asked(asked: IndexChoice, documents: int) -> tuple[Kind, ...]:
    """Return the kinds of index to try, the preferred one first; none for exact search.

    Args:
        asked: Kind that was asked for, or "auto".
        documents: N, of the corpus.

    Raises:
        InputError: Where there are too few documents to train what is asked for.
    """
    if asked == "auto":
        return next(kinds for most, kinds in _AUTO if documents <= most)
    if asked == "ivf-pq" and documents < MIN_FOR_CODES:
        raise InputError(
            f"--index ivf-pq: its codes take {MIN_FOR_CODES} documents to train, and there are only {documents}; "
            "name another index, or auto"
        )
    return () if asked == "flat" else (asked,)


def try_indexes(
    baseline: GateBaseline, state: GateState, kinds: tuple[Kind, ...], gate: GateSettings
) -> tuple[list[GateRecord], GateState]:
    """Build and judge an index of each kind, and take the first that is admitted.

    What an index changes is measured against exact search of the same vectors. Where there is a projection it is added
    to what the projection loses of queries that it was not fitted on: the one that serves was fitted on these queries.

    Args:
        baseline: Baseline to judge against.
        state: What serves so far, by exact search.
        kinds: Kinds of index, the preferred one first.
        gate: Margin and confidence.

    Returns:
        A record for each kind, and what serves from here on: `state` itself where the gate admits none.
    """
    trial, margin = state.trial, gate.margin or MARGIN
    exact = trial.exact.search(trial.vectors, trial.depth)
    before = trial.judge(exact)
    indexes = [build_index(kind, trial, margin) for kind in kinds]
    candidates = [
        GateCandidate(
            _name(index),
            "index",
            (state.outcomes or before).shifted(before, trial.outcomes(index)),
            search_gain(trial, index),
        )
        for index in indexes
    ]
    records = judge(baseline.outcomes, candidates, baseline.units, gate)
    for index, record in zip(indexes, records, strict=True):
        if record.admitted:
            return records, state.with_index(index, recall(index, trial.exact, trial.vectors, exact))
    return records, state


def build_index(kind: Kind, trial: SearchTrial, margin: float) -> AnyIndex:
    """Build an index of the trial's documents, as broad as the margin wants it.

    Args:
        kind: Kind of index.
        trial: Documents, and the queries that choose the breadth.
        margin: Loss that the gate allows.
    """
    index = build(kind, trial.documents)
    if isinstance(index, ApproximateIndex):
        set_breadth(index, trial.exact, trial.vectors, trial.depth, margin)
    return index


def set_breadth(index: ApproximateIndex, flat: FlatIndex, queries: Float32, depth: int, margin: float) -> None:
    """Set the first of growing breadths that has the recall a margin wants, the widest where none has it.

    Args:
        index: Index whose breadth is set.
        flat: Exact search of the same documents.
        queries: (q, d) float32.
        depth: Results that recall is measured at.
        margin: Loss that the gate allows.
    """
    exact = flat.search(queries, depth)
    for breadth in _BREADTHS:
        if breadth >= index.least_breadth(depth):
            index.breadth = breadth
            everything = index.breadth < breadth  # there are no more lists
            if everything or recall(index, flat, queries, exact) >= 1 - MISSED * margin:
                return


def recall(index: Searchable, flat: Scorer, queries: Float32, exact: TopK) -> float:
    """Return the mean share of the exact top-K that an index finds.

    Args:
        index: Index that is measured.
        flat: Scores its documents.
        queries: (q, d) float32.
        exact: (q, K) results of exact search.
    """
    return share_found(flat, queries, exact, index.search(queries, exact.positions.shape[1]))


def share_found(flat: Scorer, queries: Float32, exact: TopK, found: TopK) -> float:
    """Return the mean share of the exact top-K that was found; the others are those of `recall`.

    A document as similar as the last of the exact top-K will do as well.

    Args:
        found: (q, K) results of the index that is measured.
    """
    return float(np.mean(flat.score(queries, found.positions) >= exact.scores[:, -1:]))


def search_gain(trial: SearchTrial, index: AnyIndex, projection: Projection | None = None) -> dict[str, float]:
    """Measure the size and speed of an index beside exact search.

    Args:
        trial: Queries and documents, with their exact index.
        index: Index that is measured.
        projection: Projection that queries go through before it, None without one.

    Returns:
        Speeds as `speeds` names them; `bytes_per_document` of the file that every search reads, and
        `disk_bytes_per_document` of all files; of exact search with `baseline_` in front.
    """
    lone = [trial.vectors[row : row + 1] for row in range(min(_LONE, len(trial.vectors)))]
    gain = speeds(
        lambda vectors: trial.exact.search(vectors, trial.k),
        lambda vectors: index.search(projection.apply(vectors) if projection else vectors, trial.k),
        trial.vectors[:_TIMED],
        lone,
    )
    for name, each in (("baseline_", trial.exact), ("", index)):
        memory, disk = sizes(each)
        gain[f"{name}bytes_per_document"] = memory / len(each)
        gain[f"{name}disk_bytes_per_document"] = disk / len(each)
    return gain


def _name(index: AnyIndex) -> str:
    return f"{index.kind}, breadth {index.breadth}" if isinstance(index, ApproximateIndex) else index.kind
