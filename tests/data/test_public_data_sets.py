"""Peculiarities of public data sets, as written by BEIR, TREC and pandas."""

import gzip
from pathlib import Path

import pytest

from taugate.data.beir import Dataset, read_dataset
from taugate.data.generation.generate import sample_documents
from taugate.data.labelled_queries import is_same_text
from taugate.errors import InputError
from taugate.retrieval.documents.store import Document

HEADER = "query-id\tcorpus-id\tscore\n"
QUERIES = '{"_id": "q1", "text": "When does it start?"}\n{"_id": "q2", "text": "Which seal?"}\n'
CORPUS = '{"_id": "d1", "title": "Pumps", "text": "It starts."}\n{"_id": "d2", "title": "", "text": "A new seal."}\n'
LONG = " ".join(f"word{number}" for number in range(40))


def read(
    folder: Path, *, corpus: str = CORPUS, queries: str = QUERIES, qrels: str = "q1\td1\t1\nq2\td2\t1\n"
) -> Dataset:
    """Write a data set and read it.

    Args:
        qrels: Rows of the qrels, without the header.
    """
    data, spool = folder / "data", folder / "spool"
    (data / "qrels").mkdir(parents=True)
    spool.mkdir()
    (data / "corpus.jsonl").write_text(corpus)
    (data / "queries.jsonl").write_text(queries)
    (data / "qrels" / "test.tsv").write_text(HEADER + qrels)
    return read_dataset(data, "test", spool)


@pytest.mark.parametrize("text", ['""', '" \\n"', "null"])
def test_title_without_text_becomes_text(tmp_path: Path, text: str) -> None:
    corpus = f'{{"_id": "d1", "title": "Pumps", "text": {text}}}\n{{"_id": "d2", "text": "A new seal."}}\n'
    dataset = read(tmp_path, corpus=corpus)
    assert dataset.documents[0].encoded_text == dataset.documents[0].text == "Pumps"
    assert dataset.notes == []


def test_empty_document_left_out_and_noted(tmp_path: Path) -> None:
    corpus = '{"_id": "d0", "title": "", "text": ""}\n' + CORPUS
    dataset = read(tmp_path, corpus=corpus, qrels="q1\td1\t1\nq1\td0\t0\nq2\td2\t1\nq2\td0\t1\n")
    assert [document.id for document in dataset.documents] == ["d1", "d2"]
    assert [dict(query.relevant) for query in dataset.answerable] == [{0: 1}, {1: 1}]
    assert dataset.notes == ["documents left out, as they have neither title nor text: 1"]
    assert sample_documents(tmp_path / "data" / "corpus.jsonl", 10, 0)[1] == 2


def test_query_answered_by_empty_document_left_out(tmp_path: Path) -> None:
    dataset = read(tmp_path, corpus='{"_id": "d0", "title": "", "text": ""}\n' + CORPUS, qrels="q1\td1\t1\nq2\td0\t1\n")
    assert ([query.id for query in dataset.answerable], dataset.unanswerable, dataset.orphaned) == (["q1"], [], 1)


def test_repeated_id_after_empty_document_names_its_line(tmp_path: Path) -> None:
    corpus = '{"_id": "d0", "text": ""}\n' + CORPUS + '{"_id": "d2", "text": "Again."}\n'
    with pytest.raises(InputError, match=r"corpus.jsonl:4: \"_id\" 'd2' is already on line 3"):
        read(tmp_path, corpus=corpus)


def test_corpus_of_empty_documents_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no document"):
        read(tmp_path, corpus='{"_id": "d1", "text": ""}\n')


@pytest.mark.parametrize(
    ("score", "grade"), [("1", 1), ("1.0", 1), ("2.", 2), ("3.000", 3), ("0.0", 0), ("-1", 0), ("-2.0", 0), ("-0", 0)]
)
def test_grade_of_trec_or_pandas_read(tmp_path: Path, score: str, grade: int) -> None:
    dataset = read(tmp_path, qrels=f"q1\td1\t{score}\nq2\td2\t1\n")
    queries = {query.id: query for query in dataset.answerable + dataset.unanswerable}
    assert dict(queries["q1"].relevant) == ({0: grade} if grade else {})


@pytest.mark.parametrize("score", ["0.5", "1.5", "-", "1e0", "nan", "--1", "1.0.0", " 1", "١"])
def test_grade_not_whole_is_refused(tmp_path: Path, score: str) -> None:
    with pytest.raises(InputError, match=r"test.tsv:2: score .* is not a whole number"):
        read(tmp_path, qrels=f"q1\td1\t{score}\n")


