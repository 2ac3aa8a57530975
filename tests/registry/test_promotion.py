"""Which releases may become current, and how that is recorded."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.errors import ReleaseError
from taugate.registry import history
from taugate.registry.catalog import current_id
from taugate.registry.history import CHANGE_LOCK
from taugate.registry.promotion import promote
from taugate.release.layout import CURRENT, HISTORY, MANIFEST
from tests.release.clones import clone, of_another_encoder, without_a_cut

Release = Callable[..., tuple[int, str, str]]


def last_event(copy: Path) -> history.Event:
    return history.read(copy).events[-1]


def test_promotion_is_recorded_with_user(copy: Path, first: str, three: list[str], release: Release) -> None:
    assert release("promote", three[0]) == (0, f"* {three[0]}\n", "")
    event = last_event(copy)
    assert (event.action, event.release, event.previous, event.forced) == ("promote", three[0], first, ())
    assert event.by.count("@") == 1
    assert event.at.endswith("+00:00")
    assert current_id(copy) == three[0]


def test_promotion_by_calibration_is_recorded(copy: Path, first: str) -> None:
    (event,) = history.read(copy).events
    assert (event.action, event.release, event.previous) == ("promote", first, None)


def test_promoting_current_release_records_nothing(copy: Path, first: str, release: Release) -> None:
    assert release("promote", first)[0] == 0
    assert len(history.read(copy).events) == 1


def refused(release: Release, copy: Path, *arguments: str) -> str:
    """The one line of a refusal, after which everything is as it was."""
    before = {path.name: path.read_bytes() for path in copy.iterdir() if path.is_file()}
    code, out, error = release(*arguments)
    assert (code, out) == (2, "")
    assert error.count("\n") == 1
    assert error.startswith("taugate: ")
    assert {path.name: path.read_bytes() for path in copy.iterdir() if path.is_file()} == before
    return error


def test_damaged_release_is_not_promoted(copy: Path, three: list[str], release: Release) -> None:
    path = copy / three[0] / "golden.jsonl"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-1])
    for more in ([], ["--force"], ["--new-encoder"], ["--force", "--new-encoder"]):
        assert "golden.jsonl" in refused(release, copy, "promote", three[0], *more)


def test_policy_none_needs_force(copy: Path, first: str, release: Release) -> None:
    name = clone(copy / first, 0, without_a_cut)
    assert "--force" in refused(release, copy, "promote", name)
    assert "--force" in refused(release, copy, "promote", name, "--new-encoder")
    assert release("promote", name, "--force")[0] == 0
    assert last_event(copy).forced == ("policy none",)


def test_other_encoder_needs_new_encoder_option(copy: Path, first: str, release: Release) -> None:
    name = clone(copy / first, 0, of_another_encoder)
    message = refused(release, copy, "promote", name)
    assert "--new-encoder" in message
    assert "another" in message
    assert "fake" in message
    assert "--new-encoder" in refused(release, copy, "promote", name, "--force")
    assert release("promote", name, "--new-encoder")[0] == 0
    assert last_event(copy).forced == ("new encoder",)
    assert "--new-encoder" in refused(release, copy, "promote", first), "nor back, but by a rollback"


def test_int8_encoder_counts_as_its_float32_source(copy: Path, first: str, release: Release) -> None:
    def in_int8(manifest: dict) -> None:
        manifest["float32_encoder"] = manifest["encoder"] | {}
        manifest["encoder"] |= {"sha256": "f" * 64, "precision": "int8"}

    name = clone(copy / first, 0, in_int8)
    assert release("promote", name)[0] == 0
    assert release("promote", first)[0] == 0


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"encoder": 1}', b'{"encoder": null, "parent": 7}'])
def test_damaged_current_release_can_be_replaced(
    copy: Path, first: str, three: list[str], release: Release, content: bytes
) -> None:
    (copy / first / MANIFEST).unlink()
    (copy / first / MANIFEST).write_bytes(content)
    assert release("promote", three[0])[0] == 0


@pytest.mark.parametrize("pointer", [b"", b"nonsense", b"20200101T000000Z-000000000000\n", b"\xff", b"x" * 10_000])
def test_invalid_pointer_can_be_replaced(copy: Path, three: list[str], release: Release, pointer: bytes) -> None:
    (copy / CURRENT).write_bytes(pointer)
    assert release("promote", three[0])[0] == 0
    assert current_id(copy) == three[0]


@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_unrecorded_promotion_does_not_happen(
    copy: Path, first: str, three: list[str], release: Release, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, failing, full)
        code, out, error = release("promote", three[0])
    assert (code, out) == (1, "")
    assert f"{HISTORY}: cannot be written (No space left on device); nothing was changed" in error
    assert current_id(copy) == first
    assert release("promote", three[0])[0] == 0


def test_failed_replace_keeps_pointer(
    copy: Path, first: str, three: list[str], release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        code, out, error = release("promote", three[0])
    assert (code, out) == (1, "")
    assert error == f"taugate: {copy / CURRENT}: cannot be replaced (No space left on device); it is unchanged\n"
    assert current_id(copy) == first
    assert sorted(path.name for path in copy.glob(".*")) == [CHANGE_LOCK]
    assert "interrupted" in release("history")[1]
    assert release("rollback")[0] == 2, "what was interrupted is no place to go back to"


def test_partial_history_line_prevents_promotion(
    copy: Path, first: str, three: list[str], release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, write, written = (copy / HISTORY).read_bytes(), os.write, []

    def full(descriptor: int, line: bytes) -> int:
        if written:
            raise OSError(28, "No space left on device")
        written.append(write(descriptor, line[:20]))
        return written[0]

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        assert release("promote", three[0])[0] == 1
    assert written == [20]
    assert current_id(copy) == first
    assert (copy / HISTORY).read_bytes() == before, "half a line is taken back"


def test_incomplete_history_line_is_ignored(copy: Path, first: str, three: list[str], release: Release) -> None:
    with (copy / HISTORY).open("ab") as file:
        file.write(b'{"at":"2026-01-01T00:')
    assert release("promote", three[1])[0] == 0
    code, out, error = release("history")
    assert code == 0
    assert [line.split()[2] for line in out.splitlines()] == [first, three[1]]
    assert "line 2 is truncated" in error


def test_history_inherits_directory_permissions(copy: Path, three: list[str]) -> None:
    """Files that are changed in place have the directory's bits, whatever the umask of who made them."""
    (copy / HISTORY).unlink()
    (copy / CHANGE_LOCK).unlink()
    copy.chmod(0o2775)
    before = os.umask(0o077)
    try:
        promote(copy, three[0])
    finally:
        os.umask(before)
    modes = {name: (copy / name).stat().st_mode & 0o777 for name in (HISTORY, CHANGE_LOCK, CURRENT)}
    assert modes == {HISTORY: 0o664, CHANGE_LOCK: 0o664, CURRENT: 0o644}
    (copy / HISTORY).chmod(0o640)
    promote(copy, three[1])
    assert (copy / HISTORY).stat().st_mode & 0o777 == 0o640, "nor against what somebody chose"


def test_linked_history_is_not_followed(copy: Path, three: list[str], tmp_path: Path) -> None:
    (copy / HISTORY).unlink()
    (copy / HISTORY).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ReleaseError, match="is not writable"):
        promote(copy, three[0])
    assert not (tmp_path / "elsewhere").exists()


def test_history_is_json_lines(copy: Path, three: list[str]) -> None:
    promote(copy, three[0])
    lines = [json.loads(line) for line in (copy / HISTORY).read_text(encoding="utf-8").splitlines()]
    assert [set(line) for line in lines] == [{"at", "action", "release", "previous", "by", "forced"}] * 2
