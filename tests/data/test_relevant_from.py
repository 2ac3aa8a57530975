"""The lowest grade that answers: what is below it is no answer, and still gains in NDCG."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taugate.calibration.metrics.inputs import judge_queries, ranking_outcomes
from taugate.calibration.settings import CalibrationSettings
from taugate.data.beir import Dataset, read_dataset
from taugate.data.runs.run import JudgedRun, Run
from taugate.errors import InputError
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.risk.steps import LossSteps
from taugate.retrieval.index.flat import FlatIndex

HEADER = "query-id\tcorpus-id\tscore"
GRADED = ["q1\td0\t1", "q1\td1\t3", "q1\td2\t0", "q2\td0\t1", "q3\td3\t2", "q3\td4\t1"]
NOTE = "warning: grades 1 to 3: every document of grade 1 or more counts as an answer"


def written(folder: Path, rows: list[str], header: str = HEADER, split: str = "test", **query: Any) -> Path:
    (folder / "qrels").mkdir()
    corpus = [json.dumps({"_id": f"d{row}", "text": f"text {row}"}) for row in range(6)]
    (folder / "corpus.jsonl").write_text("\n".join(corpus))
    queries = [json.dumps({"_id": f"q{row}", "text": f"question {row}", **query}) for row in (1, 2, 3)]
    (folder / "queries.jsonl").write_text("\n".join(queries))
    (folder / "qrels" / f"{split}.tsv").write_text("\n".join([header, *rows]))
    return folder


def read(folder: Path, lowest: int | None, spool: Path, split: str = "test") -> Dataset:
    spool.mkdir()
    return read_dataset(folder, split, spool, relevant_from=lowest)


def test_lower_grades_do_not_answer(tmp_path: Path) -> None:
    data = read(written(tmp_path, GRADED), 2, tmp_path / "spool")
    assert [(query.id, query.relevant, query.lesser) for query in data.answerable] == [
        ("q1", {1: 3}, {0: 1}),
        ("q3", {3: 2}, {4: 1}),
    ]
    assert [(query.id, query.judged) for query in data.unanswerable] == [("q2", (0,))]
    assert (data.relevant_from, data.notes) == (2, [])


def test_grades_above_one_are_said_without_the_option(tmp_path: Path) -> None:
    folder = written(tmp_path, GRADED)
    data = read(folder, None, tmp_path / "spool")
    assert len(data.answerable) == 3
    assert data.notes == [f"{NOTE}; --relevant-from 2 counts those of grade 2 or more"]
    assert read(folder, 1, tmp_path / "again").notes == []
    with pytest.raises(InputError, match="no query has a document with score 4 or more"):
        read(folder, 4, tmp_path / "none")


@pytest.mark.parametrize(
    ("split", "header", "rows"),
    [("generated", HEADER, ["q1\td0\t1"]), ("human", f"{HEADER}\tweight", ["q1\td0\t1\t2.5", "q2\td1\t1\t2.5"])],
)
def test_judgements_without_grades_answer(tmp_path: Path, split: str, header: str, rows: list[str]) -> None:
    data = read(written(tmp_path, rows, header, split), 2, tmp_path / "spool", split)
    assert len(data.answerable) == len(rows)


def test_unanswerable_query_may_have_lower_grades(tmp_path: Path) -> None:
    folder = written(tmp_path, [*GRADED[:1], "q1\td2\t0"], answerable=False)
    with pytest.raises(InputError, match="a document that answers it"):
        read(folder, None, tmp_path / "spool")
    with pytest.raises(InputError, match="no query has a document"):
        read(folder, 2, tmp_path / "again")


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
    graded, every = (read(folder, lowest, tmp_path / str(lowest)).answerable for lowest in (2, None))
    every = [query for query in every if query.id != "q2"]
    positions = np.array([[0, 2, 1, 3], [4, 0, 1, 2]])
    own, all_grades = (ranking_outcomes(queries, positions, 2) for queries in (graded, every))
    assert (own.accuracy.tolist(), all_grades.accuracy.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    np.testing.assert_array_equal(own.ndcg, all_grades.ndcg)
    assert own.ndcg[0] == pytest.approx((1 + 3 / 2) / (3 + 1 / np.log2(3)))


def test_lost_ndcg_agrees_with_its_steps(tmp_path: Path) -> None:
    queries = read(written(tmp_path, GRADED), 2, tmp_path / "spool").answerable
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
