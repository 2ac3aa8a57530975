"""Queries with filters: the same alone and in a batch, cut by the same threshold, and never calibrated."""

import numpy as np
import pytest

from taugate.errors import InputError
from taugate.policy.names import PolicyKind
from taugate.policy.policy import Policy
from taugate.policy.relevance import FEATURES, Background, Logistic, Relevance
from taugate.retrieval.documents.filters import Filter, OneOf, Range, all_of
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.approximate import build
from taugate.retrieval.query import Answer, Query
from taugate.retrieval.retriever import Retriever
from tests.retrieval.text_tokens import TextTokens

N, D, K = 400, 16, 5
TAU: dict[PolicyKind, float | None] = {"similarity": 0.3, "relative": 0.8, "probability": 0.5, "none": None}
NONE_MATCH = (OneOf.of("row", -1),)


class Directions:
    """A text is the seed of its vector."""

    def tokenize(self, texts, role):
        return [*map(TextTokens, texts)]

    def embed(self, tokens):
        return np.stack([unit(np.random.default_rng(int(text)), 1)[0] for text in tokens])


def unit(rng: np.random.Generator, count: int) -> np.ndarray:
    vectors = rng.standard_normal((count, D))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def metadata() -> Metadata:
    return Metadata.of(Document(str(row), "text", None, {"row": row, "odd": bool(row % 2)}) for row in range(N))


@pytest.fixture(scope="module", params=["flat", "hnsw"])
def retrievers(request: pytest.FixtureRequest, metadata: Metadata) -> dict[PolicyKind, Retriever]:
    rng = np.random.default_rng(0)
    documents = unit(rng, N)
    size = len(FEATURES)
    model = Logistic(np.zeros(size), np.ones(size), rng.normal(size=size) / 4, 0.0)
    relevance = Relevance(model, Background.of(documents, unit(rng, 50), rng.integers(1, 99, N)), K)
    index = build(request.param, documents)
    return {
        kind: Retriever(Directions(), index, Policy(kind, tau, K), relevance, metadata=metadata)
        for kind, tau in TAU.items()
    }


def same(one: Answer, other: Answer) -> bool:
    arrays = ("positions", "scores", "ranks", "relevance", "below_threshold")
    facts = ("considered", "best_score", "threshold", "policy", "calibrated", "reason")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays) and all(
        getattr(one, name) == getattr(other, name) for name in facts
    )


FILTERS: list[Filter | None] = [
    None,
    (),
    (OneOf.of("odd", True),),
    (OneOf.of("row", 1, 0),),
    (OneOf.of("row", True),),
    (Range("row", lt=3),),
    all_of(Range("row", gte=100), OneOf.of("odd", False)),
    NONE_MATCH,
]


@pytest.mark.parametrize("kind", TAU)
def test_answer_is_independent_of_batch(retrievers: dict[PolicyKind, Retriever], kind: PolicyKind) -> None:
    queries = [
        Query(str(seed), k, None, 0, query_filter) for seed in range(6) for k in (1, 5, 9) for query_filter in FILTERS
    ]
    queries = [queries[place] for place in np.random.default_rng(1).permutation(len(queries))]
    together = retrievers[kind].search(queries)
    for query, answer in zip(queries, together, strict=True):
        assert same(answer, retrievers[kind].search([query])[0]), query


@pytest.mark.parametrize("kind", TAU)
def test_filtered_answer_keeps_passing_results(
    retrievers: dict[PolicyKind, Retriever], metadata: Metadata, kind: PolicyKind
) -> None:
    """Each filter leaves fewer or more documents than K."""
    retriever = retrievers[kind]
    for query_filter in [query_filter for query_filter in FILTERS if query_filter]:
        mask = metadata.where(query_filter)
        for k in (1, K, 12):
            (whole,) = retriever.search([Query("3", k, None, k, query_filter)])
            (cut,) = retriever.search([Query("3", k, None, 0, query_filter)])
            vector = retriever.vectors(["3"])[0].astype(float)
            scores = (retriever.index.vectors[np.arange(N)].astype(float) @ vector).astype(np.float32)  # type: ignore[attr-defined]  # a FlatIndex here
            best = [row for row in np.argsort(-scores, kind="stable").tolist() if mask[row]][:k]
            assert whole.positions.tolist() == best
            assert whole.scores.tolist() == scores[best].tolist()
            assert cut.considered == whole.considered == len(best)
            assert set(cut.positions.tolist()) <= set(best)
            compared = {"similarity": whole.scores, "probability": whole.relevance, "none": np.ones(len(best))}
            compared["relative"] = whole.scores / whole.scores[:1]
            tau = -np.inf if TAU[kind] is None else np.float32(TAU[kind])
            kept = [row for row, value in zip(best, compared[kind], strict=True) if value >= tau]
            assert cut.positions.tolist() == kept
            assert np.isfinite(whole.relevance).all()


def test_no_matching_document_has_reason(retrievers: dict[PolicyKind, Retriever]) -> None:
    for retriever in retrievers.values():
        (answer,) = retriever.search([Query("1", K, None, 3, NONE_MATCH)])
        assert (len(answer.positions), answer.considered, answer.best_score) == (0, 0, None)
        assert answer.reason == "no_documents_match_filter"
        assert (len(answer.scores), len(answer.ranks), len(answer.relevance)) == (0, 0, 0)


def test_filtered_answer_below_threshold_has_reason(retrievers: dict[PolicyKind, Retriever]) -> None:
    (answer,) = retrievers["similarity"].search([Query("1", K, 2.0, 0, (OneOf.of("odd", True),))])
    assert (answer.reason, answer.considered) == ("all_below_threshold", K)
    assert answer.best_score is not None


def test_filtered_answer_is_not_calibrated(retrievers: dict[PolicyKind, Retriever]) -> None:
    retriever = retrievers["similarity"]
    for query_filter, calibrated in ((None, True), ((), True), ((OneOf.of("odd", True),), False), (NONE_MATCH, False)):
        (answer,) = retriever.search([Query("1", K, None, 0, query_filter)])
        assert answer.calibrated == calibrated
        assert answer.threshold == np.float32(0.3)


def test_unknown_field_is_named(retrievers: dict[PolicyKind, Retriever]) -> None:
    with pytest.raises(InputError, match="the fields are odd, row"):
        retrievers["similarity"].search([Query("1", K, filter=(OneOf.of("even", True),))])
