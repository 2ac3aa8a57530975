"""Documents that a caller may not see behave as if absent: never returned, counted, or processed."""

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any
from unicodedata import normalize

import numpy as np
import pytest

from taugate.errors import InputError
from taugate.policy.abstention import AnswerRule, AnswerScore
from taugate.policy.policy import Policy, StratumThresholds
from taugate.retrieval.documents.filter_schema import read_filter
from taugate.retrieval.documents.filters import Filter, OneOf, Range, all_of, both
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import Document
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.query import Answer, Query
from taugate.retrieval.retriever import Retriever
from tests.document_words import all_signals
from tests.retrieval.documents.test_filter_properties import meets

N, D, K, TAU = 240, 16, 5, np.float32(0.3)
KEYS, ASKED, PAIRS, TOGETHER = 500, 1000, 10_000, 20
TENANTS = ["a", "b", "c", "d", 1, True, "1"]
RNG = np.random.default_rng(7)


def unit(count: int) -> np.ndarray:
    vectors = RNG.standard_normal((count, D))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def pick(values: list[Any]) -> Any:
    return values[RNG.integers(len(values))]


def record(row: int) -> dict[str, Any]:
    """Values of several kinds, numbers that repeat, gaps, and a field that few have."""
    found: dict[str, Any] = {"tenant": pick([*TENANTS, None]), "level": int(RNG.integers(0, 9)), "row": row}
    if row % 3:
        found["level"] = float(RNG.integers(0, 9)) + 0.5 * (row % 2)
    return found | ({"open": bool(row % 2)} if row % 4 else {})


RECORDS = [record(row) for row in range(N)]
DOCUMENTS, VECTORS = unit(N), unit(64)
METADATA = Metadata.of(Document(str(row), "text", None, each) for row, each in enumerate(RECORDS))
INDEX = FlatIndex.build(DOCUMENTS)


def retriever(**parts: Any) -> Retriever:
    return Retriever(None, INDEX, Policy("similarity", float(TAU), K), metadata=METADATA, **parts)  # type: ignore[arg-type]


def condition(field: str) -> Any:
    if field == "level":
        low, high = sorted(RNG.integers(-1, 11, size=2).tolist())
        return pick([{"gte": low, "lte": high}, {"gt": low}, {"lt": high + 0.5}, low, [low, high, 4.5]])
    values = {"tenant": [*TENANTS, "nobody", 2], "open": [True, False, 1, "true"], "row": [*range(0, N, 40)]}[field]
    return pick([pick(values), [pick(values) for _ in range(RNG.integers(1, 4))]])


def wish(fields: list[str], most: int) -> dict[str, Any]:
    names = RNG.permutation(fields)[: RNG.integers(1, most + 1)].tolist()
    return {name: condition(name) for name in names}


def answered(queries: list[Query], rows: list[int], **parts: Any) -> list[Answer]:
    return retriever(**parts).answer(queries, VECTORS[rows])


def allowed(query_filter: dict[str, Any]) -> np.ndarray:
    return np.array([all(meets(record.get(name), asked) for name, asked in query_filter.items()) for record in RECORDS])


SCORES = (VECTORS.astype(np.float64) @ DOCUMENTS.T.astype(np.float64)).astype(np.float32)
ORDER = np.argsort(-SCORES, axis=1, kind="stable")


def brute_force(mask: np.ndarray, row: int, k: int) -> list[tuple[int, float]]:
    best = ORDER[row][mask[ORDER[row]]][:k]
    return [*zip(best.tolist(), SCORES[row, best].tolist(), strict=True)]


