"""Files of equal content are imported once; which one is stable, and what judgements and filters need is kept."""

import io
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from taugate.cli import main as cli
from taugate.data.parsed import ParsedDocument, prose_document
from taugate.retrieval.documents.store import MetadataValue
from taugate_import.chunker import ImportedDocument
from taugate_import.files import Copies
from taugate_import.importing import ImportPlan, ImportResult, import_corpus
from taugate_import.target import ImportRecord, SourceQueries


def found(
    files: Mapping[str, str], imported: Collection[str] = (), judged: Collection[str] = ()
) -> dict[str, list[str]]:
    """Return the copies among files of one document each, given their texts by path."""
    copies = Copies(imported, set(judged))
    for path, text in files.items():
        copies.add(path, ImportedDocument(path, ParsedDocument("", "", text, ()), {"path": path}))
    return copies.found()


THREE = {"a.md": "Seal", "b.md": "Seal", "c.md": "Seal", "d.md": "Pump"}


def test_first_of_equal_files_names_others() -> None:
    assert found(THREE) == {"a.md": ["b.md", "c.md"]}


def test_file_imported_before_remains() -> None:
    assert found({"0.md": "Seal", **THREE}, imported=["b.md"]) == {"b.md": ["0.md", "a.md", "c.md"]}


@pytest.mark.parametrize("judged", ["c.md", "c.md#0", "c.md##2"])
def test_judged_file_is_not_left_out(judged: str) -> None:
    assert found(THREE, imported=["a.md"], judged=[judged]) == {"c.md": ["a.md", "b.md"]}
    assert found(THREE, judged=[judged, "b.md"]) == {"b.md": ["a.md"]}


@pytest.mark.parametrize(
    ("key", "title", "metadata"), [("1", "", {}), ("", "Seals", {}), ("", "", {"team": "a"}), ("", "", {"tags": ["a"]})]
)
def test_equal_text_with_other_metadata_is_no_copy(key: str, title: str, metadata: dict[str, MetadataValue]) -> None:
    copies = Copies((), set())
    copies.add("a.md", ImportedDocument("a.md", ParsedDocument("", "", "Seal", ())))
    copies.add("b.md", ImportedDocument("b.md", ParsedDocument(key, title, "Seal", (), metadata)))
    assert copies.found() == {}


def test_tables_are_copies_only_as_a_whole() -> None:
    rows = {"a.csv": ["x", "y"], "b.csv": ["x", "y"], "c.csv": ["x"]}
    copies, lines = Copies((), set()), []
    for path, texts in rows.items():
        for number, text in enumerate(texts):
            document = ImportedDocument(f"{path}/{number}", ParsedDocument(str(number), "", text, ()), {"path": path})
            copies.add(path, document)
            lines += document.lines(None)
    kept = {
        name: json.loads(line)["metadata"] for name, line in copies.corpus(io.BytesIO(b"".join(lines)), copies.found())
    }
    assert kept == {
        "a.csv/0": {"path": "a.csv", "also": ["b.csv"]},
        "a.csv/1": {"path": "a.csv", "also": ["b.csv"]},
        "c.csv/0": {"path": "c.csv"},
    }


def imported(data: Path, *paths: str) -> ImportResult:
    """Import files of one text."""
    documents = [ImportedDocument(path, prose_document("Replace it."), {"path": path}) for path in paths]
    record = ImportRecord(sources=[], encoder="", chunk_tokens=None, overlap=0)
    return import_corpus(documents, ImportPlan(data, record, None), SourceQueries())


def corpus(data: Path) -> dict[str, Any]:
    return {line["_id"]: line for line in map(json.loads, (data / "corpus.jsonl").read_text().splitlines())}


def test_repeated_import_of_copies_is_stable(tmp_path: Path) -> None:
    first = imported(tmp_path, "b.md", "c.md")
    assert (first.documents, first.chunks, first.copies) == (1, 1, 1)
    assert corpus(tmp_path)["b.md"]["metadata"]["also"] == ["c.md"]
    again = imported(tmp_path, "b.md", "c.md")
    assert (again.added, again.changed, again.removed) == (0, 0, 0)
    more = imported(tmp_path, "a.md", "b.md", "c.md")
    assert (more.added, more.changed, more.removed, more.copies) == (0, 1, 0, 2)
    assert corpus(tmp_path)["b.md"]["metadata"]["also"] == ["a.md", "c.md"]
    less = imported(tmp_path, "a.md", "c.md")
    assert (less.added, less.changed, less.removed) == (1, 0, 1) and [*corpus(tmp_path)] == ["a.md"]


def test_judged_copy_remains_in_corpus(tmp_path: Path) -> None:
    imported(tmp_path, "a.md")
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "When?"}\n')
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tb.md\t1\n")
    assert imported(tmp_path, "a.md", "b.md").copies == 1
    assert [*corpus(tmp_path)] == ["b.md"]


@pytest.mark.parametrize(
    ("copies", "sentence"), [(1, "1 file is a copy; "), (1600, "1,600 files are copies; "), (0, "")]
)
def test_import_says_how_many_files_are_copies(
    copies: int, sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = ImportResult(documents=1, copies=copies, reread=3)
    monkeypatch.setattr("taugate_import.importing.import_files", lambda *arguments: result)
    assert cli.main(["import", str(tmp_path), "--to", str(tmp_path / "data"), "--chunks", "off", "--json"]) == 0
    console = capsys.readouterr()
    printed = json.loads(console.out)
    assert (printed["copies"], printed["reread"]) == (copies, 3)
    said = " ".join(console.err.split())
    assert sentence in said and ("cop" in said.lower()) == bool(copies)
    assert "3 documents read differently by this version; recalibrate" in said
