"""Documents by position, from two files that belong together."""

from pathlib import Path

import pytest

from taugate.errors import ReleaseError
from taugate.release.layout import OFFSETS, TEXTS
from taugate.retrieval.documents.store import Document, DocumentStore, DocumentWriter

DOCUMENTS = [
    Document("a", "plain text"),
    Document("b", 'line\nbreaks \u2028 and "quotes" åäö 🙂', "A title", {"year": 1973, "open": True, "score": 0.1}),
    Document("c", "x" * 100_000, None, {"none": None}),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    writer = DocumentWriter(tmp_path)
    for document in DOCUMENTS:
        writer.append(document)
    writer.close()
    return tmp_path


def test_stored_documents_are_read_back(folder: Path) -> None:
    store = DocumentStore(folder)
    assert len(store) == 3
    assert list(store) == DOCUMENTS
    assert store[1:] == DOCUMENTS[1:]
    assert [store[position] for position in (2, 0)] == [DOCUMENTS[2], DOCUMENTS[0]]


@pytest.mark.parametrize("position", [-1, 3])
def test_position_outside_store_raises(folder: Path, position: int) -> None:
    with pytest.raises(IndexError):
        DocumentStore(folder)[position]


def test_encoded_text_joins_title_and_text() -> None:
    assert Document("a", "text", "title").encoded_text == "title text"
    assert Document("a", "text").encoded_text == "text"


@pytest.mark.parametrize("name", [TEXTS, OFFSETS])
def test_mismatched_store_files_are_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes((folder / name).read_bytes()[:-1])
    with pytest.raises(ReleaseError, match=name):
        DocumentStore(folder)


def test_texts_stay_on_disk(folder: Path) -> None:
    store = DocumentStore(folder)
    assert TEXTS in Path("/proc/self/maps").read_text(encoding="utf-8")
    assert store[0].id == "a"
