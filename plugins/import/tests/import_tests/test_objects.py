"""Documents of LangChain and LlamaIndex become a corpus without either package."""

import datetime
import hashlib
import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from import_tests.test_import import corpus
from taugate.errors import InputError
from taugate_import.objects import import_documents


@dataclass
class LangChainDocument:
    """The attributes of `langchain_core.documents.Document`."""

    page_content: str
    metadata: dict[str, Any] = field(default_factory=dict)
    id: str | None = None


@dataclass
class LlamaIndexNode:
    """The attributes of `llama_index.core.schema.TextNode`; its id is random by default."""

    text: str
    metadata: dict[str, Any] = field(default_factory=dict)
    id_: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def node_id(self) -> str:
        return self.id_

    def get_content(self) -> str:
        return self.text


def run(documents: list[object], data: Path, **options: Any) -> tuple[Any, dict[str, dict[str, Any]]]:
    result = import_documents(documents, data, **({"encoder": None, "chunks": "off"} | options))
    return result, corpus(data)


@pytest.mark.parametrize("kind", [LangChainDocument, LlamaIndexNode])
def test_object_text_id_and_metadata_kept(tmp_path: Path, kind: Any) -> None:
    metadata = {
        "title": "Pumps",
        "tags": ["a", "b"],
        "year": 2001,
        "on": datetime.date(2024, 5, 6),
        "nested": {"x": 1},
        "mixed": ["a", 1],
        "nothing": None,
        "infinite": float("inf"),
    }
    result, lines = run(
        [kind("A pump.\n\nIt pumps. ", metadata, "p-1"), kind("A valve.", {}, "v-1")], tmp_path / "data"
    )
    assert (result.documents, result.added, result.skipped) == (2, 2, [])
    assert lines["p-1"] == {
        "_id": "p-1",
        "title": "Pumps",
        "text": "A pump.\n\nIt pumps. ",
        "metadata": {"title": "Pumps", "tags": ["a", "b"], "year": 2001, "on": "2024-05-06"},
    }
    assert lines["v-1"]["text"] == "A valve."


def test_missing_id_becomes_source_or_digest(tmp_path: Path) -> None:
    def documents() -> list[object]:
        return [
            LangChainDocument("One.", {"source": "a.pdf", "page": 1}),
            LangChainDocument("Two.", {"source": "a.pdf", "page": 2}),
            LlamaIndexNode("Three.", {"file_path": "b.md"}),
            LangChainDocument("Four."),
            LangChainDocument("Four."),
        ]

    _, lines = run(documents(), tmp_path / "data")
    assert [*lines][:3] == ["a.pdf", "a.pdf/2", "b.md"]
    digest = hashlib.sha256(b"Four.").hexdigest()[:16]
    assert [*lines][3:] == [digest, f"{digest}/2"]
    changed = [*documents()[:1], LangChainDocument("Other.", {"source": "a.pdf"}), *documents()[3:]]
    result, _ = run(changed, tmp_path / "data")
    assert (result.added, result.changed, result.removed) == (0, 1, 1)


def test_random_id_is_ignored(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"Three.").hexdigest()[:16]
    assert [*run([LlamaIndexNode("Three.")], tmp_path / "data")[1]] == [digest]


def test_long_objects_are_divided(tmp_path: Path, encoder: Path) -> None:
    text = " ".join(f"Sentence {i} tells how the pump is cleaned." for i in range(300))
    result, lines = run([LangChainDocument(text, {}, "long")], tmp_path / "data", encoder=encoder, chunks="auto")
    assert result.documents == 1 and result.chunks == len(lines) > 1
    assert all(line["parent"] == "long" and line["text"] == text[slice(*line["span"])] for line in lines.values())
    assert json.loads((tmp_path / "data" / "import.json").read_text())["sources"] == []


def test_objects_without_text_skipped_or_refused(tmp_path: Path) -> None:
    result, _ = run([LangChainDocument("Text.", {}, "a"), LangChainDocument(" ", {}, "b")], tmp_path / "data")
    assert [(item.path, item.reason) for item in result.skipped] == [("b", "holds no text")]
    for documents, message in (
        ([LangChainDocument("x"), "a string"], "document 2: a str has neither page_content nor text"),
        ([LangChainDocument("x", {}, "a"), LangChainDocument("y", {}, "a")], "two documents have the id 'a'"),
        ([], "no documents; give at least one"),
        ([LangChainDocument("", {}, "a")], "the documents hold nothing that can be read: a holds no text"),
    ):
        with pytest.raises(InputError, match=message):
            run(documents, tmp_path / "none")
        assert not (tmp_path / "none").exists()
    with pytest.raises(InputError, match="chunks need a tokenizer"):
        import_documents([], tmp_path / "none", encoder=None)


def test_characters_invalid_in_utf8_replaced(tmp_path: Path) -> None:
    documents = [LangChainDocument("half \ud800 a pair", {"a\udfff": "\ud800", "tags": ["\ud800"]}, "i\ud800\td")]
    (line,) = run(documents, tmp_path / "data")[1].values()
    assert (line["_id"], line["text"]) == ("i%3F%09d", "half ? a pair")
    assert line["metadata"] == {"a?": "?", "tags": ["?"]}
