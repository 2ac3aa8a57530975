"""A search grouped by document equals brute force over all passages: the best passages of the first k documents."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from taugate.errors import InputError
from taugate.policy.names import PolicyKind
from taugate.policy.policy import Policy
from taugate.policy.relevance import FEATURES, Background, Logistic, Relevance
from taugate.release.names import Kind
from taugate.retrieval.documents.columns import Column, SortedValues
from taugate.retrieval.documents.filters import Filter, OneOf, Range, all_of, sort_key
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index import grouping
from taugate.retrieval.index.approximate import AnyIndex, build
from taugate.retrieval.index.flat import FlatIndex, brute_force_top_k
from taugate.retrieval.query import Answer, Query
from taugate.retrieval.retriever import Retriever
from tests.retrieval.text_tokens import TextTokens

RNG = np.random.default_rng(5)
N, DIMENSION, K = 3_000, 16, 5
KEEP_ALL = -2.0


def _unit(rows: int) -> np.ndarray:
    vectors = RNG.standard_normal((rows, DIMENSION)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


QUERIES = _unit(40)
VECTORS = _unit(N)
VECTORS[1_000:1_400] = VECTORS[:400]  # equal scores, of passages of other documents too
EVEN = all_of(OneOf.of("half", "even"))
METADATA = Metadata(
    {"half": Column(SortedValues.of([sort_key("even"), sort_key("odd")]), (np.arange(N) % 2).astype(np.int32))}
)


def _parents(sizes: list[int]) -> np.ndarray:
    """For documents of so many passages each, one after another, the position of each passage's first."""
    firsts = np.cumsum([0, *sizes[:-1]])
    return np.repeat(firsts, sizes).astype(np.int32)


def _sizes(largest: int) -> list[int]:
    sizes: list[int] = []
    while sum(sizes) < N:
        sizes.append(min(int(RNG.integers(1, largest + 1)), N - sum(sizes)))
    return sizes


# One passage each, a few, many, and two documents of which one has nearly all passages.
CORPORA = {
    name: _parents(sizes)
    for name, sizes in {"single": [1] * N, "few": _sizes(6), "many": _sizes(400), "lopsided": [N - 1, 1]}.items()
}


def retriever(parents: np.ndarray | None, index: AnyIndex | None = None, **parts: Any) -> Retriever:
    policy = parts.pop("policy", Policy("similarity", 0.5, K))
    return Retriever(None, index or FlatIndex.build(VECTORS), policy, metadata=METADATA, parents=parents, **parts)  # type: ignore[arg-type]


def brute_force(index: AnyIndex, parents: np.ndarray, vector: np.ndarray, k: int, members: np.ndarray) -> list[int]:
    """Positions of the best passages of the k best documents, by sorting all passages."""
    scores = index.score(vector[None], members[None])[0]
    best: dict[int, int] = {}
    for place in sorted(range(len(members)), key=lambda place: (-scores[place], members[place])):
        best.setdefault(int(parents[members[place]]), int(members[place]))
    return [*best.values()][:k]


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("kind", ["flat", "flat-float16", "flat-int8"])
@pytest.mark.parametrize("within", [(), EVEN])
@pytest.mark.slow
def test_grouped_answers_equal_brute_force(name: str, kind: Kind, within: Any) -> None:
    parents, index = CORPORA[name], FlatIndex.build(VECTORS, kind)
    members = np.flatnonzero(METADATA.where(within)) if within else np.arange(N)
    for k in (1, 2, 5, 50):
        queries = [Query("", k, KEEP_ALL, filter=within, group_by="document") for _ in QUERIES]
        for vector, answer in zip(QUERIES, retriever(parents, index).answer(queries, QUERIES), strict=True):
            assert answer.positions.tolist() == brute_force(index, parents, vector, k, members)
            assert answer.scores.tolist() == index.score(vector[None], answer.positions[None])[0].tolist()
            assert answer.ranks.tolist() == [*range(1, len(answer.positions) + 1)]
            assert answer.considered == len(answer.positions)


