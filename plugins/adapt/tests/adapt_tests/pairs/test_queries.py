"""Where training queries come from, and what the record says of them."""

import json
from pathlib import Path

import pytest

from taugate.data.beir import Dataset, read_dataset
from taugate.data.generation.generate import FILE, generate_crops, read_accounting
from taugate.data.judgements import HEADER
from taugate.errors import InputError
from taugate_adapt.pairs import AdaptationQueries


def dataset(folder: Path, origins: list[str], split: str = "test") -> Dataset:
    """A document of twelve words for each query, which asks for it by half of them."""
    data = folder / "data"
    (data / "qrels").mkdir(parents=True)
    texts = [" ".join(f"word{row}x{place}" for place in range(12)) for row in range(len(origins))]
    lines = {
        "corpus.jsonl": [{"_id": f"d{row}", "text": text} for row, text in enumerate([*texts, "short"])],
        "queries.jsonl": [
            {"_id": f"q{row}", "text": text[: len(text) // 2], "origin": origin}
            for row, (text, origin) in enumerate(zip(texts, origins, strict=True))
        ],
    }
    for name, records in lines.items():
        (data / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    rows = ["query-id\tcorpus-id\tscore", *(f"q{row}\td{row}\t1" for row in range(len(origins)))]
    (data / "qrels" / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    (folder / "spool").mkdir()
    return read_dataset(data, split, folder / "spool")


def test_few_labels_are_filled_with_crops(tmp_path: Path) -> None:
    data = dataset(tmp_path, ["human"] * 200)
    queries = AdaptationQueries.collect(data, data, seed=0)
    record = queries.record
    assert record.source == "labels and crops"
    assert record.origins["human"] == 100
    assert record.origins["crop"] == len(queries.train) - 100 > 50
    assert {query.origin for query in [*queries.validation, *queries.unseen]} == {"human"}
    learned = {document for query in queries.train for document in query.relevant}
    held_back = {document for query in [*queries.validation, *queries.unseen] for document in query.relevant}
    assert not learned & held_back


def test_many_labels_need_no_crops(tmp_path: Path) -> None:
    data = dataset(tmp_path, ["human"] * 520)
    record = AdaptationQueries.collect(data, data, seed=0).record
    assert (record.source, record.origins, record.lost) == ("labels", {"human": 260}, None)


def test_generated_queries_decide_without_human(tmp_path: Path) -> None:
    data = dataset(tmp_path, ["llm", "crop"] * 100)
    queries = AdaptationQueries.collect(data, data, 0, {"round_trip": 7})
    assert queries.evidence == "generated"
    assert queries.record.source == "generated"
    assert sum(queries.record.origins.values()) == 100
    assert set(queries.record.origins) == {"crop", "llm"}
    assert queries.record.lost == {"round_trip": 7}


def test_crops_count_short_documents(tmp_path: Path) -> None:
    data = dataset(tmp_path, ["human"] * 200)
    record = AdaptationQueries.collect(data, None, seed=0).record
    assert (record.source, record.split) == ("crops", None)
    assert set(record.lost or {}) == {"empty"}


def test_crops_have_question_length(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "qrels").mkdir(parents=True)
    rows = range(200)
    text = " ".join(f"word{place}" for place in range(400))
    for name, records in {
        "corpus.jsonl": [{"_id": f"d{row}", "text": text} for row in rows],
        "queries.jsonl": [{"_id": f"q{row}", "text": "word7"} for row in rows],
    }.items():
        (data / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    (data / "qrels" / "test.tsv").write_text("\n".join([HEADER, *(f"q{row}\td{row}\t1" for row in rows)]) + "\n")
    (tmp_path / "spool").mkdir()
    queries = AdaptationQueries.collect(read_dataset(data, "test", tmp_path / "spool"), None, seed=0)
    lengths = [len(query.text.split()) for query in [*queries.train, *queries.validation]]
    assert max(lengths) == 20
    assert sum(lengths) / len(lengths) == pytest.approx(12.5 * 0.9, abs=1.5)


def test_crops_write_an_account(tmp_path: Path) -> None:
    dataset(tmp_path, ["human"] * 3)
    generate_crops(tmp_path / "data", 10, 0)
    account = read_accounting(tmp_path / "data")["crop"]
    assert (account.kept, account.lost["empty"], account.model) == (3, 1, None)


def test_damaged_account_is_refused(tmp_path: Path) -> None:
    assert read_accounting(tmp_path) == {}
    (tmp_path / FILE).write_text("[]")
    with pytest.raises(InputError, match=r"generated\.json: not the account that taugate queries wrote; remove it"):
        read_accounting(tmp_path)
