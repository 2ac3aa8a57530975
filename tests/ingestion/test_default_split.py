"""Which split is calibrated on where none is named."""

from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.errors import InputError
from taugate.ingestion.dataset.location import default_split


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
def test_people_come_before_generated_queries(tmp_path: Path, splits: list[str], chosen: str) -> None:
    said: list[str] = []
    assert default_split(with_splits(tmp_path, *splits), said.append) == chosen
    assert said == []


def test_human_queries_of_other_splits_are_named(tmp_path: Path) -> None:
    said: list[str] = []
    assert default_split(with_splits(tmp_path, "generated", "train", "dev"), said.append) == "generated"
    assert said == ["calibrating on the split generated; human queries are in dev, train: --split takes them instead"]


def test_without_labels_the_way_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"taugate queries {tmp_path} --method crop"):
        default_split(str(tmp_path), print)


def test_other_splits_alone_have_to_be_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--split names one of: dev, train"):
        default_split(with_splits(tmp_path, "train", "dev"), print)


def test_from_documents_alone_to_a_release(
    tmp_path: Path, sample: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, releases = tmp_path / "data", tmp_path / "releases"
    data.mkdir()
    (data / "corpus.jsonl").write_bytes((sample / "corpus.jsonl").read_bytes())
    calibrate = ["calibrate", str(data), "--releases", str(releases), "--encoder", str(encoder)]
    assert cli.main(calibrate) == 2
    assert capsys.readouterr().err.rstrip().endswith(f"taugate queries {data} --method crop")
    assert not releases.exists()
    assert cli.main(["queries", str(data), "--method", "crop"]) == 0
    assert cli.main(calibrate) == 0
    assert '"split":"generated"' in next(releases.glob("*/manifest.json")).read_text().replace(" ", "")
