"""Weights of sampled queries: in queries.jsonl, and in the judgements of a split, which take precedence."""

from pathlib import Path

import pytest

from taugate.data.beir import read_dataset
from taugate.data.judgements import Judgement, JudgementLine
from taugate.data.queries import DatasetQuery, QueryFile, replace_queries
from taugate.errors import InputError

WEIGHTED = "query-id\tcorpus-id\tscore\tweight\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("".join(f'{{"_id": "d{n}", "text": "text {n}"}}\n' for n in range(3)))
    (folder / "queries.jsonl").write_text('{"_id": "q0", "text": "one", "weight": 7}\n{"_id": "q1", "text": "two"}\n')
    return folder


def write_qrels(data: Path, text: str) -> None:
    (data / "qrels" / "human.tsv").write_text(text)


def weights(data: Path, spool: Path) -> dict[str, float]:
    dataset = read_dataset(data, "human", spool)
    return {query.id: query.weight for query in (*dataset.answerable, *dataset.unanswerable)}


def test_query_weight_without_judgement_weights_is_used(data: Path, tmp_path: Path) -> None:
    write_qrels(data, "query-id\tcorpus-id\tscore\nq0\td0\t1\nq1\td1\t0\n")
    assert weights(data, tmp_path) == {"q0": 7.0, "q1": 1.0}


def test_query_weight_is_smallest_relevant(data: Path, tmp_path: Path) -> None:
    write_qrels(data, f"{WEIGHTED}q0\td0\t0\t1\nq0\td1\t1\t5\nq0\td2\t2\t2.5\nq1\td1\t0\t4\n")
    assert weights(data, tmp_path) == {"q0": 2.5, "q1": 4.0}


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "", "two"])
def test_judgement_weight_not_positive_refused(data: Path, tmp_path: Path, weight: str) -> None:
    write_qrels(data, f"{WEIGHTED}q0\td0\t1\t{weight}\n")
    with pytest.raises(InputError, match=r"human\.tsv:2: weight .* is not a number above 0; give the inverse"):
        read_dataset(data, "human", tmp_path)


@pytest.mark.parametrize("weight", ["0", "true", '"2"', "null", "1e999"])
def test_query_weight_not_positive_refused(data: Path, tmp_path: Path, weight: str) -> None:
    (data / "queries.jsonl").write_text(f'{{"_id": "q0", "text": "one", "weight": {weight}}}\n')
    write_qrels(data, "query-id\tcorpus-id\tscore\nq0\td0\t1\n")
    with pytest.raises(InputError, match=r"queries\.jsonl:1: "):
        read_dataset(data, "human", tmp_path)


def test_weights_survive_further_judgements(data: Path) -> None:
    write_qrels(data, f"{WEIGHTED}q0\td0\t1\t5.0\n")
    added = {"n": DatasetQuery("new", "traffic")}
    replace_queries(data, "human", QueryFile.read(data), added, [JudgementLine("n", "d2", Judgement(1))])
    assert (data / "qrels" / "human.tsv").read_text() == f"{WEIGHTED}q0\td0\t1\t5.0\nn\td2\t1\t1.0\n"
    assert (data / "queries.jsonl").read_text().splitlines()[2] == '{"_id":"n","text":"new","origin":"traffic"}'


def test_query_judged_in_another_split_kept(data: Path) -> None:
    write_qrels(data, "query-id\tcorpus-id\tscore\nq0\td0\t1\n")
    before = QueryFile.read(data)
    replace_queries(data, "generated", before, {}, [JudgementLine("q1", "d2", Judgement(1))], removed=["q0"])
    assert QueryFile.read(data).texts() == {"q0": "one", "q1": "two"}
    replace_queries(data, "human", before, {}, [], removed=["q0"])
    assert QueryFile.read(data).texts() == {"q1": "two"}
