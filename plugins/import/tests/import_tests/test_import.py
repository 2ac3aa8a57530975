"""`taugate import`: files of each kind become documents, unreadable ones are reported, and changes are counted."""

import errno
import gzip
import json
import os
import resource
import shutil
import time
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from taugate.cli import main as cli
from taugate.data.parsed import UnreadableFile
from taugate_import import parse
from taugate_import.parse import IsolatedParser
from tests.storage.test_odd_volumes import remove_locks, remove_permission_bits, remove_sync_of_folders

PAGE = """<html><head><title>Pumps</title><meta property="article:published_time" content="2024-05-06T10:00"></head>
<body><nav><a href=a>Home</a></nav><ul><li><a href=a>One</a></li><li><a href=b>Two</a></li><li><a href=c>Three</a></li>
</ul><h1>Pumps</h1><p>The pump starts at <b>two</b> bars.</p><h2>Care</h2>
<table><tr><th>part</th><th>days</th></tr><tr><td>seal</td>
<td>30</td></tr></table><pre>pump --start</pre><footer>Imprint</footer><script>alert(1)</script></body></html>"""
WORD = {
    "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Override PartName="/word/document.xml" ContentType='
    '"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>',
    "_rels/.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship '
    'Id="r" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
    'Target="word/document.xml"/></Relationships>',
    "word/document.xml": '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>'
    '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Valves</w:t></w:r></w:p>'
    "<w:p><w:r><w:t>Close the valve first.</w:t></w:r></w:p></w:body></w:document>",
}