@pytest.mark.parametrize("kind", ["hnsw", "ivf-flat", "ivf-pq"])
def test_approximate_grouped_search_returns_k_documents(kind: Kind) -> None:
    index, parents = build(kind, VECTORS), CORPORA["many"]
    documents = len(np.unique(parents))
    queries = [Query("", k, KEEP_ALL, group_by="document") for k in (5, documents) for _ in QUERIES]
    answers = retriever(parents, index).answer(queries, np.tile(QUERIES, (2, 1)))
    exact = []
    for query, vector, answer in zip(queries, np.tile(QUERIES, (2, 1)), answers, strict=True):
        assert len(np.unique(parents[answer.positions])) == answer.considered == query.k
        best = brute_force(index, parents, vector, query.k, np.arange(N))
        assert (answer.scores <= index.score(vector[None], np.array([best]))[0]).all()
        exact.append(answer.positions.tolist() == best)
    assert all(exact[len(QUERIES) :])


def test_grouped_answer_is_independent_of_batch() -> None:
    parents = CORPORA["many"]
    asked = [Query("", k, group_by=group) for k in (2, 5, 9) for group in ("document", None) for _ in range(6)]
    vectors = QUERIES[: len(asked)]
    together = retriever(parents).answer(asked, vectors)
    for query, vector, answer in zip(asked, vectors, together, strict=True):
        (alone,) = retriever(parents).answer([query], vector[None])
        assert same(alone, answer)


def same(one: Answer, other: Answer) -> bool:
    return all(repr(getattr(one, field.name)) == repr(getattr(other, field.name)) for field in fields(Answer))


def test_grouping_without_chunks_changes_nothing() -> None:
    queries = [Query("", k, minimum, group_by="document") for k, minimum in ((1, None), (5, None), (20, 0.2))]
    for parents in (None, CORPORA["single"]):
        plain = retriever(None).answer([replace(query, group_by=None) for query in queries], QUERIES[:3])
        for one, other in zip(plain, retriever(parents).answer(queries, QUERIES[:3]), strict=True):
            if parents is None:
                assert same(one, other)
            else:
                assert one.positions.tolist() == other.positions.tolist()


def test_grouping_keeps_passage_cut() -> None:
    """Grouping drops no result for another reason, and drift is told of the passages as ever."""
    parents = CORPORA["few"]
    background = Background.of(VECTORS, QUERIES, np.full(N, 100))
    weights = RNG.standard_normal(len(FEATURES))
    model = Relevance(Logistic(np.zeros(len(FEATURES)), np.ones(len(FEATURES)), weights, 0.0), background, K)
    for kind, tau in (("similarity", 0.62), ("relative", 0.9), ("probability", 0.4), ("none", None)):
        policy = Policy(kind, tau, K)  # type: ignore[arg-type]
        searcher = retriever(parents, policy=policy, relevance=model)
        plain = searcher.answer([Query("", 300, KEEP_ALL)] * len(QUERIES), QUERIES)
        cut = searcher.answer([Query("", 300)] * len(QUERIES), QUERIES)
        grouped = searcher.answer([Query("", 8, group_by="document")] * len(QUERIES), QUERIES)
        for whole, passing, answer in zip(plain, cut, grouped, strict=True):
            first = {int(parents[position]): int(position) for position in whole.positions[::-1]}
            heads = [first[document] for document in dict.fromkeys(parents[whole.positions].tolist())][:8]
            kept = [position for position in heads if position in passing.positions]
            assert answer.positions.tolist() == kept
            relevance = dict(zip(whole.positions.tolist(), whole.relevance.tolist(), strict=True))  # type: ignore[union-attr]
            assert answer.relevance is not None
            assert answer.relevance.tolist() == pytest.approx([relevance[position] for position in kept], abs=1e-6)
            assert answer.uncut is not None and whole.uncut is not None
            assert answer.uncut.tolist() == whole.uncut.tolist()
            assert answer.uncut_kept == whole.uncut_kept
            assert (answer.considered, answer.retrieved) == (8, None)


def test_min_results_and_filters_count_documents() -> None:
    searcher = retriever(CORPORA["few"])
    (answer,) = searcher.answer([Query("", 7, 2.0, 4, group_by="document")], QUERIES[:1])
    assert answer.below_threshold.tolist() == [True] * 4 and answer.considered == 7
    assert len(np.unique(CORPORA["few"][answer.positions])) == 4
    (answer,) = searcher.answer([Query("", 7, 2.0, 4, EVEN, all_of(OneOf.of("half", "odd")), "document")], QUERIES[:1])
    assert (answer.considered, answer.reason) == (0, "no_documents_match_filter")


