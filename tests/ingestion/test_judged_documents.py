"""Qrels that name a whole document of a chunked corpus, against a transcription of what that means."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taugate.calibration.metrics.clusters import clusters
from taugate.calibration.metrics.ranking import grades_of, ideal_dcg, ndcg
from taugate.errors import InputError
from taugate.ingestion.dataset.beir import Dataset, LabelledQuery, PassageIds, Query, read_dataset

CHUNKS = [("a#0", "a"), ("a#1", "a"), ("b", None), ("a#2", "a"), ("c#0", "c"), ("c#1", "c")]


def dataset(tmp_path: Path, qrels: dict[str, dict[str, int]]) -> Dataset:
    """Read a data set with three documents, two of them in chunks."""
    folder, spool = tmp_path / "data", tmp_path / "spool"
    (folder / "qrels").mkdir(parents=True)
    spool.mkdir()
    corpus = [{"_id": name, "text": name} | ({"parent": parent} if parent else {}) for name, parent in CHUNKS]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(each) + "\n" for each in corpus))
    (folder / "queries.jsonl").write_text("".join(json.dumps({"_id": each, "text": each}) + "\n" for each in qrels))
    rows = [f"{query}\t{name}\t{grade}" for query, judged in qrels.items() for name, grade in judged.items()]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(rows) + "\n")
    return read_dataset(folder, "test", spool)


def test_a_parent_stands_for_all_of_its_chunks(tmp_path: Path) -> None:
    (query,) = dataset(tmp_path, {"q": {"a": 2}}).answerable
    assert query.relevant == {0: 2, 1: 2, 3: 2}
    assert query.answers() == {0: 2}


def test_the_best_chunk_is_the_hit_and_counts_once(tmp_path: Path) -> None:
    (query,) = dataset(tmp_path, {"q": {"a": 2, "b": 1}}).answerable
    assert query.grades([4, 3, 0, 2, 1]) == [0, 2, 0, 1, 0]


def test_a_named_chunk_is_judged_alone(tmp_path: Path) -> None:
    (query,) = dataset(tmp_path, {"q": {"a#1": 1, "a#2": 1}}).answerable
    assert query.grades([0, 1, 3]) == [0, 1, 1]
    assert query.about() == {0}


def test_the_higher_grade_of_a_document_and_its_chunk_holds(tmp_path: Path) -> None:
    for number, qrels in enumerate([{"a": 1, "a#1": 3}, {"a#1": 3, "a": 1}]):
        (query,) = dataset(tmp_path / str(number), {"q": qrels}).answerable
        assert query.relevant == {0: 3, 1: 3, 3: 3}


def test_a_passage_is_meant_before_a_parent_of_its_name() -> None:
    passages = PassageIds({"x": 0, "x#1": 1})
    passages.add(1, "x")
    assert passages.label("q", Query("?"), {"x": 1}).relevant == {0: 1}


def test_an_unanswerable_query_may_be_judged_against_a_parent(tmp_path: Path) -> None:
    found = dataset(tmp_path, {"q": {"a": 0}, "r": {"a#2": 1}})
    assert found.unanswerable[0].judged == (0, 1, 3)
    assert clusters(found.answerable + found.unanswerable).tolist() == [0, 0]


def test_chunks_of_one_document_are_one_cluster(tmp_path: Path) -> None:
    found = dataset(tmp_path, {"q": {"a#0": 1}, "r": {"b": 1}, "s": {"a#2": 1}, "t": {"c": 1}, "u": {"c#1": 1}})
    assert clusters(found.answerable).tolist() == [0, 1, 0, 2, 2]


def test_an_id_of_neither_passage_nor_document_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"test\.tsv:2: document 'd' is not in corpus\.jsonl"):
        dataset(tmp_path, {"q": {"d": 1}})


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_ndcg_and_accuracy_equal_a_transcription(data: st.DataObject) -> None:
    parents = data.draw(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=2, max_size=12))
    passages = PassageIds({f"{parent}{position}": position for position, parent in enumerate(parents)})
    for position, parent in enumerate(parents):
        passages.add(position, parent)
    ids = [*passages.positions, *passages.chunks]
    judgements = data.draw(st.dictionaries(st.sampled_from(ids), st.integers(1, 3), min_size=1))
    ranking = data.draw(st.permutations(range(len(parents))))
    k = data.draw(st.integers(1, len(parents)))
    query = passages.label("q", Query("?"), judgements)
    assert query.relevant.keys() <= set(range(len(parents)))

    gained, best = _by_hand(parents, passages, judgements, ranking[:k])
    dcg = sum(grade / math.log2(rank + 2) for rank, grade in enumerate(gained))
    ideal = sum(grade / math.log2(rank + 2) for rank, grade in enumerate(sorted(best, reverse=True)[:k]))
    positions = np.array([ranking[:k]])
    grades = grades_of([query], positions)
    found = ndcg(grades, np.ones((1, k), dtype=np.bool_), np.array([ideal_dcg(query.answers().values(), k)]))
    assert found[0] == pytest.approx(dcg / ideal)
    assert bool(grades.any()) == any(gained)


def _by_hand(
    parents: list[str | None], passages: PassageIds, judgements: dict[str, int], top: list[int]
) -> tuple[list[int], list[int]]:
    """Return what each rank gains, and the grade of everything that may be found."""
    ids = list(passages.positions)
    whole = {each for each in judgements if each in passages.chunks}
    found: dict[str, int] = {}  # what can be found, by name: a document named as a whole, or a passage
    for name, grade in judgements.items():
        position = passages.positions.get(name)
        parent = name if position is None else parents[position]
        thing = parent if parent is not None and parent in whole else name
        found[thing] = max(grade, found.get(thing, 0))
    left = dict(found)
    gained = []
    for position in top:
        parent = parents[position]
        thing = parent if parent is not None and parent in whole else ids[position]
        gained.append(left.pop(thing, 0))
    return gained, list(found.values())


def test_a_query_without_chunks_needs_no_documents() -> None:
    query = LabelledQuery("q", "?", {3: 2, 5: 1})
    assert query.grades([5, 1, 3]) == [1, 0, 2]
    assert query.answers() == {3: 2, 5: 1}
    assert query.about() == {3, 5}
