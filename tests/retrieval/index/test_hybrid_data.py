"""Three hundred queries each of four data sets find what brute force finds, to the bit, with filters and groups.

Vectors are random ones by word, so that no encoder has to run.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from taugate.data.beir import read_dataset
from taugate.policy.arrays import HybridVectors
from taugate.retrieval.index.approximate import build
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.grouping import DocumentSearch
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.lexical import LexicalIndex, share_of
from taugate.retrieval.index.top_k import DocumentSubset, TopK, first_of_each
from taugate.retrieval.index.words import hybrid_vectors
from tests.retrieval.drawn_texts import text_vectors

K, DIMENSION, QUERIES, WEIGHT = 5, 64, 300, 0.5
Fused = Iterator[tuple[int, np.ndarray]]

pytestmark = [pytest.mark.data, pytest.mark.slow]


@pytest.fixture(scope="module", params=["squad_v2_dev", "cosqa", "scifact", "covidqa_chunks"])
def searched(request: pytest.FixtureRequest, public_data: Path) -> tuple[HybridIndex, HybridVectors]:
    with tempfile.TemporaryDirectory() as spool:
        dataset = read_dataset(
            public_data / request.param, "train" if request.param == "scifact" else "test", Path(spool)
        )
        texts = [document.encoded_text for document in dataset.documents]
        asked = [query.text for query in dataset.answerable]
    asked = [*asked[: QUERIES - 100], *texts[:100]]  # documents are long queries
    index = HybridIndex(build("flat", text_vectors(texts, DIMENSION)), LexicalIndex.of(texts), WEIGHT)
    return index, hybrid_vectors(text_vectors(asked, DIMENSION), asked)


def fused(index: HybridIndex, queries: HybridVectors) -> Fused:
    """Yield the scores of all documents for each query, by the definition."""
    assert isinstance(index.vectors, FlatIndex)
    vectors = index.vectors.vectors[np.arange(len(index))].astype(float)
    for row, terms in enumerate(queries.terms):
        sums = index.lexical.term_scores(terms)
        cosines = (vectors @ queries.dense[row].astype(float)).astype(np.float32)
        yield row, cosines + np.float32(index.weight) * share_of(sums.scores, sums.total)


def check(top: TopK, row: int, scores: np.ndarray, mask: np.ndarray) -> None:
    order = np.argsort(np.where(mask, -scores, np.inf), kind="stable")[: min(K, mask.sum())]
    np.testing.assert_array_equal(top.positions[row], order)
    np.testing.assert_array_equal(top.scores[row], scores[order])


def test_search_of_data_set_equals_brute_force(searched: tuple[HybridIndex, HybridVectors]) -> None:
    index, queries = searched
    rng = np.random.default_rng(0)
    masks = [np.ones(len(index), dtype=np.bool_), *(rng.random(len(index)) < share for share in (0.5, 0.05, 0.005))]
    tops = [index.search(queries, K), *(index.search_within(queries, K, DocumentSubset(mask)) for mask in masks[1:])]
    for row, scores in fused(index, queries):
        for top, mask in zip(tops, masks, strict=True):
            check(top, row, scores, mask)


def test_grouped_search_of_data_set_equals_brute_force(searched: tuple[HybridIndex, HybridVectors]) -> None:
    """Three neighbouring passages a document, in half of the corpus."""
    index, queries = searched
    parents = (np.arange(len(index)) // 3).astype(np.int32)
    mask = np.random.default_rng(1).random(len(index)) < 0.5
    search = DocumentSearch(index, parents, DocumentSubset(mask))
    found = {row: top.positions[place] for rows, top in search.search(queries, K, K) for place, row in enumerate(rows)}
    for row, scores in fused(index, queries):
        order = np.argsort(np.where(mask, -scores, np.inf), kind="stable")[: mask.sum()]
        expected = order[first_of_each(parents, order)][:K]
        np.testing.assert_array_equal(found[row][first_of_each(parents, found[row])][:K], expected)