def test_keys_and_filters_never_leak_documents() -> None:
    keys = [wish(["tenant", "open"], 2) for _ in range(KEYS)]
    filters: list[dict[str, Any]] = [{}, *(wish(["tenant", "level", "open", "row"], 3) for _ in range(ASKED))]
    of_keys, of_filters = [allowed(key) for key in keys], [allowed(query_filter) for query_filter in filters]
    hidden = 0
    for turn in range(PAIRS // TOGETHER):
        asked = [(RNG.integers(KEYS), RNG.integers(len(filters)), RNG.integers(len(VECTORS))) for _ in range(TOGETHER)]
        queries = [
            Query(
                "", int(RNG.integers(1, 9)), None, 0, read_filter(filters[query_filter]), read_filter(keys[key]) or ()
            )
            for key, query_filter, _ in asked
        ]
        rows = [int(row) for _, _, row in asked]
        answers = answered(queries, rows)
        for query, answer, (key, query_filter, row) in zip(queries, answers, asked, strict=True):
            expected = brute_force(of_keys[key] & of_filters[query_filter], row, query.k)
            kept = [item for item in expected if item[1] >= TAU]
            assert [*zip(answer.positions.tolist(), answer.scores.tolist(), strict=True)] == kept
            assert answer.considered == len(expected)
            assert answer.best_score == (expected[0][1] if expected else None)
            none = "all_below_threshold" if expected else "no_documents_match_filter"
            assert answer.reason == (None if kept else none)
            assert (answer.calibrated, answer.uncut) == (False, None)
        if turn % 10 == 0:
            unhindered = answered([replace(query, permitted=()) for query in queries], rows)
            shown = (of_keys[key][answer.positions] for answer, (key, _, _) in zip(unhindered, asked, strict=True))
            hidden += sum(not item.all() for item in shown)
    assert hidden > PAIRS / 10 / 5, "so often would a permission that is forgotten have shown"


MERGED: list[tuple[Filter, Filter, Filter]] = [
    ((), (), ()),
    ((OneOf.of("a", 1),), (), (OneOf.of("a", 1),)),
    ((), (Range("a", gt=1),), (Range("a", gt=1),)),
    ((OneOf.of("b", 1),), (OneOf.of("a", 1),), (OneOf.of("a", 1), OneOf.of("b", 1))),
    ((OneOf.of("a", 1),), (OneOf.of("a", 1.0),), (OneOf.of("a", 1),)),
    ((OneOf.of("a", 1, 2),), (OneOf.of("a", 2),), (OneOf.of("a", 2),)),
    ((OneOf.of("a", 2),), (OneOf.of("a", 1, 2, 3),), (OneOf.of("a", 2),)),
    ((OneOf.of("a", 1),), (OneOf.of("a", True),), (OneOf.of("a", 1), OneOf.of("a", True))),
    ((OneOf.of("a", 1, 2),), (OneOf.of("a", 2, 3),), (OneOf.of("a", 1, 2), OneOf.of("a", 2, 3))),
    ((Range("a", gt=1),), (Range("a", gt=1),), (Range("a", gt=1),)),
    ((Range("a", gt=1),), (Range("a", lt=9),), (Range("a", gt=1), Range("a", lt=9))),
    ((Range("a", gt=1),), (OneOf.of("a", 5),), (Range("a", gt=1), OneOf.of("a", 5))),
]


@pytest.mark.parametrize(("one", "other", "expected"), MERGED)
def test_combining_filters_with_both(one: Filter, other: Filter, expected: Filter) -> None:
    assert both(one, other) == expected
    assert {*both(other, one)} == {*expected}


def test_permission_uses_stratum_threshold() -> None:
    policy = Policy("similarity", 0.3, K, strata=StratumThresholds("tenant", {(2, "a"): 0.2}))
    cases: list[tuple[Filter, Filter | None, float, bool]] = [
        ((OneOf.of("tenant", "a"),), None, 0.2, True),
        ((OneOf.of("tenant", "a"),), (OneOf.of("tenant", "a", "b"),), 0.2, True),
        ((OneOf.of("tenant", "a", "b"),), (OneOf.of("tenant", "a"),), 0.2, True),
        ((OneOf.of("tenant", "a", "b"),), None, 0.3, False),
        ((OneOf.of("tenant", "a"),), (Range("level", gt=0),), 0.3, False),
        ((OneOf.of("open", True),), (OneOf.of("tenant", "a"),), 0.3, False),
    ]
    for permitted, query_filter, threshold, calibrated in cases:
        query = Query("", K, None, 0, query_filter, permitted)
        (answer,) = Retriever(None, INDEX, policy, metadata=METADATA).answer([query], VECTORS[:1])  # type: ignore[arg-type]
        assert (answer.threshold, answer.calibrated) == (np.float32(threshold), calibrated)


def test_unicode_forms_hide_same_documents() -> None:
    """macOS writes "é" as two characters; a key that excludes it must exclude both forms, in names as well."""
    records = [{normalize(field, "é"): normalize(value, "ü")} for field in ("NFC", "NFD") for value in ("NFC", "NFD")]
    metadata = Metadata.of(Document(str(row), "text", None, records[row % 4]) for row in range(N))
    searched = Retriever(None, INDEX, Policy("none", None, K), metadata=metadata)  # type: ignore[arg-type]
    for form in ("NFC", "NFD"):
        name, value = normalize(form, "é"), normalize(form, "ü")
        for hides, shown in (({name: {"ne": value}}, 0), ({name: value}, K)):
            (answer,) = searched.answer([Query("", K, permitted=read_filter(hides) or ())], VECTORS[:1])
            assert len(answer.positions) == shown


def test_unfit_permission_is_refused() -> None:
    for query_filter in (
        (OneOf.of("owner", "a"),),
        (OneOf.of("level", "a"),),
        (Range("open", gt=0),),
        (OneOf.of("level", 1, "a"),),
    ):
        with pytest.raises(InputError):
            METADATA.check_kinds(query_filter)
    with pytest.raises(InputError, match="level holds numbers, but the filter compares it with texts"):
        METADATA.check_kinds((OneOf.of("level", "4"),))
    with pytest.raises(InputError, match="tenant holds booleans and numbers and texts|open holds booleans"):
        METADATA.check_kinds(all_of(OneOf.of("tenant", "nobody"), OneOf.of("open", "true")))
    METADATA.check_kinds((OneOf.of("tenant", "nobody", 7, False),))  # values that no document has yet
    with pytest.raises(InputError, match="no document has the field owner"):
        answered([Query("", K, permitted=(OneOf.of("owner", "a"),))], [0])


def test_hidden_rare_word_does_not_affect_refusal() -> None:
    """A word weighs less if any document has it, in a lexical score also a hidden one."""
    seen, question = (Range("row", gt=0),), "word0 merger"
    signals = [
        all_signals(K, DOCUMENTS, [first, *(f"word{row % 7}" for row in range(1, N))]) for first in ("", "merger")
    ]
    scores = [AnswerScore("lexical", signal.needed("lexical")) for signal in signals]
    asked = DOCUMENTS[7:8]  # whose text is word0
    top = INDEX.search(asked, K)
    without, having = (float(score.of([question], asked, top)[0]) for score in scores)
    rules = [AnswerRule(score, (without + having) / 2) for score in scores]
    by_filter, by_permission = (
        [retriever(abstention=rule).answer([query], asked)[0].reason for rule in rules]
        for query in (Query(question, K, filter=seen), Query(question, K, permitted=seen))
    )
    assert by_filter == ["unanswerable", None], "the wish of a caller who may see all"
    assert by_permission == [None, None]


def calls(work: Callable[[], object]) -> list[str]:
    """Every function of Python and of C that is called, in order."""
    seen: list[str] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            seen.append(frame.f_code.co_qualname)
        elif event == "c_call":
            seen.append(argument.__qualname__)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen


def recorded(vector: np.ndarray, query: Query, index: Any = INDEX) -> list[str]:
    relevant = Retriever(None, index, Policy("similarity", float(TAU), K), metadata=METADATA)  # type: ignore[arg-type]
    return calls(lambda: relevant.answer([query], vector[None]))


class Widening:
    """An index that looks for more until enough of what it found is permitted, as a filter after the search does."""

    def search_within(self, queries: np.ndarray, k: int, within: Any) -> Any:
        depth = k
        while True:
            found = INDEX.search(queries, depth)
            kept = np.isin(found.positions[0], within.positions)
            if kept.sum() >= min(k, len(within)):
                first = np.flatnonzero(kept)[:k]
                return type(found)(found.scores[:, first], found.positions[:, first])
            depth *= 2


@pytest.mark.parametrize("permitted", [(OneOf.of("tenant", "a"),), (Range("row", lt=N - 30),)], ids=["few", "most"])
def test_hidden_and_absent_documents_cost_same_calls(permitted: Filter) -> None:
    """However near the query is to what is hidden, what is done is the same, call by call."""
    mask = METADATA.where(permitted)
    near = DOCUMENTS[np.flatnonzero(~mask)[:40]]  # each the vector of a hidden document
    query = Query("", K, permitted=permitted)
    recorded(VECTORS[0], query)  # the index makes its codes at its first search
    once = recorded(VECTORS[0], query)
    assert all(recorded(vector, query) == once for vector in (*near, *VECTORS))
    others = [recorded(vector, query, Widening()) for vector in (*near, *VECTORS)]
    assert any(item != others[0] for item in others), "else no difference would show"


def test_hidden_and_absent_values_cost_same_calls() -> None:
    """Of 7 values in order each is looked for in 3 steps."""
    permitted = (OneOf.of("tenant", "a"),)
    assert len(METADATA.columns["tenant"].values) == len(TENANTS) == 7
    asked = [Query("", K, filter=(OneOf.of("tenant", value),), permitted=permitted) for value in ("b", "d", "bb", "zz")]
    first, *others = [recorded(VECTORS[0], query) for query in asked]
    assert all(item == first for item in others)
