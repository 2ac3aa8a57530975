"""Runs and their qrels are read, and every fault is named with its line."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from taugate.data.runs.run import JudgedRun, Run
from taugate.errors import InputError

TREC = ["q1 Q0 d1 1 0.9 bm25", "q1 Q0 d2 2 0.5 bm25", "q2 Q0 d3 1 0.7 bm25", "q2 Q0 d1 2 0.7 bm25"]
QRELS = ["query-id\tcorpus-id\tscore", "q1\td2\t1", "q2\td9\t0"]


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def json_line(*scores: float, query: str = "q1", **more: object) -> str:
    results = [{"id": f"d{place}", "score": score, **more} for place, score in enumerate(scores)]
    return json.dumps({"query_id": query, "results": results})


def test_trec_run_is_read_with_its_tag_and_scores(tmp_path: Path) -> None:
    run = Run.read(written(tmp_path / "run.txt", TREC))
    assert (run.name, [*run.queries], [*run.numbers]) == ("bm25", ["q1", "q2"], ["d1", "d2", "d3"])
    np.testing.assert_array_equal(run.queries["q2"].scores, np.array([0.7, 0.7], dtype=np.float32))
    assert run.queries["q2"].documents.tolist() == [2, 0]


def test_json_run_is_read_with_texts_and_component_scores(tmp_path: Path) -> None:
    first = {"id": 7, "score": 0.9, "scores": {"bm25": 3, "dense": None}}
    record = {"query_id": "q1", "query": "why", "results": [first, {"id": "b", "score": 0.1, "scores": {"dense": 0.2}}]}
    run = Run.read(written(tmp_path / "hybrid.jsonl", [json.dumps(record)]))
    query = run.queries["q1"]
    assert (run.name, query.text, [*run.numbers]) == ("hybrid", "why", ["7", "b"])
    np.testing.assert_array_equal(query.components["bm25"], np.array([3, np.nan], dtype=np.float32))
    np.testing.assert_array_equal(query.components["dense"], np.array([np.nan, 0.2], dtype=np.float32))


def test_packed_run_equals_the_plain_one(tmp_path: Path) -> None:
    plain = Run.read(written(tmp_path / "run.txt", TREC))
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress("\n".join(TREC).encode()))
    packed = Run.read(tmp_path / "packed.txt")
    assert [*packed.numbers] == [*plain.numbers]
    assert [query.scores.tolist() for query in packed.queries.values()] == [
        query.scores.tolist() for query in plain.queries.values()
    ]


def test_distances_are_compared_as_negative_numbers(tmp_path: Path) -> None:
    run = Run.read(written(tmp_path / "run.jsonl", [json_line(0.1, 0.4)]), "distance")
    np.testing.assert_array_equal(run.queries["q1"].scores, np.array([-0.1, -0.4], dtype=np.float32))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["q1 Q0 d1 1 0.5 a", "q1 Q0 d2 2 0.9 a"], ":2: score 0.9 after 0.5; list results best first"),
        (["q1 Q0 d1 2 0.5 a", "q1 Q0 d2 1 0.4 a"], ":2: rank 1 after 2; list results best first"),
        (["q1 Q0 d1 1 0.5 a", "q1 Q0 d1 2 0.4 a"], ":2: document 'd1' twice for one query"),
        (["q1 Q0 d1 1 nan a"], ":1: score 'nan' is not a finite number"),
        (["q1 Q0 d1 1 1e39 a"], ":1: score '1e39' is not a finite number"),
        (["q1 Q0 d1 one 1 a"], ":1: rank 'one' is not a whole number"),
        (["q1 d1 1"], ":1: 3 fields, not 6"),
        ([json_line(0.1), json_line(0.1)], ":2: query 'q1' is already on line 1"),
        ([json_line(0.1, 0.2)], ":1: score 0.2 after 0.1; list results best first; for distances"),
        (['{"results": []}'], ':1: no "query_id"'),
        (['{"query_id": "q"}'], ':1: no "results", a list of results'),
        (['{"query_id": "q", "results": [{"score": 1}]}'], ":1: a result without an id"),
        (['{"query_id": "q", "results": [{"id": "d", "score": true}]}'], ":1: score 'True' is not a finite number"),
        ([json_line(0.1, scores={"bm25": "x"})], ":1: score 'bm25' 'x' is not a finite number"),
        ([json_line(0.1, scores=[1])], ':1: "scores" is not an object'),
    ],
)
def test_invalid_run_is_refused_with_its_line(tmp_path: Path, lines: list[str], message: str) -> None:
    path = written(tmp_path / "run", lines)
    with pytest.raises(InputError) as refused:
        Run.read(path)
    assert str(refused.value).startswith(f"{path}{message}")


def test_falling_distances_are_refused_in_their_own_sign(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r":1: score 0\.1 after 0\.4; list distances in rising order"):
        Run.read(written(tmp_path / "run.jsonl", [json_line(0.4, 0.1)]), "distance")


@pytest.mark.parametrize("trec", [False, True], ids=["BEIR", "TREC"])
def test_qrels_of_both_formats_give_the_same_queries(tmp_path: Path, trec: bool) -> None:
    lines = ["q1 0 d2 1", "q2 0 d9 0"] if trec else QRELS
    run, left_out = JudgedRun.read(Run.read(written(tmp_path / "run", TREC)), written(tmp_path / "test.tsv", lines), 2)
    assert [query.id for query in run.answerable] == ["q1"]
    assert [query.id for query in run.unanswerable] == ["q2"]
    assert run.answerable[0].relevant == {run.run.numbers["d2"]: 1}
    assert (run.split, run.depth, run.judged_share(2), left_out) == ("test", 2, 0.25, [])


def test_queries_without_results_or_judgements_are_left_out_and_counted(tmp_path: Path) -> None:
    qrels = written(tmp_path / "test.tsv", [*QRELS[:2], "q3\td1\t1", "q4\td1\t1"])
    run, left_out = JudgedRun.read(Run.read(written(tmp_path / "run", TREC)), qrels, 2)
    assert [query.id for query in run.answerable + run.unanswerable] == ["q1"]
    assert [sentence.rsplit(": ", 1)[1] for sentence in left_out] == ["1", "2"]


@pytest.mark.parametrize(
    ("k", "qrels", "message"),
    [
        (3, QRELS, "run: has at most 2 results per query, and K is 3; write the first 3 results of every query"),
        (2, ["query-id\tcorpus-id\tscore", "q2\td9\t0"], "no query of "),
        (2, ["query-id\tcorpus-id\tscore", "q1\td2\t1", "q1\td2\t1"], "test.tsv:3: 'q1' and 'd2' are judged twice"),
        (2, ["q1 d2"], "test.tsv:1: 2 fields, not 4; write TREC's query"),
        (2, ["query-id\tcorpus-id\tscore\tweight", "q1\td2\t1\t2.5"], "test.tsv:1: the queries have weights"),
    ],
)
def test_qrels_that_do_not_fit_the_run_are_refused(tmp_path: Path, k: int, qrels: list[str], message: str) -> None:
    run = Run.read(written(tmp_path / "run", TREC))
    with pytest.raises(InputError) as refused:
        JudgedRun.read(run, written(tmp_path / "test.tsv", qrels), k)
    assert message in str(refused.value)


def test_query_with_fewer_results_is_refused_with_its_line(tmp_path: Path) -> None:
    run = Run.read(written(tmp_path / "run", TREC[:3]))
    with pytest.raises(InputError, match=r"run:3: query 'q2' has 1 results, and 1 of 2 queries have fewer than K = 2"):
        JudgedRun.read(run, written(tmp_path / "test.tsv", QRELS), 2)
