"""Golden queries: the manifest limits how far scores may be from their records."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taugate.errors import ReleaseError
from taugate.policy.arrays import Float32
from taugate.registry.catalog import current_id
from taugate.release.golden import GoldenQuery, read_golden
from taugate.release.layout import GOLDEN
from taugate.retrieval.golden import check, differences, search
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.hybrid import vector_index
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.reader import load
from taugate.retrieval.retriever import Retriever


@pytest.fixture(scope="module")
def recorded(releases: Path) -> tuple[Retriever, list[GoldenQuery]]:
    release = releases / current_id(releases)
    return load(release).retriever, read_golden(release / GOLDEN)


def moved(queries: list[GoldenQuery], by: float) -> list[GoldenQuery]:
    """One score of the last query."""
    *others, last = queries
    return [*others, replace(last, scores=[*last.scores[:-1], last.scores[-1] + by])]


@pytest.mark.parametrize("tolerance", [1e-4, 3e-2])
def test_golden_scores_within_tolerance_pass(recorded: tuple[Retriever, list[GoldenQuery]], tolerance: float) -> None:
    retriever, queries = recorded
    check(retriever, moved(queries, 0.9 * tolerance), tolerance)
    with pytest.raises(ReleaseError, match=f"golden query {len(queries) - 1} scores"):
        check(retriever, moved(queries, 1.1 * tolerance), tolerance)


class _Engine:
    """An engine in the place of the index, whose graph misses the best document of some queries.

    Attributes:
        index: Exact.
        missed: Every so-manyth query misses it.
        moved: Added to every score, as another encoder would do.
    """

    def __init__(self, index: FlatIndex, missed: int, moved: float = 0.0) -> None:
        self._index, self._missed, self._moved = index, missed, moved

    def search(self, queries: Float32, k: int) -> TopK:
        found = self._index.search(queries, k + 1)
        scores, positions = found.scores[:, :k] + np.float32(self._moved), found.positions[:, :k]
        rows = slice(None, None, self._missed)
        scores[rows], positions[rows] = found.scores[rows, 1:], found.positions[rows, 1:]
        return TopK(scores, positions)


def over(engine: _Engine, retriever: Retriever) -> Retriever:
    """The retriever with an engine in the place of its index."""
    return replace(retriever, index=engine, remote_passages=retriever.passages)  # type: ignore[arg-type]  # searched alone


@pytest.fixture(scope="module")
def recorded_cosines(recorded: tuple[Retriever, list[GoldenQuery]]) -> tuple[Retriever, list[GoldenQuery]]:
    """The same retriever without the lexical part, with the scores that it gives."""
    retriever, queries = recorded
    retriever = replace(retriever, index=vector_index(retriever.index))
    scores = search(retriever, queries).scores.tolist()
    return retriever, [replace(query, scores=row) for query, row in zip(queries, scores, strict=True)]


def test_rebuilt_graph_passes_golden_check(recorded_cosines: tuple[Retriever, list[GoldenQuery]]) -> None:
    retriever, queries = recorded_cosines
    engine = over(_Engine(retriever.index, missed=3), retriever)  # type: ignore[arg-type]  # a FlatIndex
    check(engine, queries, 1e-4)
    distances = differences(search(engine, queries), queries)
    assert (distances > 1e-4).mean() >= 1 / 4  # in the process they would be refused


def test_foreign_encoder_fails_through_engine(recorded_cosines: tuple[Retriever, list[GoldenQuery]]) -> None:
    retriever, queries = recorded_cosines
    engine = over(_Engine(retriever.index, missed=len(queries), moved=1e-2), retriever)  # type: ignore[arg-type]
    with pytest.raises(ReleaseError, match=r"golden queries mostly score 0\.0"):
        check(engine, queries, 1e-4)
