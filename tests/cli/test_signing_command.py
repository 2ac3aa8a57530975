"""`taugate release sign`, `calibrate` with TAUGATE_SIGNING_KEY, and what is not promoted where keys are trusted."""

import shutil
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.registry.catalog import current_id, find, release_ids
from taugate.release.layout import SIGNATURE
from taugate.release.verify import TrustedKeys, verify
from tests.keys import write_keys


def test_signed_release_verifies_and_promotes(
    releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(releases, tmp_path / "releases")
    private, public = write_keys(tmp_path)
    name = str(current_id(copy))
    asked = ["--releases", str(copy), name]
    assert cli.main(["release", "verify", *asked, "--trusted-keys", str(public)]) == 1
    assert "not signed" in capfd.readouterr().err
    monkeypatch.setenv("TAUGATE_TRUSTED_KEYS", str(public))
    assert cli.main(["release", "promote", *asked]) == 2
    assert "not signed" in capfd.readouterr().err
    assert cli.main(["release", "verify", *asked]) == 1
    assert cli.main(["release", "sign", *asked, "--key", str(private)]) == 0
    assert f"signed {name} " in capfd.readouterr().out
    assert cli.main(["release", "verify", *asked]) == 0
    assert cli.main(["release", "promote", *asked]) == 0
    assert cli.main(["release", "sign", *asked, "--key", str(tmp_path / "none")]) == 2
    assert "none" in capfd.readouterr().err


def test_calibrate_signs_promoted_release(
    sample: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    private, public = write_keys(tmp_path)
    strange, _ = write_keys(tmp_path, "strange")
    folder = tmp_path / "releases"
    asked = ["calibrate", str(sample), "--releases", str(folder), "--encoder", str(encoder)]
    monkeypatch.setenv("TAUGATE_TRUSTED_KEYS", str(public))
    for key in ("", str(strange), str(tmp_path / "none")):
        monkeypatch.setenv("TAUGATE_SIGNING_KEY", key)
        assert cli.main(asked) == 2  # before any work
        assert not folder.exists()
    assert "none" in capfd.readouterr().err
    assert cli.main([*asked, "--sign-with", str(private)]) == 0
    assert "--sign-with is deprecated" in capfd.readouterr().err
    monkeypatch.delenv("TAUGATE_SIGNING_KEY")
    verify(find(folder), TrustedKeys.load(public))
    assert cli.main([*asked, "--seed", "1", "--no-promote"]) == 0
    (second,) = set(release_ids(folder)) - {current_id(folder)}
    assert not (folder / second / SIGNATURE).exists()
