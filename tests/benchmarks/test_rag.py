"""How the questions of docs/benchmarks/rag.md are divided, and which answers count as declined."""

from pathlib import Path

import orjson
import pytest

from benchmarks.rag.halves import OFF_TOPIC, SET, SPLIT, Halves
from benchmarks.rag.model import declines
from taugate.ingestion.dataset.beir import read_dataset


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / SET / "qrels").mkdir(parents=True)
    (tmp_path / OFF_TOPIC).mkdir()
    corpus = [{"_id": f"p{i}", "text": f"paragraph {i}"} for i in range(8)]
    queries = [{"_id": f"q{i}", "text": f"question {i}?"} for i in range(32)]
    (tmp_path / SET / "corpus.jsonl").write_bytes(b"\n".join(map(orjson.dumps, corpus)))
    (tmp_path / SET / "queries.jsonl").write_bytes(b"\n".join(map(orjson.dumps, queries)))
    lines = [f"q{i}\tp{i % 8}\t{int(i < 16)}" for i in range(32)]
    (tmp_path / SET / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]))
    (tmp_path / OFF_TOPIC / "queries.jsonl").write_bytes(orjson.dumps({"_id": "o", "text": "a loan?"}))
    return tmp_path


def test_no_question_is_about_a_paragraph_that_calibrates(data: Path) -> None:
    halves = Halves.of(data, seed=0)
    calibrating, asked = ({paragraph for _, paragraph, _ in part} for part in (halves.calibrating, halves.asked))
    assert not calibrating & asked
    assert len(calibrating) == len(asked) == 4
    assert halves == Halves.of(data, seed=0)
    assert halves != Halves.of(data, seed=1)


def test_the_half_that_calibrates_is_a_data_set(data: Path, tmp_path: Path) -> None:
    halves = Halves.of(data, seed=0)
    halves.write(tmp_path / "half")
    (tmp_path / "spool").mkdir()
    read = read_dataset(tmp_path / "half", SPLIT, tmp_path / "spool")
    assert (len(read.documents), len(read.answerable), len(read.unanswerable)) == (8, 8, 8)


def test_questions_are_of_the_other_half(data: Path) -> None:
    halves = Halves.of(data, seed=0)
    questions = halves.questions(5, seed=0)
    assert {kind: len(each) for kind, each in questions.items()} == {"answerable": 5, "unanswerable": 5, "off topic": 1}
    paragraphs = {paragraph for _, paragraph, _ in halves.asked}
    assert {each.relevant for each in questions["answerable"]} <= paragraphs
    assert all(each.relevant is None for each in questions["unanswerable"])


@pytest.mark.parametrize(
    ("answer", "declined"),
    [
        ("", True),
        ("I don't know.", True),
        ("The passages do not answer the question.", True),
        ("The price is not mentioned in the passages.", True),
        ("There is no information about that.", True),
        ("The seller, for two years.", False),
        ("It is known as the film industry.", False),
        ("No.", False),
    ],
)
def test_a_model_declines_in_many_words(answer: str, declined: bool) -> None:
    assert declines(answer) is declined
