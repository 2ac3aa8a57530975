"""Judged and unjudged queries by people, read from several splits as one data set."""

import json
from pathlib import Path

import pytest

from taugate.data.beir import read_people
from taugate.errors import InputError

QUERIES = {"q1": "human", "q2": "human", "q3": "traffic", "q4": "traffic", "q5": "human", "c1": "crop", "c2": "llm"}
SPLITS = {
    "human": ["q2\td1\t1\t2", "q1\td2\t1\t6", "c1\td1\t1\t1"],
    "traffic": ["q3\td1\t1\t10", "q1\td1\t1\t10", "q4\td2\t0\t30"],
    "generated": ["c1\td1\t1\t1", "c2\td2\t1\t1"],
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    (tmp_path / "spool").mkdir()
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"_id": f"d{n}", "text": "x"}) + "\n" for n in (1, 2)))
    lines = [json.dumps({"_id": name, "text": name, "origin": origin}) for name, origin in QUERIES.items()]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
    for split, rows in SPLITS.items():
        (folder / "qrels" / f"{split}.tsv").write_text(
            "\n".join(["query-id\tcorpus-id\tscore\tweight", *rows]) + "\n", encoding="utf-8"
        )
    return folder


def test_splits_become_one_data_set(data: Path, tmp_path: Path) -> None:
    messages: list[str] = []
    results = read_people(data, ("human", "traffic"), tmp_path / "spool", messages.append)
    assert [(query.id, query.weight) for query in results.answerable] == [("q1", 1.5), ("q2", 0.5), ("q3", 1.0)]
    assert results.unanswerable == [], "users saw no answer to q4, which may have one all the same"
    assert results.answerable[0].relevant == {1: 1}, "the judgement of the first split"
    assert results.other_queries is not None
    assert results.other_queries.unjudged == ["q5"]
    assert results.other_queries.seen_only == {"q3"}
    assert [query.id for query in results.other_queries.generated] == ["c1", "c2"]
    assert messages == ["left out judged queries that were generated: 1; people phrase queries differently"]


def test_queries_judged_only_by_users_are_no_sample(data: Path, tmp_path: Path) -> None:
    results = read_people(data, ("human",), tmp_path / "spool", lambda line: None)
    assert results.other_queries is not None
    assert results.other_queries.unjudged == ["q5"]
    assert results.other_queries.seen_only == set()


def test_missing_split_is_named(data: Path, tmp_path: Path) -> None:
    (data / "qrels" / "traffic.tsv").unlink()
    with pytest.raises(InputError, match=r"traffic\.tsv: no such file; --split names one of: generated, human"):
        read_people(data, ("human", "traffic"), tmp_path / "spool", print)