@pytest.mark.parametrize("separator", ["\t", " "])
def test_trec_qrels_are_recognized(tmp_path: Path, separator: str) -> None:
    read(tmp_path)
    (tmp_path / "data" / "qrels" / "test.tsv").write_text(separator.join(("q1", "0", "d1", "2")) + "\n")
    (tmp_path / "again").mkdir()
    with pytest.raises(InputError, match="has TREC's four columns; keep columns 1, 3 and 4"):
        read_dataset(tmp_path / "data", "test", tmp_path / "again")


def test_packed_windows_files_are_read(tmp_path: Path) -> None:
    read(tmp_path)
    data = tmp_path / "data"
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        content = b"\xef\xbb\xbf" + (data / name).read_bytes().replace(b"\n", b"\r\n")
        (data / name).unlink()
        (data / f"{name}.gz").write_bytes(gzip.compress(content))
    (tmp_path / "again").mkdir()
    dataset = read_dataset(data, "test", tmp_path / "again")
    assert [query.id for query in dataset.answerable] == ["q1", "q2"]


def test_integer_ids_and_extra_columns_read(tmp_path: Path) -> None:
    corpus = '{"_id": 1, "text": "It starts.", "url": "x", "n": 3}\n{"_id": 2, "text": "A seal."}\n'
    queries = '{"_id": 7, "text": "When?", "metadata": {"narrative": "x", "list": [1]}}\n'
    dataset = read(tmp_path, corpus=corpus, queries=queries, qrels="7\t1\t1\n")
    assert dataset.answerable[0].relevant == {0: 1}


def own_passages(dataset: Dataset) -> dict[str, tuple[int, ...]]:
    """Return, for each query of the split, the passages that are the query itself."""
    return {query.id: query.own_passages for query in dataset.answerable + dataset.unanswerable}


def test_query_that_is_document_noted(tmp_path: Path) -> None:
    queries = '{"_id": "d1", "text": "it starts"}\n{"_id": "q2", "text": "Which seal?"}\n'
    dataset = read(tmp_path, queries=queries, qrels="d1\td2\t1\nq2\td2\t1\n")
    assert own_passages(dataset) == {"d1": (0,), "q2": ()}
    assert dataset.notes == [
        "queries that are documents of the corpus, under the same id and with the same text: 1; each is left out of "
        "its own results, as BEIR does"
    ]


def test_unanswerable_query_that_is_document_recognized(tmp_path: Path) -> None:
    queries = '{"_id": "d1", "text": "It starts."}\n{"_id": "q2", "text": "Which seal?"}\n'
    assert own_passages(read(tmp_path, queries=queries, qrels="d1\td2\t0\nq2\td2\t1\n"))["d1"] == (0,)


def test_counted_ids_leave_nothing_out(tmp_path: Path) -> None:
    corpus = '{"_id": "0", "text": "The pump starts at two bars."}\n{"_id": "1", "text": "A new seal."}\n'
    queries = '{"_id": "0", "text": "Which seal?"}\n{"_id": "1", "text": "When does it start?"}\n'
    dataset = read(tmp_path, corpus=corpus, queries=queries, qrels="0\t1\t1\n1\t0\t1\n")
    assert own_passages(dataset) == {"0": (), "1": ()}
    assert dataset.notes == []


def test_document_relevant_to_its_own_query_kept(tmp_path: Path) -> None:
    queries = '{"_id": "d1", "text": "Pumps"}\n{"_id": "q2", "text": "Which seal?"}\n'
    assert own_passages(read(tmp_path, queries=queries, qrels="d1\td1\t1\nq2\td2\t1\n")) == {"d1": (), "q2": ()}


def test_query_that_is_divided_document_has_all_chunks(tmp_path: Path) -> None:
    corpus = (
        '{"_id": "d2", "text": "A new seal."}\n'
        '{"_id": "d1#0", "text": "It starts.", "parent": "d1"}\n{"_id": "d1#1", "text": "It stops.", "parent": "d1"}\n'
    )
    queries = '{"_id": "d1", "text": "It starts. It stops."}\n{"_id": "q2", "text": "Which seal?"}\n'
    assert own_passages(read(tmp_path, corpus=corpus, queries=queries, qrels="d1\td2\t1\nq2\td2\t1\n"))["d1"] == (1, 2)


@pytest.mark.parametrize(
    ("query", "title", "text", "same"),
    [
        ("A new seal", "", "a  new seal.", True),  # Quora
        ("A new seal", "A new seal", "Abstract of the paper.", True),  # SciDocs, CQADupStack
        ("Seals A new seal", "Seals", "A new seal", True),
        (LONG.replace("word3 ", "corrected "), "Topic", LONG, True),  # ArguAna
        ("A new seal", "", "A new seal for the pump", False),
        ("seal", "", "A new seal", False),
        (LONG.replace("word", "other"), "", LONG, False),
        ("?", "", "?", False),
    ],
)
def test_query_is_document_only_with_its_text(query: str, title: str, text: str, same: bool) -> None:
    assert is_same_text(query, [Document("d", text, title or None, {}, None, None)]) is same
