"""Links, pipes and oversized files in place of a release's files are refused with their names, without blocking."""

import os
import shutil
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from taugate.errors import ReleaseError, StoreError, TaugateError
from taugate.registry import history
from taugate.registry.catalog import current_id, find
from taugate.registry.transfer import promote_remote, push, update_copy
from taugate.release.encoder import CONFIG, TOKENIZER
from taugate.release.layout import CURRENT, HISTORY, MANIFEST, SIGNATURE
from taugate.release.verify import TrustedKeys, verify
from taugate.retrieval.folders import EncoderFolder
from taugate.retrieval.reader import load
from taugate.service.access.authorization import _stamp
from taugate.storage.files import read_bounded
from taugate.storage.object_store import Store
from tests.calibration.commands import Capture, small
from tests.fake_encoder import write_fake_encoder
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


def named_pipe(path: Path) -> None:
    """With a writer behind it: who opens it as a file reads on, and does not hold up the tests."""
    os.mkfifo(path)

    def write() -> None:
        with suppress(OSError), path.open("wb") as file:
            file.write(b"x")

    threading.Thread(target=write, daemon=True).start()


def bound_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket may have 107 characters
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


def sparse(path: Path) -> None:
    """A terabyte on no disk."""
    with path.open("wb") as file:
        file.truncate(1 << 40)


def link_out(path: Path) -> None:
    outside = path.parents[2] / "outside"
    outside.write_text("x")
    path.symlink_to(outside)


STRANGE: dict[str, Callable[[Path], None]] = {
    "pipe": named_pipe,
    "socket": bound_socket,
    "folder": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link out": link_out,
    "link to itself": lambda path: path.symlink_to(path.name),
    "a terabyte": sparse,
}


@pytest.fixture(params=STRANGE)
def strange(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    return STRANGE[request.param]


@pytest.fixture
def copy(releases: Path, tmp_path: Path) -> Path:
    return shutil.copytree(releases, tmp_path / "deep" / "releases")


@pytest.mark.parametrize("name", [CURRENT, MANIFEST, "golden.jsonl"])
def test_folder_store_refuses_irregular_file(
    copy: Path, tmp_path: Path, strange: Callable[[Path], None], name: str
) -> None:
    url = f"file://{tmp_path}/deep/store"
    push(find(copy), url)
    promote_remote(url, find(copy).name)
    path = tmp_path / "deep" / "store" / (name if name == CURRENT else f"{find(copy).name}/{name}")
    path.unlink()
    strange(path)
    with pytest.raises(ReleaseError, match=path.name) as refused:
        update_copy(url, tmp_path / "copy")
    assert not isinstance(refused.value, StoreError)  # another time is no better
    assert current_id(tmp_path / "copy") is None


def test_link_within_store_is_followed(copy: Path, tmp_path: Path) -> None:
    (copy / "newest").write_text("x")
    (copy / "link").symlink_to("newest")
    assert Store(f"file://{copy}").read("link", 1) == b"x"
    (copy / "elsewhere").symlink_to(tmp_path)
    with pytest.raises(ReleaseError, match="elsewhere/deep: a link to somewhere else"):
        Store(f"file://{copy}").read("elsewhere/deep", 1)


def test_full_disk_is_not_store_error(copy: Path) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(OSError, match="No space left"):
        Store(f"file://{copy}").download(CURRENT, full, 100)  # type: ignore[arg-type]


def test_directory_refuses_irregular_file(copy: Path, strange: Callable[[Path], None]) -> None:
    for path in (copy / CURRENT, copy / HISTORY):
        path.unlink()
        strange(path)
    with pytest.raises(ReleaseError, match=CURRENT):
        current_id(copy)
    with pytest.raises(ReleaseError, match=HISTORY):
        history.read(copy)


def test_invalid_file_name_is_escaped(copy: Path) -> None:
    """In what every log, reply and terminal can show."""
    release = find(copy)
    Path(os.fsdecode(os.fsencode(release) + b"/\xff\x1b[2J")).touch()
    with pytest.raises(TaugateError) as refused:
        verify(release)
    assert str(refused.value).encode("utf-8").startswith(os.fsencode(release) + rb"/\udcff\x1b[2J: not part of this")


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
