"""Golden queries: how far a score may be from its record is said in the manifest."""

from dataclasses import replace
from pathlib import Path

import pytest

from taugate.errors import ReleaseError
from taugate.registry.catalog import current_id
from taugate.retrieval.release.golden import GoldenQuery, check, read
from taugate.retrieval.release.layout import GOLDEN
from taugate.retrieval.release.reader import load
from taugate.retrieval.retriever import Retriever


@pytest.fixture(scope="module")
def recorded(releases: Path) -> tuple[Retriever, list[GoldenQuery]]:
    release = releases / current_id(releases)
    return load(release).retriever, read(release / GOLDEN)


def moved(queries: list[GoldenQuery], by: float) -> list[GoldenQuery]:
    """One score of the last query."""
    *others, last = queries
    return [*others, replace(last, scores=[*last.scores[:-1], last.scores[-1] + by])]


@pytest.mark.parametrize("tolerance", [1e-4, 3e-2])
def test_a_score_may_move_as_far_as_the_manifest_lets_it(
    recorded: tuple[Retriever, list[GoldenQuery]], tolerance: float
) -> None:
    retriever, queries = recorded
    check(retriever, moved(queries, 0.9 * tolerance), tolerance)
    with pytest.raises(ReleaseError, match=f"golden query {len(queries) - 1} scores"):
        check(retriever, moved(queries, 1.1 * tolerance), tolerance)
