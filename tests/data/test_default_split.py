"""Choice of a split if the user names none."""

from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.data.generation.generate import MAX_QUERIES, generate_crops
from taugate.data.location import default_split
from taugate.errors import InputError


def with_splits(folder: Path, *splits: str) -> str:
    (folder / "qrels").mkdir()
    for split in splits:
        (folder / "qrels" / f"{split}.tsv").touch()
    return str(folder)


@pytest.mark.parametrize(
    ("splits", "chosen"),
    [
        (["generated", "human", "test", "train"], "test"),
        (["generated", "human", "train"], "human"),
        (["generated"], "generated"),
    ],
)
def test_default_split_prefers_human_queries(tmp_path: Path, splits: list[str], chosen: str) -> None:
    messages: list[str] = []
    assert default_split(with_splits(tmp_path, *splits), messages.append) == chosen
    assert messages == []


def test_default_split_names_other_human_splits(tmp_path: Path) -> None:
    messages: list[str] = []
    assert default_split(with_splits(tmp_path, "generated", "train", "dev"), messages.append) == "generated"
    assert messages == ["calibrating on the split generated; human queries are in dev, train: choose one with --split"]


def test_default_split_without_labels_suggests_crops(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"taugate queries {tmp_path} --method crop"):
        default_split(str(tmp_path), print)


def test_default_split_without_default_names_alternatives(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--split names one of: dev, train"):
        default_split(with_splits(tmp_path, "train", "dev"), print)


def test_documents_alone_become_a_release(
    tmp_path: Path, sample: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, releases = tmp_path / "data", tmp_path / "releases"
    data.mkdir()
    (data / "corpus.jsonl").write_bytes((sample / "corpus.jsonl").read_bytes())
    calibrate = ["calibrate", str(data), "--verbose", "--releases", str(releases), "--encoder", str(encoder)]
    assert cli.main(calibrate) == 2
    assert capsys.readouterr().err.rstrip().endswith(f"taugate queries {data} --method crop")
    assert not releases.exists()
    generate_crops(data, MAX_QUERIES, 0)
    assert cli.main(calibrate) == 0
    assert '"split":"generated"' in next(releases.glob("*/manifest.json")).read_text().replace(" ", "")
