"""Links, pipes and oversized files in place of a release's files are refused with their names, without blocking."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.errors import ReleaseError
from taugate.registry.catalog import find
from taugate.release.layout import MANIFEST, SIGNATURE
from taugate.release.verify import TrustedKeys, verify
from taugate.storage.files import read_bounded
from tests.keys import write_keys


def link(path: Path) -> None:
    elsewhere = path.parent.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def endless(path: Path) -> None:
    """As large as a disk, and takes none of it."""
    with path.open("r+b") as file:
        file.truncate(1 << 40)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("change", [link, pipe, endless, folder])
@pytest.mark.parametrize("name", [MANIFEST, "report.html", "encoder/model.onnx"])
def test_irregular_release_file_is_refused(
    releases: Path, tmp_path: Path, name: str, change: Callable[[Path], None]
) -> None:
    release = find(shutil.copytree(releases, tmp_path / "releases"))
    change(release / name)
    with pytest.raises(ReleaseError, match=name):
        verify(release)


def test_linked_folder_is_refused(releases: Path, tmp_path: Path) -> None:
    release = find(shutil.copytree(releases, tmp_path / "releases"))
    link(release / "encoder")
    with pytest.raises(ReleaseError, match="encoder"):
        verify(release)


@pytest.mark.parametrize("change", [pipe, lambda path: path.write_bytes(bytes(1 << 20)), lambda path: path.mkdir()])
def test_irregular_signature_is_refused(releases: Path, tmp_path: Path, change: Callable[[Path], None]) -> None:
    release = find(shutil.copytree(releases, tmp_path / "releases"))
    change(release / SIGNATURE)
    with pytest.raises(ReleaseError, match=SIGNATURE):
        verify(release, TrustedKeys.load(write_keys(tmp_path)[1]))


def test_read_bounded_limits_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1234")
    assert read_bounded(path, 4) == b"1234"
    with pytest.raises(OSError, match="more than 3 bytes"):
        read_bounded(path, 3)


def test_long_manifest_value_is_truncated_in_message(releases: Path, tmp_path: Path) -> None:
    release = find(shutil.copytree(releases, tmp_path / "releases"))
    (release / MANIFEST).write_text('{"schema_version": "\\u001b[2J' + "x" * 100_000 + '"}')
    with pytest.raises(ReleaseError) as refused:
        verify(release)
    assert len(str(refused.value)) < 1000
    assert "\x1b" not in str(refused.value)
