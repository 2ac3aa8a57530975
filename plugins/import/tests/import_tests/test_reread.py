"""Documents that another version of Taugate reads differently, although their files have not changed, are counted."""

import json
import os
import time
from pathlib import Path

import pytest

from taugate.data.parsed import prose_document
from taugate_import import target
from taugate_import.chunker import ImportedDocument
from taugate_import.files import documents_of_files
from taugate_import.importing import ImportPlan, import_corpus
from taugate_import.target import ImportRecord, SourceQueries

SETTINGS = ImportRecord(sources=[], encoder="", chunk_tokens=None, overlap=0)


def reread(data: Path, text: str, changed_at: float = 1.0, record: ImportRecord = SETTINGS) -> int:
    """Import a file, and return how many documents this version reads differently."""
    documents = [ImportedDocument("a.txt", prose_document(text), changed_at=changed_at)]
    return import_corpus(documents, ImportPlan(data, record, None), SourceQueries()).reread


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data set made by an earlier version."""
    reread(tmp_path, "105 cycles")
    record = tmp_path / "import.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"version": "0.1"}))
    return tmp_path


def test_unchanged_file_with_other_text_is_counted(data: Path) -> None:
    assert reread(data, "10⁵ cycles") == 1
    assert reread(data, "10^5 cycles") == 0  # read by this version


def test_unchanged_file_with_same_text_is_not_counted(data: Path) -> None:
    assert reread(data, "105 cycles") == 0


def test_changed_file_is_not_counted(data: Path) -> None:
    assert reread(data, "10⁵ cycles", time.time() + 10) == 0


def test_changed_chunks_are_not_another_reading(data: Path) -> None:
    assert reread(data, "10⁵ cycles", record=SETTINGS.model_copy(update={"chunk_tokens": 64})) == 0


def test_record_without_version_is_of_another_version(data: Path) -> None:
    record = data / "import.json"
    content = json.loads(record.read_text())
    del content["version"]
    record.write_text(json.dumps(content))
    os.utime(record, (9.0, 9.0))
    assert target.time_of_last_import(data, SETTINGS) == 9


def test_document_has_time_of_its_files_last_change(tmp_path: Path) -> None:
    """Also if the file claims to be older, as copies do that keep the time of their original."""
    path = tmp_path / "a.txt"
    path.write_text("Pump")
    os.utime(path, (0, 0))
    (document,) = documents_of_files([(path, "")], lambda name: None)
    assert isinstance(document, ImportedDocument) and document.changed_at == path.stat().st_ctime > 0
