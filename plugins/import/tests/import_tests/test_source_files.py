"""Files of a folder and their names: links, odd names and odd times."""

import json
import os
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import pytest

from taugate.data.corpus import read_corpus
from taugate.data.judgements import CorpusIds
from taugate_import.files import Skipped, SourceFile, _day_modified, document_id, documents_of_files, find_files

from .test_import import corpus, imported


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An empty folder to import."""
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


def names(source: Path) -> list[str]:
    """Return the names of the files that are read."""
    return [results.name for results in find_files(source, "") if isinstance(results, SourceFile)]


def reasons(source: Path) -> dict[str, str]:
    """Return the reasons why other files are not read, by their path below the source."""
    return {
        str(Path(results.path).relative_to(source)): results.reason
        for results in find_files(source, "")
        if isinstance(results, Skipped)
    }


def mount_config_map(folder: Path, revision: str, texts: dict[str, str]) -> None:
    """Fill a folder as Kubernetes does: NAME is a link to ..data/NAME, and ..data is swapped in one step."""
    for name, text in texts.items():
        path = folder / revision / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        link = folder / Path(name).parts[0]
        if not link.is_symlink():
            link.symlink_to(Path("..data") / link.name)
    (folder / "..data_tmp").symlink_to(revision)
    (folder / "..data_tmp").replace(folder / "..data")


def test_mounted_config_map_read_once(source: Path) -> None:
    mount_config_map(source, "..2026_11_25_03_00_00.1", {"pumps.md": "The pump starts.", "more/seals.md": "A seal."})
    assert names(source) == ["more/seals.md", "pumps.md"]
    assert set(reasons(source)) == {"..data", "..2026_11_25_03_00_00.1"}


def test_swapped_config_map_keeps_ids(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mount_config_map(source, "..1", {"pumps.md": "The pump starts."})
    imported(capsys, source, "--to", tmp_path / "data")
    mount_config_map(source, "..2", {"pumps.md": "The pump stops."})
    results = imported(capsys, source, "--to", tmp_path / "data")
    assert [results[key] for key in ("documents", "changed", "added", "removed")] == [1, 1, 0, 0]
    assert corpus(tmp_path / "data")["pumps.md"]["text"] == "The pump stops."


def test_mounted_data_set_is_recognized(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mount_config_map(source, "..1", {"corpus.jsonl": '{"_id": "a", "text": "The pump starts."}\n'})
    imported(capsys, source, "--to", tmp_path / "data")
    assert list(corpus(tmp_path / "data")) == ["a"]


def test_link_beside_its_file_reported(source: Path) -> None:
    (source / "b.md").write_text("The pump starts.")
    (source / "a.md").symlink_to("b.md")
    (source / "again.md").symlink_to("a.md")
    assert names(source) == ["b.md"]
    assert reasons(source) == {
        "a.md": "is a link to b.md, which has already been read",
        "again.md": "is a link to b.md, which has already been read",
    }


def test_link_cycles_end(source: Path) -> None:
    (source / "one" / "two").mkdir(parents=True)
    (source / "one" / "a.md").write_text("The pump starts.")
    (source / "one" / "two" / "up").symlink_to(source / "one")
    (source / "root").symlink_to(source)
    (source / "x.md").symlink_to("y.md")
    (source / "y.md").symlink_to("x.md")
    assert names(source) == ["one/a.md"]
    assert reasons(source) == {
        "one/two/up": "is a link to one, which has already been read",
        "root": "is a link to the source itself, which has already been read",
        "x.md": "is a link that leads nowhere",
        "y.md": "is a link that leads nowhere",
    }


def test_link_to_hidden_folder_is_followed(source: Path) -> None:
    (source / ".v2" / "deep").mkdir(parents=True)
    (source / ".v2" / "deep" / "a.md").write_text("The pump starts.")
    (source / ".v2" / "b.md").write_text("A seal leaks.")
    (source / ".v2" / "c.md").symlink_to("b.md")
    (source / "latest").symlink_to(".v2")
    (source / "older").symlink_to(".v2/deep")
    assert sorted(names(source)) == ["latest/b.md", "latest/deep/a.md"]
    assert reasons(source)["older"] == "is a link to .v2/deep, which has already been read"


@pytest.mark.parametrize("to_folder", [False, True])
def test_link_out_of_source_is_not_followed(source: Path, tmp_path: Path, to_folder: bool) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("never read")
    (source / "link.md").symlink_to(outside if to_folder else outside / "secret.md")
    assert names(source) == []
    assert reasons(source) == {"link.md": "is a link that leads out of the source"}


def test_linked_source_is_read(source: Path, tmp_path: Path) -> None:
    (source / "a.md").write_text("The pump starts.")
    (tmp_path / "link").symlink_to(source)
    assert names(tmp_path / "link") == ["a.md"]


@pytest.mark.parametrize("seconds", [-1, -11_644_473_600, 253_402_300_800, 2**40])
def test_file_of_odd_time_is_imported(source: Path, seconds: int) -> None:
    path = source / "a.txt"
    path.write_text("The pump starts.")
    try:
        os.utime(path, (seconds, seconds))
    except OSError:
        pytest.skip("this file system has no such time")
    (results,) = documents_of_files([(source, "")], lambda name: None)
    assert not isinstance(results, Skipped)


@pytest.mark.parametrize("seconds", [1e30, -1e30, 253_402_300_800.0, float("nan")])
def test_invalid_modification_time_left_out(source: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(Path, "stat", lambda path: SimpleNamespace(st_mtime=seconds))
    assert _day_modified(source / "a.txt") == {}


def test_unicode_forms_of_name_are_one_document(source: Path) -> None:
    (source / unicodedata.normalize("NFD", "Größe.txt")).write_text("The pump starts.")
    assert names(source) == [unicodedata.normalize("NFC", "Größe.txt")]


def test_files_differing_in_unicode_form_are_two_documents(source: Path) -> None:
    forms = [unicodedata.normalize(form, "é/é.txt") for form in ("NFC", "NFD")]
    for name in forms:
        (source / name).parent.mkdir()
        (source / name).write_text(f"Text of {name!a}")
    assert sorted(names(source)) == sorted(forms)


@pytest.mark.parametrize(("before", "after"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_repeated_import_in_other_unicode_form_changes_nothing(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str, after: str
) -> None:
    (source / unicodedata.normalize(before, "Größe.txt")).write_text("The pump starts.")
    imported(capsys, source, "--to", tmp_path / "data")
    old = source / unicodedata.normalize(before, "Größe.txt")
    old.rename(source / unicodedata.normalize(after, "Größe.txt"))
    results = imported(capsys, source, "--to", tmp_path / "data")
    assert [results[key] for key in ("added", "changed", "removed")] == [0, 0, 0]


def test_earlier_ids_in_other_unicode_form_kept(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "Größe.txt").write_text("The pump starts.")
    data = tmp_path / "data"
    imported(capsys, source, "--to", data)
    decomposed = unicodedata.normalize("NFD", "Größe.txt")
    lines = (data / "corpus.jsonl").read_text().replace(unicodedata.normalize("NFC", "Größe.txt"), decomposed)
    (data / "corpus.jsonl").write_text(lines)
    results = imported(capsys, source, "--to", data)
    assert [results[key] for key in ("added", "removed")] == [0, 0]
    assert list(corpus(data)) == [decomposed]


LONG = "\n\n".join(
    f"Sentence {n} says that the pump of hall {n} starts at {n} bars and stops later." for n in range(60)
)


@pytest.mark.parametrize("lines", [("manual", "manual#0", "manual#1"), ("manual#0", "manual", "manual#1")])
def test_documents_named_like_chunks_keep_their_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: tuple[str, ...]
) -> None:
    source = tmp_path / "set.jsonl"
    texts = {"manual": LONG, "manual#0": "The first appendix.", "manual#1": "The second appendix."}
    source.write_text("".join(f'{{"_id": "{name}", "text": {json.dumps(texts[name])}}}\n' for name in lines))
    results = imported(capsys, source, "--to", tmp_path / "data", "--chunks", "64")
    written = (tmp_path / "data" / "corpus.jsonl").read_text().splitlines()
    assert results["documents"] == 3
    assert len(corpus(tmp_path / "data")) == len(written) == results["chunks"]
    assert {"The first appendix.", "The second appendix."} <= {
        line["text"] for line in corpus(tmp_path / "data").values()
    }


def test_judged_document_named_like_chunk_keeps_its_id(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "qrels").mkdir()
    (source / "corpus.jsonl").write_text(
        f'{{"_id": "manual", "text": {json.dumps(LONG)}}}\n{{"_id": "manual#0", "text": "The appendix."}}\n'
    )
    (source / "queries.jsonl").write_text('{"_id": "q", "text": "What is at the end?"}\n')
    (source / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tmanual#0\t1\n")
    imported(capsys, source, "--to", tmp_path / "data", "--chunks", "64")
    lines = corpus(tmp_path / "data")
    assert lines["manual#0"]["text"] == "The appendix."
    assert lines["manual##0"]["parent"] == "manual"


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        (" a.txt", " a.txt"),
        ("   ", "%20%20%20"),
        ("a\nb.txt", "a%0Ab.txt"),
        ('it\'s "a" \\ b.txt', 'it\'s "a" \\ b.txt'),
        ("x" * 240 + ".txt", "x" * 240 + ".txt"),
    ],
)
@pytest.mark.slow
def test_odd_name_becomes_valid_id(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, identifier: str
) -> None:
    assert document_id(name) == identifier
    (source / name).write_text("The pump starts.")
    imported(capsys, source, "--to", tmp_path / "data")
    assert [document.id for document in read_corpus(tmp_path / "data" / "corpus.jsonl", CorpusIds())] == [identifier]
