"""Judgements of a data set: weights, queries without an answer, and grades of which some do not answer."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from taugate.calibration.metrics.inputs import clusters, judge_queries, ranking_outcomes
from taugate.calibration.settings import CalibrationSettings
from taugate.data.beir import Dataset, read_dataset, read_people
from taugate.data.judgements import Judgement, JudgementLine
from taugate.data.queries import DatasetQuery, QueryFile, replace_queries
from taugate.data.runs.run import JudgedRun, Run
from taugate.errors import InputError
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.risk.steps import LossSteps
from taugate.retrieval.index.flat import FlatIndex

WEIGHTED = "query-id\tcorpus-id\tscore\tweight\n"


@pytest.fixture
def weighted_data(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("".join(f'{{"_id": "d{n}", "text": "text {n}"}}\n' for n in range(3)))
    (folder / "queries.jsonl").write_text('{"_id": "q0", "text": "one", "weight": 7}\n{"_id": "q1", "text": "two"}\n')
    return folder


def write_qrels(weighted_data: Path, text: str) -> None:
    (weighted_data / "qrels" / "human.tsv").write_text(text)


def weights(weighted_data: Path, spool: Path) -> dict[str, float]:
    dataset = read_dataset(weighted_data, "human", spool)
    return {query.id: query.weight for query in (*dataset.answerable, *dataset.unanswerable)}


def test_query_weight_without_judgement_weights_is_used(weighted_data: Path, tmp_path: Path) -> None:
    write_qrels(weighted_data, "query-id\tcorpus-id\tscore\nq0\td0\t1\nq1\td1\t0\n")
    assert weights(weighted_data, tmp_path) == {"q0": 7.0, "q1": 1.0}


def test_query_weight_is_smallest_relevant(weighted_data: Path, tmp_path: Path) -> None:
    write_qrels(weighted_data, f"{WEIGHTED}q0\td0\t0\t1\nq0\td1\t1\t5\nq0\td2\t2\t2.5\nq1\td1\t0\t4\n")
    assert weights(weighted_data, tmp_path) == {"q0": 2.5, "q1": 4.0}


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "", "two"])
def test_judgement_weight_not_positive_refused(weighted_data: Path, tmp_path: Path, weight: str) -> None:
    write_qrels(weighted_data, f"{WEIGHTED}q0\td0\t1\t{weight}\n")
    with pytest.raises(InputError, match=r"human\.tsv:2: weight .* is not a number above 0; give the inverse"):
        read_dataset(weighted_data, "human", tmp_path)


@pytest.mark.parametrize("weight", ["0", "true", '"2"', "null", "1e999"])
def test_query_weight_not_positive_refused(weighted_data: Path, tmp_path: Path, weight: str) -> None:
    (weighted_data / "queries.jsonl").write_text(f'{{"_id": "q0", "text": "one", "weight": {weight}}}\n')
    write_qrels(weighted_data, "query-id\tcorpus-id\tscore\nq0\td0\t1\n")
    with pytest.raises(InputError, match=r"queries\.jsonl:1: "):
        read_dataset(weighted_data, "human", tmp_path)


def test_weights_survive_further_judgements(weighted_data: Path) -> None:
    write_qrels(weighted_data, f"{WEIGHTED}q0\td0\t1\t5.0\n")
    added = {"n": DatasetQuery("new", "traffic")}
    replace_queries(
        weighted_data, "human", QueryFile.read(weighted_data), added, [JudgementLine("n", "d2", Judgement(1))]
    )
    assert (weighted_data / "qrels" / "human.tsv").read_text() == f"{WEIGHTED}q0\td0\t1\t5.0\nn\td2\t1\t1.0\n"
    assert (weighted_data / "queries.jsonl").read_text().splitlines()[
        2
    ] == '{"_id":"n","text":"new","origin":"traffic"}'


def test_query_judged_in_another_split_kept(weighted_data: Path) -> None:
    write_qrels(weighted_data, "query-id\tcorpus-id\tscore\nq0\td0\t1\n")
    before = QueryFile.read(weighted_data)
    replace_queries(weighted_data, "generated", before, {}, [JudgementLine("q1", "d2", Judgement(1))], removed=["q0"])
    assert QueryFile.read(weighted_data).texts() == {"q0": "one", "q1": "two"}
    replace_queries(weighted_data, "human", before, {}, [], removed=["q0"])
    assert QueryFile.read(weighted_data).texts() == {"q1": "two"}


QUERIES = [
    {"_id": "q1", "text": "how soft is concrete"},
    {"_id": "q2", "text": "who won the cup", "answerable": False},
    {"_id": "q3", "text": "who won the league"},
    {"_id": "q4", "text": "Who won  the cup", "answerable": False},
]
ROWS = ["q1\td1\t1"]


@pytest.fixture
def unanswerable_data(tmp_path: Path) -> Path:
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


def test_query_called_unanswerable_needs_no_row(unanswerable_data: Path) -> None:
    dataset = read(unanswerable_data)
    assert [query.id for query in dataset.answerable] == ["q1"]
    assert [(query.id, query.relevant, query.judged) for query in dataset.unanswerable] == [
        ("q2", {}, ()),
        ("q4", {}, ()),
    ]


def test_row_without_document_is_unanswerable(unanswerable_data: Path) -> None:
    write(unanswerable_data, QUERIES, [*ROWS, "q3\t-\t0"])
    assert names(read(unanswerable_data)) == ["q2", "q3", "q4"]


def test_rows_with_and_without_document_agree(unanswerable_data: Path) -> None:
    write(unanswerable_data, QUERIES, [*ROWS, "q3\t-\t0", "q3\td2\t0", "q2\td1\t0"])
    assert [(query.id, query.judged) for query in read(unanswerable_data).unanswerable] == [
        ("q2", (0,)),
        ("q3", (1,)),
        ("q4", ()),
    ]


def test_query_judged_in_another_split_is_not_in_this_one(unanswerable_data: Path) -> None:
    write(unanswerable_data, QUERIES, ["q1\td2\t1", "q2\t-\t0"], "train")
    assert names(read(unanswerable_data)) == ["q4"]
    assert names(read(unanswerable_data, "train")) == ["q2", "q4"]


def test_weight_of_row_without_document_counts(unanswerable_data: Path) -> None:
    (unanswerable_data / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\tweight\nq1\td1\t1\t2\nq3\t-\t0\t5\n"
    )
    assert [(query.id, query.weight) for query in read(unanswerable_data).unanswerable] == [
        ("q2", 1.0),
        ("q3", 5.0),
        ("q4", 1.0),
    ]


def test_document_with_the_id_dash_is_a_document(unanswerable_data: Path) -> None:
    with (unanswerable_data / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "-", "text": "a dash"}\n')
    write(unanswerable_data, QUERIES, [*ROWS, "q3\t-\t1"])
    assert [query.relevant for query in read(unanswerable_data).answerable] == [{0: 1}, {2: 1}]


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
def test_contradiction_names_file_and_line(unanswerable_data: Path, rows: list[str], message: str) -> None:
    write(unanswerable_data, QUERIES, [*ROWS, *rows])
    with pytest.raises(InputError, match=message):
        read(unanswerable_data)


def test_answerable_other_than_boolean_is_refused(unanswerable_data: Path) -> None:
    write(unanswerable_data, [*QUERIES, {"_id": "q5", "text": "why", "answerable": "no"}], ROWS)
    with pytest.raises(InputError, match=r"queries\.jsonl:5: \"answerable\" 'no' is not true or false; correct it"):
        read(unanswerable_data)


def test_equal_texts_without_document_share_a_cluster(unanswerable_data: Path) -> None:
    write(unanswerable_data, QUERIES, [*ROWS, "q3\t-\t0"])
    dataset = read(unanswerable_data)
    assert clusters(dataset.answerable + dataset.unanswerable).tolist() == [0, 1, 2, 1]


def test_labels_of_people_include_unlisted_unanswerable_queries(unanswerable_data: Path, tmp_path: Path) -> None:
    write(unanswerable_data, QUERIES, ROWS, "human")
    (tmp_path / "spool").mkdir()
    write(unanswerable_data, QUERIES, ["q1\td1\t1", "q4\t-\t0"])
    dataset = read_people(unanswerable_data, ["human"], tmp_path / "spool", lambda line: None)
    assert names(dataset) == ["q2"]
    assert dataset.other_queries is not None
    assert dataset.other_queries.unjudged == ["who won the league", "Who won  the cup"]


GRADED_HEADER = "query-id\tcorpus-id\tscore"
GRADED = ["q1\td0\t1", "q1\td1\t3", "q1\td2\t0", "q2\td0\t1", "q3\td3\t2", "q3\td4\t1"]
NOTE = "warning: grades 1 to 3: every document of grade 1 or more counts as an answer"


def written(folder: Path, rows: list[str], header: str = GRADED_HEADER, split: str = "test", **query: Any) -> Path:
    (folder / "qrels").mkdir()
    corpus = [json.dumps({"_id": f"d{row}", "text": f"text {row}"}) for row in range(6)]
    (folder / "corpus.jsonl").write_text("\n".join(corpus))
    queries = [json.dumps({"_id": f"q{row}", "text": f"question {row}", **query}) for row in (1, 2, 3)]
    (folder / "queries.jsonl").write_text("\n".join(queries))
    (folder / "qrels" / f"{split}.tsv").write_text("\n".join([header, *rows]))
    return folder


def read_graded(folder: Path, lowest: int | None, spool: Path, split: str = "test") -> Dataset:
    spool.mkdir()
    return read_dataset(folder, split, spool, relevant_from=lowest)


def test_lower_grades_do_not_answer(tmp_path: Path) -> None:
    data = read_graded(written(tmp_path, GRADED), 2, tmp_path / "spool")
    assert [(query.id, query.relevant, query.lesser) for query in data.answerable] == [
        ("q1", {1: 3}, {0: 1}),
        ("q3", {3: 2}, {4: 1}),
    ]
    assert [(query.id, query.judged) for query in data.unanswerable] == [("q2", (0,))]
    assert (data.relevant_from, data.notes) == (2, [])


def test_grades_above_one_are_said_without_the_option(tmp_path: Path) -> None:
    folder = written(tmp_path, GRADED)
    data = read_graded(folder, None, tmp_path / "spool")
    assert len(data.answerable) == 3
    assert data.notes == [f"{NOTE}; --relevant-from 2 counts those of grade 2 or more"]
    assert read_graded(folder, 1, tmp_path / "again").notes == []
    with pytest.raises(InputError, match="no query has a document with score 4 or more"):
        read_graded(folder, 4, tmp_path / "none")


@pytest.mark.parametrize(
    ("split", "header", "rows"),
    [
        ("generated", GRADED_HEADER, ["q1\td0\t1"]),
        ("human", f"{GRADED_HEADER}\tweight", ["q1\td0\t1\t2.5", "q2\td1\t1\t2.5"]),
    ],
)
def test_judgements_without_grades_answer(tmp_path: Path, split: str, header: str, rows: list[str]) -> None:
    data = read_graded(written(tmp_path, rows, header, split), 2, tmp_path / "spool", split)
    assert len(data.answerable) == len(rows)


def test_unanswerable_query_may_have_lower_grades(tmp_path: Path) -> None:
    folder = written(tmp_path, [*GRADED[:1], "q1\td2\t0"], answerable=False)
    with pytest.raises(InputError, match="a document that answers it"):
        read_graded(folder, None, tmp_path / "spool")
    with pytest.raises(InputError, match="no query has a document"):
        read_graded(folder, 2, tmp_path / "again")


def test_run_is_joined_with_grades_that_answer(tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text(
        "".join(f"q{q} Q0 d{d} {d + 1} {1 - d / 9} t\n" for q in (1, 2, 3) for d in range(5))
    )
    (tmp_path / "qrels.txt").write_text("\n".join(row.replace("\t", " 0 ", 1).replace("\t", " ") for row in GRADED))
    run = Run.read(tmp_path / "run.txt")
    joined, sentences = JudgedRun.read(run, tmp_path / "qrels.txt", 3, 2)
    assert [(query.id, query.relevant, query.lesser) for query in joined.answerable] == [
        ("q1", {1: 3}, {0: 1}),
        ("q3", {3: 2}, {4: 1}),
    ]
    assert ([query.id for query in joined.unanswerable], sentences) == (["q2"], [])
    assert JudgedRun.read(run, tmp_path / "qrels.txt", 3)[1][0].startswith(NOTE)


def test_ndcg_keeps_gains_of_lower_grades(tmp_path: Path) -> None:
    folder = written(tmp_path, GRADED)
    graded, every = (read_graded(folder, lowest, tmp_path / str(lowest)).answerable for lowest in (2, None))
    every = [query for query in every if query.id != "q2"]
    positions = np.array([[0, 2, 1, 3], [4, 0, 1, 2]])
    own, all_grades = (ranking_outcomes(queries, positions, 2) for queries in (graded, every))
    assert (own.accuracy.tolist(), all_grades.accuracy.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    np.testing.assert_array_equal(own.ndcg, all_grades.ndcg)
    assert own.ndcg[0] == pytest.approx((1 + 3 / 2) / (3 + 1 / np.log2(3)))


def test_lost_ndcg_agrees_with_its_steps(tmp_path: Path) -> None:
    queries = read_graded(written(tmp_path, GRADED), 2, tmp_path / "spool").answerable
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((8, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    judged = judge_queries(queries, vectors[6:], FlatIndex.build(vectors[:6]), 5)
    steps = LossSteps.of_ndcg(judged, judged.top.scores, SamplingUnits.from_clusters(np.arange(2)))
    for tau in np.unique(judged.top.scores):
        kept = judged.top.scores >= tau
        assert steps.at(np.array([tau])) == pytest.approx(judged.lost("ndcg", kept).sum())


def test_grade_below_one_is_refused() -> None:
    with pytest.raises(InputError, match="--relevant-from 0: give the lowest grade"):
        CalibrationSettings(relevant_from=0)