def test_grouped_answers_are_calibrated_for_first() -> None:
    searcher = retriever(CORPORA["few"])
    asked = [Query("", k, group_by="document") for k in (1, 2, K)]
    assert [answer.calibrated for answer in searcher.answer(asked, QUERIES[:3])] == [True, False, False]
    assert all(answer.calibrated for answer in retriever(None).answer(asked, QUERIES[:3]))


def test_long_document_costs_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second document is the last of 3,000 passages: all are scored once, not searched for again and again."""
    calls = []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return brute_force_top_k(*arguments)

    monkeypatch.setattr(grouping, "brute_force_top_k", counted)
    retriever(CORPORA["lopsided"]).answer([Query("", 5, group_by="document")] * 3, QUERIES[:3])
    assert len(calls) <= 3


def test_grouped_results_are_not_rescored() -> None:
    searcher = retriever(CORPORA["few"])
    with pytest.raises(ValueError, match="cannot be reused"):
        searcher.rescore(Query("", K, group_by="document"), QUERIES[0], np.arange(K))


FILTERED, D, FILTERED_K = 400, 16, 5
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
    return Metadata.of(Document(str(row), "text", None, {"row": row, "odd": bool(row % 2)}) for row in range(FILTERED))


@pytest.fixture(scope="module", params=["flat", "hnsw"])
def retrievers(request: pytest.FixtureRequest, metadata: Metadata) -> dict[PolicyKind, Retriever]:
    rng = np.random.default_rng(0)
    documents = unit(rng, FILTERED)
    size = len(FEATURES)
    model = Logistic(np.zeros(size), np.ones(size), rng.normal(size=size) / 4, 0.0)
    relevance = Relevance(model, Background.of(documents, unit(rng, 50), rng.integers(1, 99, FILTERED)), FILTERED_K)
    index = build(request.param, documents)
    return {
        kind: Retriever(Directions(), index, Policy(kind, tau, FILTERED_K), relevance, metadata=metadata)
        for kind, tau in TAU.items()
    }


def same_answer(one: Answer, other: Answer) -> bool:
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
        assert same_answer(answer, retrievers[kind].search([query])[0]), query


@pytest.mark.parametrize("kind", TAU)
def test_filtered_answer_keeps_passing_results(
    retrievers: dict[PolicyKind, Retriever], metadata: Metadata, kind: PolicyKind
) -> None:
    """Each filter leaves fewer or more documents than K."""
    retriever = retrievers[kind]
    for query_filter in [query_filter for query_filter in FILTERS if query_filter]:
        mask = metadata.where(query_filter)
        for k in (1, FILTERED_K, 12):
            (whole,) = retriever.search([Query("3", k, None, k, query_filter)])
            (cut,) = retriever.search([Query("3", k, None, 0, query_filter)])
            vector = retriever.vectors(["3"])[0].astype(float)
            scores = (retriever.index.vectors[np.arange(FILTERED)].astype(float) @ vector).astype(np.float32)  # type: ignore[attr-defined]  # a FlatIndex here
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
        (answer,) = retriever.search([Query("1", FILTERED_K, None, 3, NONE_MATCH)])
        assert (len(answer.positions), answer.considered, answer.best_score) == (0, 0, None)
        assert answer.reason == "no_documents_match_filter"
        assert (len(answer.scores), len(answer.ranks), len(answer.relevance)) == (0, 0, 0)


def test_filtered_answer_below_threshold_has_reason(retrievers: dict[PolicyKind, Retriever]) -> None:
    (answer,) = retrievers["similarity"].search([Query("1", FILTERED_K, 2.0, 0, (OneOf.of("odd", True),))])
    assert (answer.reason, answer.considered) == ("all_below_threshold", FILTERED_K)
    assert answer.best_score is not None


def test_filtered_answer_is_not_calibrated(retrievers: dict[PolicyKind, Retriever]) -> None:
    retriever = retrievers["similarity"]
    for query_filter, calibrated in ((None, True), ((), True), ((OneOf.of("odd", True),), False), (NONE_MATCH, False)):
        (answer,) = retriever.search([Query("1", FILTERED_K, None, 0, query_filter)])
        assert answer.calibrated == calibrated
        assert answer.threshold == np.float32(0.3)


def test_unknown_field_is_named(retrievers: dict[PolicyKind, Retriever]) -> None:
    with pytest.raises(InputError, match="the fields are odd, row"):
        retrievers["similarity"].search([Query("1", FILTERED_K, filter=(OneOf.of("even", True),))])
