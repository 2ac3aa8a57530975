"""The parts of a corpus share neither a document nor a query."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taugate.data.labelled_queries import LabelledQuery
from taugate_adapt.pairs import TRAIN, UNSEEN, VALIDATION, CorpusParts


def asking(*documents: tuple[int, ...]) -> list[LabelledQuery]:
    return [LabelledQuery(f"q{number}", "text", dict.fromkeys(item, 1)) for number, item in enumerate(documents)]


EACH = asking(*((position,) for position in range(200)))


def test_shared_split_is_divided_by_queries() -> None:
    parts = CorpusParts.divide(200, None, EACH, EACH, seed=0)
    assert [len(parts.queries(part, EACH)) for part in (TRAIN, VALIDATION, UNSEEN)] == [100, 30, 70]


def test_parts_depend_on_seed() -> None:
    first, again, other = (CorpusParts.divide(200, None, EACH, EACH, seed).part for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_chunks_and_answers_stay_together() -> None:
    parents = (np.arange(200) // 4 * 4).astype(np.int32)
    queries = asking(*((4 * number, 4 * number + 4) for number in range(0, 48, 2)))
    part = CorpusParts.divide(200, parents, queries, queries, seed=0).part
    assert np.array_equal(part, part[parents])
    assert all(len(set(part[list(query.relevant)])) == 1 for query in queries)
    assert set(part) == {TRAIN, VALIDATION, UNSEEN}


def test_separate_splits_use_separate_documents() -> None:
    parts = CorpusParts.divide(200, None, EACH[:100], EACH[100:], seed=0)
    assert set(parts.part[:100]) == {TRAIN, VALIDATION}
    assert set(parts.part[100:]) == {UNSEEN}


@pytest.mark.parametrize("labelled", [40, 200])
def test_labelled_documents_are_unseen_first(labelled: int) -> None:
    parts = CorpusParts.divide(200, None, [], EACH[:labelled], seed=0)
    assert len(parts.passages(UNSEEN)) == 70
    assert len(parts.passages(VALIDATION)) == 30
    assert len(parts.queries(UNSEEN, EACH[:labelled])) == min(labelled, 70)


@st.composite
def corpora(draw: st.DrawFn) -> tuple[int, np.ndarray | None, list[LabelledQuery], list[LabelledQuery]]:
    """A corpus in chunks or not, with queries of one split or of two, some of which have several answers."""
    passages = draw(st.integers(3, 60))
    parents = None
    if draw(st.booleans()):
        starts = sorted({0, *draw(st.sets(st.integers(0, passages - 1), max_size=passages))})
        firsts = np.array(starts)[np.searchsorted(starts, np.arange(passages), side="right") - 1]
        parents = firsts.astype(np.int32)
    documents = range(passages) if parents is None else sorted(set(parents.tolist()))
    answers = st.lists(st.sampled_from(documents), min_size=1, max_size=3, unique=True)
    evaluation = asking(*map(tuple, draw(st.lists(answers, min_size=1, max_size=30))))
    same = draw(st.booleans())
    train = evaluation if same else asking(*map(tuple, draw(st.lists(answers, max_size=30))))
    return passages, parents, train, evaluation


@given(corpora(), st.integers(0, 1000))
def test_parts_divide_no_document(
    corpus: tuple[int, np.ndarray | None, list[LabelledQuery], list[LabelledQuery]], seed: int
) -> None:
    passages, parents, train, evaluation = corpus
    parts = CorpusParts.divide(passages, parents, train, evaluation, seed)
    assert parts.part.shape == (passages,)
    assert set(parts.part.tolist()) <= {TRAIN, VALIDATION, UNSEEN}
    if parents is not None:
        assert np.array_equal(parts.part, parts.part[parents]), "all chunks of a document are in one part"
    for query in [*train, *evaluation]:
        assert len(set(parts.part[list(query.relevant)].tolist())) == 1, "and so are all answers of a query"
    documents = [
        {document for query in parts.queries(part, queries) for document in query.relevant}
        for part, queries in ((TRAIN, train), (VALIDATION, train), (UNSEEN, evaluation))
    ]
    assert not (documents[0] & documents[1] or documents[0] & documents[2] or documents[1] & documents[2])
    counted = [len(parts.queries(part, train)) for part in (TRAIN, VALIDATION, UNSEEN)]
    assert sum(counted) == len(train), "no query is lost"
