"""Releases, data sets and keys behind links, as volumes and secrets are mounted."""

from pathlib import Path

import pytest

from taugate.registry.catalog import current_id
from taugate.release.encoder import CONFIG, TOKENIZER
from taugate.retrieval.folders import EncoderFolder
from taugate.retrieval.reader import load
from taugate.service.access.authorization import _stamp
from tests.calibration.commands import Capture, small
from tests.fake_encoder import write_fake_encoder


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


def test_equal_file_of_two_encoders_is_stored_once(tmp_path: Path) -> None:
    encoder = write_fake_encoder(tmp_path / "exported", ["a text", "another one"])
    release = tmp_path / "release"
    release.mkdir()
    EncoderFolder(release / "encoder").write(encoder)
    (encoder / CONFIG).write_bytes((encoder / CONFIG).read_bytes() + b"\n")
    EncoderFolder(release / "encoder-float32").write(encoder)
    tokenizers, configs = (
        [release / name / file for name in ("encoder", "encoder-float32")] for file in (TOKENIZER, CONFIG)
    )
    assert tokenizers[0].samefile(tokenizers[1])
    assert not tokenizers[0].samefile(encoder / TOKENIZER)
    assert not configs[0].samefile(configs[1])
    assert configs[1].read_bytes() == (encoder / CONFIG).read_bytes()
