"""Golden queries: how far a score may be from its record depends on what the encoder computes in."""

from dataclasses import replace
from pathlib import Path

import pytest

from retrieval.encoder import Precision
from retrieval.errors import ReleaseError
from retrieval.release.catalog import current_id
from retrieval.release.golden import GoldenQuery, check, read
from retrieval.release.layout import GOLDEN
from retrieval.release.reader import load
from retrieval.retriever import Retriever


@pytest.fixture(scope="module")
def recorded(releases: Path) -> tuple[Retriever, list[GoldenQuery]]:
    release = releases / current_id(releases)
    return load(release).retriever, read(release / GOLDEN)


def moved(queries: list[GoldenQuery], by: float) -> list[GoldenQuery]:
    """One score of the last query."""
    *others, last = queries
    return [*others, replace(last, scores=[*last.scores[:-1], last.scores[-1] + by])]


@pytest.mark.parametrize(("precision", "within", "beyond"), [("float32", 9e-5, 1.1e-4), ("int8", 2.9e-2, 3.1e-2)])
def test_a_score_may_move_as_far_as_the_precision_lets_it(
    recorded: tuple[Retriever, list[GoldenQuery]], precision: Precision, within: float, beyond: float
) -> None:
    retriever, queries = recorded
    check(retriever, moved(queries, within), precision)
    with pytest.raises(ReleaseError, match=f"golden query {len(queries) - 1} scores"):
        check(retriever, moved(queries, beyond), precision)
