"""An explanation equals the search, to the bit, and names the first rule that drops a document."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taugate.errors import InputError
from taugate.policy.abstention import AnswerRule, AnswerScore, Signals
from taugate.policy.arrays import Float32
from taugate.policy.policy import Policy
from taugate.registry.catalog import find
from taugate.retrieval.documents.filters import Filter, OneOf, all_of
from taugate.retrieval.explanation import explain
from taugate.retrieval.index.hybrid import vector_index
from taugate.retrieval.index.top_k import DocumentSubset, TopK
from taugate.retrieval.query import Explanation, Query, UnknownDocument
from taugate.retrieval.reader import Release, load
from tests.chunked_release import write_chunked_release
from tests.retrieval.brute_force import check

QUERY = "Do I need a building permit for a garage?"


@pytest.fixture(scope="module")
def chunked(sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Release:
    return load(find(write_chunked_release(sample, encoder, tmp_path_factory.mktemp("chunked"))), 1)


@pytest.fixture(scope="module")
def whole(releases: Path) -> Release:
    return load(find(releases), 1)


def explained(release: Release, document_id: str, query: Query | None = None, **parts: Any) -> Explanation:
    return explain(replace(release.retriever, **parts), release.documents, query or Query(QUERY, 5), document_id)


def ranked(release: Release, place: int, **asked: Any) -> str:
    """The id of the passage at a place of the list, from 1."""
    (answer,) = release.retriever.search([Query(QUERY, 40, -2.0, **asked)])
    return release.documents[int(answer.positions[place - 1])].id


@pytest.mark.slow
def test_explanations_agree_with_brute_force(chunked: Release) -> None:
    rules, wrong = check(chunked, pairs=120, seed=1)
    assert not wrong
    assert {*rules} >= {"kept", "threshold", "rank", "filter"}


def test_rule_is_first_that_drops(whole: Release) -> None:
    third, ninth = ranked(whole, 3), ranked(whole, 9)
    assert explained(whole, third, policy=Policy("similarity", -1.0, 5)).rule == "kept"
    why = explained(whole, third, policy=Policy("none", None, 5)).why
    assert why.startswith("It is returned: no threshold is in force.")
    dropped = explained(whole, third, policy=Policy("similarity", 0.9, 5))
    assert (dropped.rule, dropped.kept, dropped.rank, dropped.threshold) == ("threshold", False, 3, np.float32(0.9))
    assert dropped.score is not None
    assert f"{dropped.score:.4f} is {0.9 - dropped.score:.4f} below the threshold 0.9000" in dropped.why
    asked = Query(QUERY, 5, min_results=3)
    forced = explained(whole, third, asked, policy=Policy("similarity", 0.9, 5))
    assert (forced.rule, forced.kept) == ("min_results", True)
    further = explained(whole, ninth)
    assert (further.rule, further.rank, further.ranked, further.kept) == ("rank", 9, len(whole.documents), False)
    assert "Its rank is 9, and the search considers the first 5" in further.why


def test_score_equal_to_threshold_is_kept(whole: Release) -> None:
    first = explained(whole, ranked(whole, 2), policy=Policy("none", None, 5))
    for tau, rule in (
        (first.score, "kept"),
        (float(np.nextafter(np.float32(first.score), np.float32(2))), "threshold"),
    ):
        found = explained(whole, ranked(whole, 2), policy=Policy("similarity", tau, 5))
        assert found.rule == rule
        assert ("equal to" if rule == "kept" else "e-08 below") in found.why


def test_filters_and_permissions_are_explained(whole: Release) -> None:
    document = next(document for document in whole.documents if document.metadata["category"] == "bygglov")
    others = all_of(OneOf.of("category", "rot-avdrag"))
    filtered = explained(whole, document.id, Query(QUERY, 5, filter=others))
    assert (filtered.rule, filtered.filtered, filtered.score, filtered.rank) == ("filter", True, None, None)
    assert filtered.why == "The request's filter excludes it: 'category' is 'bygglov'."
    for query_filter in (None, all_of(OneOf.of("category", "bygglov")), others):
        hidden = explained(whole, document.id, Query(QUERY, 5, filter=query_filter, permitted=others))
        assert (hidden.rule, hidden.filtered, hidden.kept) == ("key_filter", True, False)
        assert hidden.why == "The filter of the API key hides it."
        hidden_fields = (hidden.id, hidden.rank, hidden.ranked, hidden.score, hidden.relevance, hidden.compared)
        assert {*hidden_fields, hidden.threshold, hidden.truncated, hidden.parts} == {None}
    own = all_of(OneOf.of("category", "bygglov"))
    seen = explained(whole, document.id, Query(QUERY, 5, permitted=own))
    assert seen.ranked == sum(document.metadata["category"] == "bygglov" for document in whole.documents)
    with pytest.raises(InputError, match="no document has the field"):
        explained(whole, document.id, Query(QUERY, 5, filter=all_of(OneOf.of("nowhere", "x"))))


def test_parent_represents_its_passages(chunked: Release) -> None:
    passage = next(document for document in chunked.documents if document.parent and document.id.endswith("#2"))
    query = Query(passage.text, 5)
    by_parent, by_passage = (explained(chunked, name, query) for name in (passage.document_id, passage.id))
    assert by_parent == by_passage
    assert (by_parent.id, by_parent.document_id) == (passage.id, passage.parent)
    first = explained(chunked, f"{passage.parent}#1", replace(query, group_by="document"))
    assert first.rule == "chunk"
    assert repr(passage.id) in first.why


def test_unknown_document_raises(chunked: Release) -> None:
    for name in ("nowhere", "#1", "å", "a" * 3000, "\ud800"):
        with pytest.raises(UnknownDocument, match="no document with the id"):
            explained(chunked, name)


def test_every_id_is_found(chunked: Release) -> None:
    documents = [*chunked.documents]
    for position, document in enumerate(documents):
        assert chunked.documents.positions(document.id).tolist() == [position]
    for parent in {document.parent for document in documents if document.parent}:
        expected = [position for position, each in enumerate(documents) if each.parent == parent]
        assert chunked.documents.positions(parent).tolist() == expected


def test_text_beyond_window_is_truncated(whole: Release) -> None:
    words = {document.id: len(document.encoded_text.split()) for document in whole.documents}
    shortest, longest = min(words, key=words.__getitem__), max(words, key=words.__getitem__)
    assert [explained(whole, name).truncated for name in (shortest, longest)] == [False, True]


class Forgetful:
    """An index that never finds one position."""

    def __init__(self, index: Any, lost: int) -> None:
        self._index, self._lost = index, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)

    def __len__(self) -> int:
        return len(self._index)

    def search(self, queries: Float32, k: int) -> TopK:
        kept = np.arange(len(self)) != self._lost
        return self._index.search_within(queries, k, DocumentSubset(kept))


def test_missed_document_is_explained(whole: Release) -> None:
    index = vector_index(whole.retriever.index)
    dense = replace(whole, retriever=replace(whole.retriever, index=index))
    lost = ranked(dense, 2)
    found = explained(dense, lost, index=Forgetful(index, int(dense.documents.positions(lost)[0])))
    assert (found.rule, found.rank, found.kept) == ("index", 2, False)
    assert found.relevance == pytest.approx(explained(dense, lost).relevance, abs=0.05)


def test_refused_query_is_explained(whole: Release) -> None:
    rule = AnswerRule(AnswerScore("best_similarity", Signals(5)), 1.5)
    name = ranked(whole, 1)
    refused = explained(whole, name, abstention=rule, policy=Policy("similarity", -1.0, 5))
    assert (refused.rule, refused.kept) == ("unanswerable", False)
    assert "below the 1.5000 needed for an answer" in refused.why
    forced = explained(whole, name, Query(QUERY, 5, min_results=1), abstention=rule)
    assert forced.rule == "min_results" and "seems to have no answer" in forced.why
    permitted: Filter = all_of(OneOf.of("category", str(whole.documents[0].metadata["category"])))
    assert explained(whole, whole.documents[0].id, Query(QUERY, 5, permitted=permitted), abstention=rule).rule != (
        "unanswerable"
    )
