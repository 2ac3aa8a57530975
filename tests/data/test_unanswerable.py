"""Unanswerable queries without a document: how they are read, in which splits they are, and what contradicts them."""

from pathlib import Path

import orjson
import pytest

from taugate.calibration.metrics.inputs import clusters
from taugate.data.beir import Dataset, read_dataset, read_people
from taugate.errors import InputError

QUERIES = [
    {"_id": "q1", "text": "how soft is concrete"},
    {"_id": "q2", "text": "who won the cup", "answerable": False},
    {"_id": "q3", "text": "who won the league"},
    {"_id": "q4", "text": "Who won  the cup", "answerable": False},
]
ROWS = ["q1\td1\t1"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return data_set(tmp_path / "masonry", QUERIES, ROWS)


def data_set(folder: Path, queries: list[dict[str, object]], rows: list[str]) -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": "soft concrete"}\n{"_id": "d2", "text": "bricks"}\n')
    write(folder, queries, rows)
    return folder


def write(folder: Path, queries: list[dict[str, object]], rows: list[str], split: str = "test") -> None:
    (folder / "queries.jsonl").write_bytes(b"".join(orjson.dumps(query) + b"\n" for query in queries))
    (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")


def read(folder: Path, split: str = "test") -> Dataset:
    spool = folder.parent / f"spool-{len(list(folder.parent.iterdir()))}"
    spool.mkdir()
    return read_dataset(folder, split, spool)


def names(dataset: Dataset) -> list[str]:
    return [query.id for query in dataset.unanswerable]


def test_query_called_unanswerable_needs_no_row(data: Path) -> None:
    dataset = read(data)
    assert [query.id for query in dataset.answerable] == ["q1"]
    assert [(query.id, query.relevant, query.judged) for query in dataset.unanswerable] == [
        ("q2", {}, ()),
        ("q4", {}, ()),
    ]


def test_row_without_document_is_unanswerable(data: Path) -> None:
    write(data, QUERIES, [*ROWS, "q3\t-\t0"])
    assert names(read(data)) == ["q2", "q3", "q4"]


def test_rows_with_and_without_document_agree(data: Path) -> None:
    write(data, QUERIES, [*ROWS, "q3\t-\t0", "q3\td2\t0", "q2\td1\t0"])
    assert [(query.id, query.judged) for query in read(data).unanswerable] == [("q2", (0,)), ("q3", (1,)), ("q4", ())]


def test_query_judged_in_another_split_is_not_in_this_one(data: Path) -> None:
    write(data, QUERIES, ["q1\td2\t1", "q2\t-\t0"], "train")
    assert names(read(data)) == ["q4"]
    assert names(read(data, "train")) == ["q2", "q4"]


def test_weight_of_row_without_document_counts(data: Path) -> None:
    (data / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\tweight\nq1\td1\t1\t2\nq3\t-\t0\t5\n")
    assert [(query.id, query.weight) for query in read(data).unanswerable] == [("q2", 1.0), ("q3", 5.0), ("q4", 1.0)]


def test_document_with_the_id_dash_is_a_document(data: Path) -> None:
    with (data / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "-", "text": "a dash"}\n')
    write(data, QUERIES, [*ROWS, "q3\t-\t1"])
    assert [query.relevant for query in read(data).answerable] == [{0: 1}, {2: 1}]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            ["q2\td1\t1"],
            r"test\.tsv:3: query 'q2' has \"answerable\": false in queries\.jsonl, .*; correct one of the two",
        ),
        (["q3\t-\t0", "q3\td1\t1"], r"test\.tsv:4: query 'q3' has a document that answers it, and a line with '-'"),
        (["q3\td1\t1", "q3\t-\t0"], r"test\.tsv:4: query 'q3' has a document that answers it, and a line with '-'"),
        (["q3\t-\t1"], r"test\.tsv:3: '-' stands for no document, so its score is 0"),
        (["q3\t-\t0", "q3\t-\t0"], r"test\.tsv:4: 'q3' and '-' are judged twice"),
    ],
)
def test_contradiction_names_file_and_line(data: Path, rows: list[str], message: str) -> None:
    write(data, QUERIES, [*ROWS, *rows])
    with pytest.raises(InputError, match=message):
        read(data)


def test_answerable_other_than_boolean_is_refused(data: Path) -> None:
    write(data, [*QUERIES, {"_id": "q5", "text": "why", "answerable": "no"}], ROWS)
    with pytest.raises(InputError, match=r"queries\.jsonl:5: \"answerable\" 'no' is not true or false; correct it"):
        read(data)


def test_equal_texts_without_document_share_a_cluster(data: Path) -> None:
    write(data, QUERIES, [*ROWS, "q3\t-\t0"])
    dataset = read(data)
    assert clusters(dataset.answerable + dataset.unanswerable).tolist() == [0, 1, 2, 1]


def test_labels_of_people_include_unlisted_unanswerable_queries(data: Path, tmp_path: Path) -> None:
    write(data, QUERIES, ROWS, "human")
    (tmp_path / "spool").mkdir()
    write(data, QUERIES, ["q1\td1\t1", "q4\t-\t0"])
    dataset = read_people(data, ["human"], tmp_path / "spool", lambda line: None)
    assert names(dataset) == ["q2"]
    assert dataset.other_queries is not None
    assert dataset.other_queries.unjudged == ["who won the league", "Who won  the cup"]
