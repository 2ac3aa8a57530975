"""Sections that train, or ask a language model, run from data to Markdown, on a tiny encoder and a made-up model."""

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate")

from benchmarks.adapt import paper, paper_variants, questions
from benchmarks.adapt.trials import AdaptPlan
from tests.adaptation.training.test_pretraining import encoder

pytestmark = pytest.mark.model


def write_set(folder: Path, documents: int) -> None:
    """Documents of twelve words in two sentences, each with a question of four of its words."""
    rng = np.random.default_rng(documents)
    (folder / "qrels").mkdir(parents=True)
    words = [[f"w{word}" for word in rng.permutation(40)[:12]] for _ in range(documents)]
    texts = [f"{' '.join(each[:6])} . {' '.join(each[6:])} ." for each in words]
    records = {"corpus": texts, "queries": [" ".join(each[2:6]) for each in words]}
    for name, each in records.items():
        letter = "d" if name == "corpus" else "q"
        lines = (orjson.dumps({"_id": f"{letter}{row}", "text": text}) + b"\n" for row, text in enumerate(each))
        (folder / f"{name}.jsonl").write_bytes(b"".join(lines))
    rows = [f"q{row}\td{row}\t1" for row in range(documents)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny encoder, in the place of the default one."""
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "cache"))
    encoder(tmp_path / "source").save(str(tmp_path / "tiny"), create_model_card=False)
    for module in (paper_variants, questions):
        monkeypatch.setattr(module, "DEFAULT_ENCODER", str(tmp_path / "tiny"))
    return tmp_path / "tiny"


def ask(folder: Path, *_: str) -> dict[str, Any]:
    """Write a question about three of four documents, as a language model would."""
    lines = (folder / "corpus.jsonl").read_bytes().splitlines()
    asked = [orjson.loads(line) for row, line in enumerate(lines) if row % 4]
    made = (
        orjson.dumps({"_id": f"llm{row}", "text": each["text"][:18], "origin": "llm"}) + b"\n"
        for row, each in enumerate(asked)
    )
    (folder / "queries.jsonl").write_bytes(b"".join(made))
    rows = [f"llm{row}\t{each['_id']}\t1" for row, each in enumerate(asked)]
    (folder / "qrels").mkdir()
    (folder / "qrels" / "generated.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    return {"seconds_per_query": 2.0}


def plan(folder: Path, questions: int) -> AdaptPlan:
    return AdaptPlan(
        folder, splits=1, seed=0, minutes=0, counted=0, runs=0, questions=questions, steps=2, documents=130
    )


@pytest.mark.usefixtures("base")
def test_questions_and_crops_of_the_same_documents_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_set(tmp_path / "squadshifts_reddit", 200)
    monkeypatch.setattr(questions, "generate", ask)
    text = questions.section(plan(tmp_path, 130))
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][2:]
    assert [row[0] for row in rows] == ["questions", "crops of the same documents", "all crops"]
    counts = [(int(row[1]), int(row[2])) for row in rows]
    assert counts[0] == counts[1]
    assert all(few < many for few, many in zip(counts[0], counts[2], strict=True))
    assert "130 documents of the parts to learn from and to choose by, which took 2.0 s a question" in text


@pytest.mark.usefixtures("base")
def test_too_few_questions_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_set(tmp_path / "squadshifts_reddit", 100)
    monkeypatch.setattr(questions, "generate", ask)
    monkeypatch.setattr(questions, "_FEWEST", 1000)
    assert questions.section(plan(tmp_path, 50)).startswith("Not measured: of 50 documents")


@pytest.mark.usefixtures("base")
def test_the_comparison_trains_measures_and_judges(tmp_path: Path) -> None:
    write_set(tmp_path / paper.DOMAIN, 140)
    write_set(tmp_path / paper.GENERAL, 60)
    text = paper.section(plan(tmp_path, 0))
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    encoders = ["base", "PT", "FT", "PT-FT", "FT, merged", "PT-FT, merged"]
    assert [row[0] for row in rows[2:8]] == [row[0] for row in rows[10:16]] == encoders
    assert len({tuple(row[1:]) for row in rows[2:8]}) >= 3  # two steps change little
    assert [row[0] for row in rows[18:]] == [claim[0] for claim in paper.CLAIMS]
    assert {row[-1] for row in rows[18:]} <= {"confirmed", "**refuted**", "not shown"}
    assert "PT 0 minutes" in text
    again = paper.section(plan(tmp_path, 0))
    assert "made by an earlier run" in again
    assert again.split("made by")[1].split("\n", 1)[1] == text.split("minutes, at")[1].split("\n", 1)[1]
