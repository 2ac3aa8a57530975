"""The parts of a corpus share neither a document nor a query."""

import numpy as np
import pytest

from taugate.adaptation.parts import TRAIN, UNSEEN, VALIDATION, CorpusParts
from taugate.ingestion.dataset.beir import LabelledQuery


def asking(*documents: tuple[int, ...]) -> list[LabelledQuery]:
    return [LabelledQuery(f"q{number}", "text", dict.fromkeys(each, 1)) for number, each in enumerate(documents)]


EACH = asking(*((position,) for position in range(200)))


def test_one_split_for_both_is_divided_by_its_queries() -> None:
    parts = CorpusParts.divide(200, None, EACH, EACH, seed=0)
    assert [len(parts.queries(part, EACH)) for part in (TRAIN, VALIDATION, UNSEEN)] == [100, 30, 70]


def test_the_seed_decides() -> None:
    first, again, other = (CorpusParts.divide(200, None, EACH, EACH, seed).part for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_chunks_of_a_document_and_answers_of_a_query_stay_together() -> None:
    parents = (np.arange(200) // 4 * 4).astype(np.int32)
    queries = asking(*((4 * number, 4 * number + 4) for number in range(0, 48, 2)))
    part = CorpusParts.divide(200, parents, queries, queries, seed=0).part
    assert np.array_equal(part, part[parents])
    assert all(len(set(part[list(query.relevant)])) == 1 for query in queries)
    assert set(part) == {TRAIN, VALIDATION, UNSEEN}


def test_documents_that_one_split_alone_asks_for_are_not_wasted_on_the_other() -> None:
    parts = CorpusParts.divide(200, None, EACH[:100], EACH[100:], seed=0)
    assert set(parts.part[:100]) == {TRAIN, VALIDATION}
    assert set(parts.part[100:]) == {UNSEEN}


@pytest.mark.parametrize("labelled", [40, 200])
def test_without_training_queries_labelled_documents_are_unseen_first(labelled: int) -> None:
    parts = CorpusParts.divide(200, None, [], EACH[:labelled], seed=0)
    assert len(parts.passages(UNSEEN)) == 70
    assert len(parts.passages(VALIDATION)) == 30
    assert len(parts.queries(UNSEEN, EACH[:labelled])) == min(labelled, 70)
