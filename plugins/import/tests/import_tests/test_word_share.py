"""Words that are missing in the documents of a file are counted, reported, and an error under --strict."""

import json
from pathlib import Path
from typing import Any

import pytest

from taugate.cli import main as cli
from taugate.data.parsed import prose_document
from taugate_import.parse import IsolatedParser, ReadFile
from taugate_import.word_share import count_words, share_kept


def test_share_kept_counts_repeated_words() -> None:
    assert share_kept("pump pump valve seal", [prose_document("pump valve")]) == 0.5


def test_share_kept_without_words_is_one() -> None:
    assert share_kept("– … –", [prose_document("")]) == 1


def test_share_kept_counts_titles_keys_and_metadata() -> None:
    document = prose_document("starts", title="The pump")
    assert share_kept("The pump starts", [document]) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Pump PUMP ﬁne", {"pump": 2, "fine": 1}),
        ("snake_case a-b 3,5", {"snake": 1, "case": 1, "a": 1, "b": 1, "3": 1, "5": 1}),
        ("ปั๊ม", {"ป": 1, "ม": 1}),
        ("水泵 starts", {"水": 1, "泵": 1, "starts": 1}),
        ("1.5E3 2e-7", {"15": 1, "2e": 1, "7": 1}),
        ("0.12345678901234567890", {"12345678901234568": 1}),
        ("がガ", {"が": 1, "ガ": 1}),
    ],
)
def test_count_words_depends_on_script(text: str, words: dict[str, int]) -> None:
    assert {word: count for word, count in count_words([text]).items() if word.isalnum()} == words


@pytest.fixture
def lossy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of two files, of which the parser loses half of one."""
    read = IsolatedParser.read

    def lose(parser: IsolatedParser, path: Path) -> ReadFile:
        content = read(parser, path)
        return ReadFile(content.documents, 0.509, ("has no title",)) if path.name == "half.txt" else content

    monkeypatch.setattr(IsolatedParser, "read", lose)
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "half.txt").write_text("The pump starts.")
    (folder / "whole.txt").write_text("The valve opens.")
    return folder


def run(*arguments: object) -> int:
    return cli.main(["import", *map(str, arguments), "--chunks", "off"])


def test_import_reports_share_of_lost_words(lossy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lossy, "--to", tmp_path / "data", "--json") == 0
    console = capsys.readouterr()
    result: dict[str, Any] = json.loads(console.out)
    path = str(lossy / "half.txt")
    assert result["words"] == {path: 0.509}
    assert result["notes"] == [{"path": path, "note": "has no title"}]
    assert f"words lost: {path} keeps 50 % of its words" in console.err
    assert f"note: {path} has no title" in console.err


def test_strict_import_with_lost_words_writes_nothing(
    lossy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(lossy, "--to", tmp_path / "data", "--strict") == 2
    assert "half.txt keeps 50 % of its words; convert it to text, or import without --strict" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_strict_import_of_complete_files_succeeds(lossy: Path, tmp_path: Path) -> None:
    assert run(lossy / "whole.txt", "--to", tmp_path / "data", "--strict") == 0
