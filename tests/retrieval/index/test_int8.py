"""Codes of one byte never understate how similar a document may be that they do not propose."""

import numpy as np
import pytest

from taugate.retrieval.index.flat import Int8Codes
from tests.vectors import unit

N = 3000


@pytest.mark.parametrize("dimension", [3, 26, 384, 1100])  # products of the last exceed what float32 counts exactly
@pytest.mark.parametrize("shape", ["normal", "outliers", "zeros"])
def test_limit_is_not_below_any_other_similarity(dimension: int, shape: str) -> None:
    rng = np.random.default_rng(dimension)
    documents, queries = unit(rng.standard_normal((N, dimension))), unit(rng.standard_normal((50, dimension)))
    if shape == "outliers":  # one component takes nearly all of the codes
        documents[::7], queries[::3] = 0, 0
        documents[::7, 1] = queries[::3, 1] = -1
    elif shape == "zeros":
        documents[::2], queries[::2] = 0, 0
    exact = queries.astype(float) @ documents.T.astype(float)
    for count in (1, 20, 500):
        limits, proposed = Int8Codes.build(documents).propose(queries, count)
        others = exact.copy()
        np.put_along_axis(others, proposed, -np.inf, axis=1)
        assert (limits >= others.max(axis=1)).all()
        assert all(len(set(row)) == count for row in proposed.tolist())


def test_proposals_contain_nearest_documents() -> None:
    rng = np.random.default_rng(0)
    documents = unit(rng.standard_normal((N, 384)))
    queries = unit(documents[:100] + 0.05 * rng.standard_normal((100, 384)))
    limits, proposed = Int8Codes.build(documents).propose(queries, 30)
    assert (proposed == np.arange(100)[:, None]).any(axis=1).all()
    assert limits.max() < 0.5  # the similarity of a query and its document is above 0.6


def test_corpus_of_zeros_is_coded() -> None:
    limits, proposed = Int8Codes.build(np.zeros((5, 8), np.float32)).propose(np.ones((1, 8), np.float32), 3)
    assert len(set(proposed[0].tolist())) == 3
    assert limits[0] >= 0
