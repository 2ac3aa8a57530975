"""Releases, data sets and keys behind links, as volumes and secrets are mounted."""

from pathlib import Path

import pytest

from taugate.registry.catalog import current_id
from taugate.retrieval.release.reader import load
from taugate.service.access.authorization import _stamp
from tests.calibration.commands import Capture, small


def test_linked_directories_are_supported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data, encoder = small(tmp_path, 30)
    (data / "..1").mkdir()
    for name in ("corpus.jsonl", "queries.jsonl", "qrels"):
        (data / name).rename(data / "..1" / name)
        (data / name).symlink_to(Path("..data") / name)
    (data / "..data").symlink_to("..1")
    (tmp_path / "real").mkdir()
    releases = tmp_path / "releases"
    releases.symlink_to("real")
    code, manifest, _ = Capture(capfd)(data, releases, encoder)
    assert (code, current_id(releases)) == (0, manifest["release_id"])
    assert load(releases / manifest["release_id"]).manifest.data.documents == 60


def test_swapped_secret_is_noticed(tmp_path: Path) -> None:
    for revision in ("..1", "..2"):
        (tmp_path / revision).mkdir()
        (tmp_path / revision / "keys.json").write_text("[]")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "keys.json").symlink_to("..data/keys.json")
    before = _stamp(tmp_path / "keys.json")
    (tmp_path / "..tmp").symlink_to("..2")
    (tmp_path / "..tmp").replace(tmp_path / "..data")
    assert before is not None
    assert _stamp(tmp_path / "keys.json") != before