def imported(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> dict[str, Any]:
    """Run the command with --json and return what it printed."""
    assert cli.main(["import", *map(str, arguments), "--json"]) == code
    return dict(json.loads(capsys.readouterr().out))


def corpus(data: Path) -> dict[str, dict[str, Any]]:
    """Return the lines of a corpus by id."""
    return {line["_id"]: line for line in map(json.loads, (data / "corpus.jsonl").read_text().splitlines())}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one file of each kind."""
    root = tmp_path / "files"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_bytes("Größe".encode("latin-1") + b" of the pump, in the usual old encoding of texts.")
    (root / "b.md").write_text("---\ntitle: Motors\ndate: 2023-01-02\n---\n# Motors\n\nA motor drives the pump.\n")
    (root / "sub" / "c.html").write_text(PAGE)
    (root / "d.csv").write_text('id,text,price\nx1,"A seal, blue",3\nx2,A seal in red,4\n')
    (root / "e.json").write_text('[{"name": "valve", "size": 3}]')
    (root / "f.jsonl").write_text('{"_id": "k", "title": "T", "text": "Body", "metadata": {"lang": "en"}}\n')
    pyarrow.parquet.write_table(pa.table({"text": ["From a column"], "n": [1]}), root / "g.parquet")
    (root / "h.txt.gz").write_bytes(gzip.compress(b"Packed text"))
    with zipfile.ZipFile(root / "i.docx", "w") as archive:
        for name, content in WORD.items():
            archive.writestr(name, content)
    (root / "README").write_text("No suffix, but text.")
    return root


def test_files_of_each_kind_become_documents(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = imported(capsys, folder, "--to", tmp_path / "data")
    lines = corpus(tmp_path / "data")
    assert results["skipped"] == [] and results["documents"] == results["added"] == len(lines) == 11
    assert lines["a.txt"]["text"].startswith("Größe of the pump")
    assert lines["b.md"]["title"] == "Motors" and lines["b.md"]["metadata"]["created"] == "2023-01-02"
    assert lines["d.csv/x1"]["text"] == "A seal, blue" and lines["d.csv/x2"]["metadata"]["price"] == 4
    assert lines["e.json/1"]["text"] == "name: valve\nsize: 3"
    assert (lines["f.jsonl/k"]["title"], lines["f.jsonl/k"]["metadata"]["lang"]) == ("T", "en")
    assert lines["g.parquet/1"]["metadata"]["n"] == 1
    assert lines["h.txt.gz"]["text"] == "Packed text"
    assert (lines["i.docx"]["title"], lines["i.docx"]["text"]) == ("Valves", "Close the valve first.")
    assert lines["README"]["text"] == "No suffix, but text."
    page = lines["sub/c.html"]
    assert page["title"] == "Pumps" and page["metadata"]["created"] == "2024-05-06"
    assert "two** bars" in page["text"] and "| seal | 30 |" in page["text"] and "pump --start" in page["text"]
    assert not any(word in page["text"] for word in ("Home", "Three", "Imprint", "alert"))


@pytest.mark.slow
def test_repeated_import_counts_changes(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    imported(capsys, folder, "--to", data)
    before = (data / "corpus.jsonl").read_bytes()
    again = imported(capsys, folder, "--to", data)
    assert [again[name] for name in ("added", "changed", "removed")] == [0, 0, 0]
    assert (data / "corpus.jsonl").read_bytes() == before
    (folder / "README").write_text("Other text.")
    (folder / "new.txt").write_text("A new file.")
    (folder / "a.txt").unlink()
    dry = imported(capsys, folder, "--to", data, "--dry-run")
    assert (data / "corpus.jsonl").read_bytes() == before
    results = imported(capsys, folder, "--to", data)
    assert dry == results
    assert [results[name] for name in ("added", "changed", "removed")] == [1, 1, 1]


def test_long_documents_become_chunks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(f"Sentence {i} tells how the pump is cleaned." for i in range(200))
    (tmp_path / "long.txt").write_text(text)
    results = imported(capsys, tmp_path / "long.txt", "--to", tmp_path / "data", "--chunks", "128")
    lines = corpus(tmp_path / "data")
    assert results["documents"] == 1 and results["chunks"] == len(lines) > 5
    assert [*lines] == [f"long.txt#{i}" for i in range(len(lines))]
    assert all(line["parent"] == "long.txt" and line["text"] == text[slice(*line["span"])] for line in lines.values())
    whole = imported(capsys, tmp_path / "long.txt", "--to", tmp_path / "whole", "--chunks", "off")
    assert whole["chunks"] == 1 and corpus(tmp_path / "whole")["long.txt"]["text"] == text


def test_unreadable_files_reported_with_reason(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = tmp_path / "secret.txt"
    outside.write_text("never read")
    for name, content in {
        "bad.pdf": b"%PDF-1.4\nnothing",
        "bad.docx": b"PK",
        "bad.json": b"{",
        "bad.jsonl": b'{"text": "x"}\nno\nmore\n',
        "bad.parquet": b"PAR1",
        "bad.txt": bytes(range(256)),
        "bad.txt.gz": b"\x1f\x8b0",
        "empty.md": b" \n",
        "deep.html": b"<div>" * 10_000,
        "film.mp4": b"x",
    }.items():
        (folder / name).write_bytes(content)
    (folder / "link.txt").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.txt")
    os.close(os.open(os.fsencode(folder) + b"/bad\xff\nname.txt", os.O_CREAT | os.O_WRONLY))
    results = imported(capsys, folder, "--to", tmp_path / "data")
    reasons = {Path(item["path"]).name: item["reason"] for item in results["skipped"]}
    assert results["documents"] == 11
    assert reasons == {
        "bad.pdf": "is not a PDF, or is damaged",
        "bad.docx": "is not a Word file, or is damaged",
        "bad.json": "is not JSON: expecting property name enclosed in double quotes on line 1",
        "bad.jsonl": "is not JSON: expecting value on line 2",
        "bad.parquet": "is not Parquet, or is damaged",
        "bad.txt": "is not text",
        "bad.txt.gz": "is not a gzip file, or is damaged",
        "empty.md": "is empty",
        "deep.html": "is nested too deeply",
        "film.mp4": reasons["film.mp4"],
        "link.txt": "is a link that leads out of the source",
        "loop": "is a link to the source itself, which has already been read",
        "pipe.txt": "is not a regular file",
        "bad\ufffd\nname.txt": "is empty",
    }
    assert reasons["film.mp4"].startswith("is of a kind that is not read; save it as text,")
    assert "never read" not in (tmp_path / "data" / "corpus.jsonl").read_text()


def test_names_invalid_in_qrels_encoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "s"
    source.mkdir()
    for name in (b"a\tb.txt", b"c\xff.txt"):
        Path(os.fsdecode(os.fsencode(source) + b"/" + name)).write_text(f"some text of {name!r}")
    imported(capsys, source, "--to", tmp_path / "data")
    assert [*corpus(tmp_path / "data")] == ["a%09b.txt", "c%FF.txt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none", "--to", "data"], "none: no such file or folder"),
        (["empty", "--to", "data"], "holds no file"),
        (["binary", "--to", "data"], "binary/x.bin is of a kind that is not read"),
        (["files", "--to", "files/data"], "lies inside files"),
        (["files", "--to", "own"], "holds a corpus that was not imported"),
        (["files", "--to", "other"], "written by another version of taugate"),
        (["files", "--to", "data", "--chunks", "300"], "reads at most 256 tokens"),
        (["files", "--to", "data", "--chunks", "many"], "give auto, off, or a number"),
        (["files", "--to", "data", "--overlap", "200"], "give 0 to 64 tokens"),
        (["files", "--to", "files/a.txt"], "is a file; name a folder with --to"),
    ],
)
def test_bad_input_writes_nothing(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "binary", "own", "other"):
        Path(name).mkdir()
    Path("binary/x.bin").write_bytes(b"\0")
    for name in ("own", "other"):
        Path(name, "corpus.jsonl").write_text('{"_id": "1", "text": "mine"}\n')
    Path("other/import.json").write_text('{"schema_version": 9}')
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert cli.main(["import", *arguments]) == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if " is deprecated and " not in line)
    assert message in line
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_encoder_without_tokenizer_is_refused(
    folder: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    untokenized = shutil.copytree(encoder, tmp_path / "encoder", ignore=shutil.ignore_patterns("tokenizer.json"))
    assert cli.main(["import", str(folder), "--to", str(tmp_path / "data"), "--encoder", str(untokenized)]) == 2
    assert "tokenizer.json missing" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_sources_of_equal_name_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "docs").mkdir(parents=True)
        (tmp_path / name / "docs" / "x.txt").write_text("text")
    sources = [str(tmp_path / name / "docs") for name in ("a", "b")]
    assert cli.main(["import", *sources, "--to", str(tmp_path / "data")]) == 2
    assert "two sources are named 'docs'" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_memory_exhausting_file_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "s"
    source.mkdir()
    (source / "a.html").write_text("<p>hello world</p>" * (3 << 20))
    (source / "b.txt").write_text("text")
    results = imported(capsys, source, "--to", tmp_path / "data")
    assert [item["reason"] for item in results["skipped"]] == ["takes too much memory to read"]
    assert [*corpus(tmp_path / "data")] == ["b.txt"]


def test_tab_separated_file_keeps_its_commas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.tsv").write_text("text\nHello, world, one\nGood, bye, two\n")
    imported(capsys, tmp_path / "t.tsv", "--to", tmp_path / "data")
    assert [line["text"] for line in corpus(tmp_path / "data").values()] == ["Hello, world, one", "Good, bye, two"]


def test_field_of_mixed_types_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "s"
    source.mkdir()
    (source / "a.csv").write_text("text,year,size\nOne,2001,3\n")
    (source / "b.json").write_text('[{"text": "Two", "year": "2001", "size": 4}]')
    assert cli.main(["import", str(source), "--to", str(tmp_path / "data")]) == 0
    assert "fields with values of several types, of which a filter matches only one: year\n" in capsys.readouterr().err


def test_volume_without_permissions_and_locks_is_imported_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    remove_permission_bits(monkeypatch, errno.EPERM)
    remove_sync_of_folders(monkeypatch, errno.EINVAL)
    remove_locks(monkeypatch, errno.ENOLCK)
    (tmp_path / "a.txt").write_text("The pump starts.")
    imported(capsys, tmp_path / "a.txt", "--to", tmp_path / "data", "--chunks", "off")
    assert corpus(tmp_path / "data")["a.txt"]["text"] == "The pump starts."


@pytest.mark.slow
def test_parser_is_stopped_after_processor_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "_MAX_SECONDS", 1)
    (tmp_path / "long.md").write_text("[a](b) *c* <d> " * 1_000_000)
    (tmp_path / "short.md").write_text("The pump starts.")
    with IsolatedParser() as parser:
        with pytest.raises(UnreadableFile, match="takes more than 1 s of processor time to read"):
            parser.read(tmp_path / "long.md")
        assert parser.read(tmp_path / "short.md").documents[0].text == "The pump starts."


def test_time_of_earlier_files_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is raised before each file, by the time that the process has used, and never above that of the user."""
    (tmp_path / "a.txt").write_text("Pump")
    limits: list[tuple[int, int]] = []
    of_user = iter([-1, -1, 100])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: limits.append(pair))
    monkeypatch.setattr(time, "process_time", iter([0.5, 70.5, 70.5]).__next__)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (-1, next(of_user)))

    for _ in range(3):
        parse._read_or_exit(tmp_path / "a.txt", 60)
    assert limits == [(61, -1), (131, -1), (100, 100)]
