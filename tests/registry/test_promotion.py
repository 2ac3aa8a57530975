"""Which releases may become current, and how that is recorded."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.errors import ReleaseError
from taugate.registry import history
from taugate.registry.catalog import current_id, shadow_id
from taugate.registry.history import CHANGE_LOCK
from taugate.registry.promotion import promote
from taugate.release.layout import CURRENT, HISTORY, MANIFEST, SHADOW
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
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


def provisional(manifest: dict) -> None:
    manifest["calibration"] |= {"state": "provisional", "reasons": ["few_queries"], "human": 12}


def unknown_reason(manifest: dict) -> None:
    manifest["calibration"] |= {"state": "provisional", "reasons": ["full_moon"]}


def of_older_times(manifest: dict) -> None:
    del manifest["calibration"]


def chance_warning(manifest: dict) -> None:
    manifest["calibration"]["accuracy"] |= {"lower": 0.009, "chance": 0.01, "queries_needed": 700}


def everything_against(manifest: dict) -> None:
    for change in (provisional, chance_warning, of_another_encoder):
        change(manifest)
    manifest["policy"] |= {"kind": "none", "tau": None}


def refused_by_evidence(release: Release, copy: Path, name: str, *more: str) -> str:
    """The one line of a refusal, after which the same release is current."""
    before = current_id(copy)
    code, out, error = release("promote", name, *more)
    assert (code, out, error.count("\n")) == (4, "", 1)
    assert error.startswith(f"taugate: {name}: ")
    assert current_id(copy) == before
    return error


def forced(copy: Path) -> tuple[str, ...]:
    return history.read(copy).events[-1].forced


def test_provisional_does_not_replace_calibrated(copy: Path, first: str, release: Release) -> None:
    name = clone(copy / first, 0, provisional)
    message = refused_by_evidence(release, copy, name)
    for part in (f"the current release {first} is calibrated", "12 answerable queries", "label 18 more", "--force"):
        assert part in message
    assert "label 18 more" in refused_by_evidence(release, copy, name, "--new-encoder")
    code, out, error = release("promote", name, "--force")
    assert (code, out) == (0, f"* {name}\n")
    assert error.startswith("promotion: the current release is now provisional")
    assert forced(copy) == ("provisional",)


def test_release_of_old_version_counts_as_calibrated(copy: Path, first: str, release: Release) -> None:
    older = clone(copy / first, 0, of_older_times)
    assert release("promote", older) == (0, f"* {older}\n", "")
    assert f"the current release {older} is calibrated" in refused_by_evidence(
        release, copy, clone(copy / first, 1, provisional)
    )


def test_provisional_replaces_provisional(copy: Path, first: str, release: Release) -> None:
    names = [clone(copy / first, minute, provisional) for minute in range(2)]
    assert release("promote", names[0], "--force")[0] == 0
    assert release("promote", names[1])[0] == 0
    assert forced(copy) == ()
    assert release("promote", first)[0] == 0
    assert forced(copy) == ()
    assert release("rollback")[:2] == (0, f"* {names[1]}\n"), "it was in force once, and is asked for nothing"


def test_first_release_may_be_provisional(copy: Path, first: str, release: Release) -> None:
    name = clone(copy / first, 0, provisional)
    (copy / "current").unlink()
    assert release("promote", name)[0] == 0
    assert forced(copy) == ()


@pytest.mark.parametrize("content", [b"", b"[]", b"{"])
def test_provisional_replaces_damaged_current(copy: Path, first: str, release: Release, content: bytes) -> None:
    name = clone(copy / first, 0, provisional)
    (copy / first / MANIFEST).unlink()
    (copy / first / MANIFEST).write_bytes(content)
    assert release("promote", name)[0] == 0


def test_accuracy_at_chance_needs_force(copy: Path, first: str, release: Release) -> None:
    name = clone(copy / first, 0, chance_warning)
    for part in (
        "as low as 0.009 (lower 95 % limit)",
        "the 0.010 that 5 documents",
        "label about 700 queries",
        "--force",
    ):
        assert part in refused_by_evidence(release, copy, name)
    (copy / "current").unlink()
    assert "chance" not in refused_by_evidence(release, copy, name)
    assert release("promote", name, "--force")[0] == 0
    assert forced(copy) == ("accuracy not above chance",)


def test_overridden_rules_are_recorded(copy: Path, first: str, release: Release) -> None:
    name = clone(copy / first, 0, everything_against)
    assert release("promote", name)[0] == 2
    assert release("promote", name, "--force")[0] == 2, "another encoder takes a word of its own"
    assert release("promote", name, "--force", "--new-encoder")[0] == 0
    assert forced(copy) == ("policy none", "accuracy not above chance", "provisional", "new encoder")


def test_promotion_rule_does_not_override_provisional(copy: Path, first: str, release: Release) -> None:
    name = clone(copy / first, 0, provisional)
    message = refused_by_evidence(release, copy, name, "--max-accuracy-drop", "0.5")
    assert "label 18 more" in message


def test_list_marks_provisional_releases(copy: Path, first: str, release: Release) -> None:
    name = clone(copy / first, 0, provisional)
    rows = [row for row in release("list")[1].splitlines() if not row.startswith("   ")]
    assert [(row[:31], "provisional" in row, "calibrated" in row) for row in rows] == [
        (f"* {first}", False, True),
        (f"  {name}", True, False),
    ]
    code, out, error = release("show", name)
    assert (code, out.startswith("{")) == (0, True)
    assert error.startswith(f"{name} is provisional: it has 12 answerable queries, and 30 are the fewest to rely on")
    of_a_later_version = clone(copy / first, 1, unknown_reason)
    said = f"{of_a_later_version} is provisional: see calibration.reasons\n"
    assert release("show", of_a_later_version)[2].startswith(said)
    assert " is calibrated\nCertified   nothing" in release("show")[2]


def test_provisional_results_are_not_certified(copy: Path, first: str) -> None:
    """The same results, and nothing said of them."""
    name = clone(copy / first, 0, provisional)
    asked = [Query("a building permit", 5), Query("a building permit", 1)]
    before, after = (load(copy / each).retriever.search(asked) for each in (first, name))
    assert [answer.calibrated for answer in before] == [True, True]
    assert [answer.calibrated for answer in after] == [False, False]
    assert [each.positions.tolist() for each in after] == [each.positions.tolist() for each in before]


def test_shadow_pointer_is_set_and_removed(copy: Path, first: str, three: list[str], release: Release) -> None:
    assert shadow_id(copy) is None
    for name in three[:2]:
        assert release("shadow", name) == (0, f"~ {name}\n", "")
        assert shadow_id(copy) == name
    marked = [line[:31] for line in release("list")[1].splitlines() if not line.startswith("    ")]
    assert marked == [f"* {first}", f"  {three[0]}", f"~ {three[1]}", f"  {three[2]}"]
    for _ in range(2):
        assert release("shadow", "--none") == (0, "", "")
        assert shadow_id(copy) is None
        assert not (copy / SHADOW).exists()
    events = [(event.action, event.release, event.previous) for event in history.read(copy).events[1:]]
    assert events == [("shadow", three[0], None), ("shadow", three[1], three[0]), ("shadow", None, three[1])]
    assert current_id(copy) == first


def test_shadow_may_have_other_encoder(copy: Path, first: str, release: Release) -> None:
    """What a change would do is what it is for."""
    assert release("shadow", clone(copy / first, 0, of_another_encoder))[0] == 0


def test_unfit_shadow_is_refused(copy: Path, first: str, three: list[str], release: Release) -> None:
    (copy / three[0] / MANIFEST).write_bytes(b"{")
    for arguments, message in (
        ([three[0]], MANIFEST),
        ([first], "is the current release"),
        (["nonsense"], "holds no release"),
        ([], "--none"),
        ([three[1], "--none"], "--none"),
    ):
        code, out, error = release("shadow", *arguments)
        assert (code, out) == (2, "")
        assert message in error
        assert shadow_id(copy) is None
    assert len(history.read(copy).events) == 1


def test_invalid_shadow_pointer_can_be_repaired(copy: Path, three: list[str], release: Release) -> None:
    (copy / SHADOW).write_text("nonsense", encoding="ascii")
    with pytest.raises(ReleaseError, match="taugate release shadow"):
        shadow_id(copy)
    assert release("list")[0] == 0
    assert release("shadow", three[0])[0] == 0
    (copy / SHADOW).write_text("nonsense", encoding="ascii")
    assert release("shadow", "--none")[0] == 0
    assert shadow_id(copy) is None
