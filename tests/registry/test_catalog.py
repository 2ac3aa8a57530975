"""The list of releases, and abbreviated ids."""

import errno
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from taugate.calibration.comparison.publish import Promotion, Published
from taugate.cli import main as cli
from taugate.cli.terminal.promotion import CalibratedRelease
from taugate.errors import ReleaseError
from taugate.registry.catalog import current_id, find, match_id, release_ids, summarize
from taugate.registry.history import lock_for_reading, read
from taugate.registry.promotion import promote, rollback
from taugate.registry.writer import read_private_key, sign, without_equal, write
from taugate.release.layout import MANIFEST
from taugate.release.manifest import Manifest
from taugate.release.verify import verify
from taugate.retrieval.reader import load
from tests.keys import write_keys
from tests.registry.conftest import copy, first, three
from tests.release.clones import SUMMARY, clone, with_refusals, without_a_cut, without_refusals
from tests.service_process import ServiceProcess

Release = Callable[..., tuple[int, str, str]]
IDS = ["20260101T000000Z-aaaa11112222", "20260102T000000Z-aabb11112222", "20260102T000001Z-202699999999"]


@pytest.mark.parametrize(
    ("text", "index"), [(IDS[0], 0), ("20260101", 0), ("aaaa", 0), ("aabb1", 1), ("20260102T000001", 2), ("20269", 2)]
)
def test_id_is_matched_by_prefix(text: str, index: int) -> None:
    assert match_id(IDS, text, "DIR") == IDS[index]


@pytest.mark.parametrize(("text", "count"), [("20260102", 2), ("2026", 3)])
def test_ambiguous_prefix_is_refused(text: str, count: int) -> None:
    with pytest.raises(
        ReleaseError, match=f"^DIR: '{text}' matches {count} releases: .*; give more of the id$"
    ) as refused:
        match_id(IDS, text, "DIR")
    assert [name in str(refused.value) for name in IDS] == [count == 3, True, True]


@pytest.mark.parametrize("text", ["", "aaa"])
def test_short_prefix_is_refused(text: str) -> None:
    with pytest.raises(ReleaseError, match="^DIR: .* is too short; give at least 4 characters of an id; it has "):
        match_id(IDS, text, "DIR")


@pytest.mark.parametrize("text", ["20270101", f"{IDS[0]}0", "1111", "../.."])
def test_unknown_id_error_lists_releases(text: str) -> None:
    with pytest.raises(ReleaseError, match="^DIR: holds no release ") as refused:
        match_id(IDS, text, "DIR")
    assert str(refused.value).endswith(f"it has {IDS[2]}, {IDS[1]}, {IDS[0]}")
    many = [f"20260101T0000{second:02}Z-aaaa11112222" for second in range(9)]
    with pytest.raises(ReleaseError, match=f"it has {many[8]}, .*{many[4]} and 4 older$"):
        match_id(many, "bbbb", "DIR")
    with pytest.raises(ReleaseError, match="it has no releases$"):
        match_id([], "bbbb", "DIR")


def test_release_commands_accept_id_prefix(
    copy: Path, first: str, three: list[str], release: Release, tmp_path: Path
) -> None:
    """Clones of one content share a digest: the minute tells them apart."""
    name, short = three[1], three[1][:13]
    private, public = write_keys(tmp_path)
    assert find(copy, short).name == name
    assert json.loads(release("show", short)[1])["release_id"] == name
    assert release("verify", short)[:2] == (0, f"ok {name}\n")
    assert release("diff", short)[0] == 0
    assert release("sign", "--key", str(private), short)[1].startswith(f"signed {name} ")
    assert release("shadow", short)[:2] == (0, f"~ {name}\n")
    assert (copy / "shadow").read_text() == f"{name}\n"
    assert release("promote", short)[:2] == (0, f"* {name}\n")
    assert (copy / "current").read_text() == f"{name}\n"
    assert release("rollback", first[:15])[:2] == (0, f"* {first}\n")
    assert release("promote", short, "--max-accuracy-drop", "auto")[:2] == (0, f"* {first}\n"), "of the same content"
    store = f"file://{tmp_path / 'store'}"
    assert release("push", "--to", store, short)[1] == f"  {store}/{name}\n"
    assert release("pull", "--from", store, short)[:2] == (0, f"  {name}\n")
    erased = release(
        "erase", short, json.loads((copy / name / "golden.jsonl").read_text().splitlines()[0])["documents"][0]
    )
    assert (erased[0], find(copy, erased[1].strip()).is_dir()) == (0, True)
    assert sign(find(copy, short), read_private_key(private))
    assert public.exists()


@pytest.mark.parametrize(
    "action",
    [["show"], ["verify"], ["diff"], ["promote"], ["promote", "--max-accuracy-drop", "auto"], ["rollback"], ["shadow"]],
)
def test_unmatched_id_exits_with_2(
    action: list[str], copy: Path, first: str, three: list[str], release: Release
) -> None:
    code, out, error = release(action[0], three[0][:10], *action[1:])
    assert (code, out) == (2, "")
    assert (
        error
        == f"taugate: {copy}: '{three[0][:10]}' matches 3 releases: {', '.join(three[::-1])}; give more of the id\n"
    )
    code, out, error = release(action[0], "20990101", *action[1:])
    assert (code, out) == (2, "")
    assert f"{copy}: holds no release '20990101'; it has {three[2]}, {three[1]}, {three[0]}, {first}" in error
    assert current_id(copy) == first
    assert not (copy / "shadow").exists()


def test_list_shows_release_facts(copy: Path, first: str, release: Release) -> None:
    cut, damaged = clone(copy / first, 1, without_a_cut), clone(copy / first, 2)
    (copy / damaged / "manifest.json").unlink()
    (copy / damaged / "manifest.json").write_text('{"policy": []}')
    manifest = json.loads((copy / first / "manifest.json").read_bytes())
    code, out, error = release("list")
    assert code == 0
    assert error.split() == ["release", "age", "state", "data", "τ"]
    lexical = "lexical" in manifest
    lines = [line for line in out.splitlines() if not line.startswith("    ")]
    rows = [re.sub(r" \(lexical [\d.]+\)", "", line).split() for line in lines]
    assert [line.count("(lexical ") for line in lines] == [lexical, lexical, False]
    assert [row[:2] for row in rows] == [["*", first], [cut, "0"], [damaged, "0"]]
    tau, data = manifest["policy"]["tau"], manifest["data"]["name"][:16]
    assert rows[0][4:7] == ["calibrated", data, f"{tau:.3f}"]
    assert out.splitlines()[1] == "    Certified   nothing; --max-loss 0.02 asks for it"
    assert re.match(r"    Checked     \d+ of \d+ held-out answers lost; ", out.splitlines()[2])
    assert max(map(len, (out + error).splitlines())) <= 100
    assert rows[1][3:6] == ["calibrated", data, "none"]
    assert " Differs in rule " in " ".join(out.split()), "of the second one from the first"
    assert rows[2][3:6] == ["calibrated", "–", "–"]


def test_list_shows_kept_lost_and_refused(copy: Path, first: str, release: Release) -> None:
    older = clone(copy / first, 1, without_refusals)
    newer = clone(copy / first, 2, with_refusals)
    code, out, error = release("list")
    assert code == 0
    lines = out.splitlines()
    assert " ".join(map(str.strip, lines[-2:])) == SUMMARY, "the sentence of an earlier version"
    (before,) = (number for number, line in enumerate(lines) if older in line)
    assert newer in lines[before + 1], "a release without a summary has one line"
    summaries = {row["release"]: row["summary"] for row in json.loads(release("list", "--json")[1])["releases"]}
    assert (summaries[older], summaries[newer]) == (None, SUMMARY)
    _, out, error = release("show", newer)
    assert (json.loads(out)["summary"], error) == (SUMMARY, f"{newer} is calibrated\n{SUMMARY}\n")
    code, out, error = release("diff", older, newer)
    assert (code, error) == (0, f"{newer} is calibrated\n{SUMMARY}\n")
    assert [re.split(r"\s{2,}", line)[::2] for line in out.splitlines()] == [
        ["refusals: score of ρ", "best_similarity"],
        ["refusals: ρ", "0.390625"],
        ["refusals: off-topic questions refused", "0.9500"],
        ["refusals: near misses refused", "0.7000"],
    ]


def test_list_prints_json(copy: Path, first: str, three: list[str], release: Release) -> None:
    release("shadow", three[0])
    code, out, error = release("list", "--json")
    assert (code, error) == (0, "")
    rows = json.loads(out)["releases"]
    assert [row["release"] for row in rows] == [first, *three]
    assert [(row["current"], row["shadow"]) for row in rows] == [(True, False), (False, True)] + 2 * [(False, False)]
    manifest = json.loads((copy / first / "manifest.json").read_bytes())
    assert rows[0] | {"current": None, "shadow": None} == {
        "release": first,
        "created": manifest["created_at"],
        "state": "calibrated",
        "data": manifest["data"]["name"],
        "split": manifest["data"]["split"],
        "policy": manifest["policy"]["kind"],
        "tau": manifest["policy"]["tau"],
        "lexical": manifest.get("lexical", {}).get("weight"),
        "k": manifest["policy"]["k"],
        "accuracy": manifest["metrics"]["heldout"]["accuracy"]["mean"],
        "summary": manifest.get("summary"),
        "current": None,
        "shadow": None,
        "differs": [],
    }


def test_releases_written_at_once_keep_their_order(copy: Path, first: str) -> None:
    draft = Manifest.model_validate_json((copy / first / MANIFEST).read_bytes())

    def fill(folder: Path) -> None:
        shutil.copytree(copy / first, folder, ignore=shutil.ignore_patterns(MANIFEST), dirs_exist_ok=True)

    drafts = [draft.model_copy(update={"summary": f"Release {number}."}) for number in range(6)]
    written = [write(copy, numbered, fill).release_id for numbered in drafts]
    assert release_ids(copy) == [first, *written]


def test_release_is_on_the_disk_before_it_has_its_name(copy: Path, first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Manifest.model_validate_json((copy / first / MANIFEST).read_bytes())
    sync, synced = os.fsync, set[str]()

    def look(descriptor: int) -> None:
        if release_ids(copy) == [first]:
            synced.add(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    write(copy, draft, lambda folder: shutil.copytree(copy / first, folder, dirs_exist_ok=True))
    assert synced >= {path.name for path in (copy / first).rglob("*")}


@pytest.mark.parametrize(
    ("seconds", "age"), [(-5, "0 s"), (59, "59 s"), (60, "1 min"), (3599, "59 min"), (86399, "23 h"), (864000, "10 d")]
)
def test_age_is_shown_in_largest_unit(copy: Path, first: str, seconds: int, age: str) -> None:
    found = summarize(copy, first)
    assert found.created.tzinfo is UTC
    assert found.age(found.created + timedelta(seconds=seconds)) == age
    assert isinstance(found.age(datetime.now(UTC)), str)


def test_equal_release_is_removed_and_current_one_kept(copy: Path, first: str) -> None:
    again = clone(copy / first, 1, parent=first)
    kept = without_equal(copy, verify(copy / again))
    assert (kept.release_id, release_ids(copy)) == (first, [first])
    assert without_equal(copy, kept) == kept, "the current one itself"
    released = CalibratedRelease("data", kept, copy / first, Promotion(), Published(promoted=True), first)
    assert released.rows()["Promotion"] == f"Not needed: {first} has the same content and remains the current release."


def test_different_release_and_remedy_of_damaged_one_are_kept(copy: Path, first: str) -> None:
    other = clone(copy / first, 1, without_a_cut)
    assert without_equal(copy, verify(copy / other)).release_id == other
    again = verify(copy / clone(copy / first, 2))
    (copy / first / MANIFEST).unlink()
    (copy / first / MANIFEST).write_text("{}")
    assert without_equal(copy, again) == again


__all__ = ["copy", "first", "three"]

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def sh(command: str, folder: Path, **streams: bytes) -> bytes:
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, check=False, **streams)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_archive_of_page_is_restored(copy: Path, three: list[str], tmp_path: Path) -> None:
    promote(copy, three[0])
    (command,) = re.findall(r"'cd /releases && (tar -c .*)' \| gzip", PAGE)
    archive = sh(command, copy)
    promote(copy, three[1])  # after the backup
    restored = tmp_path / "restored"
    restored.mkdir()
    sh("tar --extract", restored, input=archive)
    assert current_id(restored) == three[0]
    assert release_ids(restored) == release_ids(copy)
    assert len(read(restored).events) == len(read(copy).events) - 1
    assert cli.main(["release", "verify", "--releases", str(restored)]) == 0
    rollback(restored)
    assert current_id(restored) != three[0]


def test_store_is_restored_into_empty_directory(copy: Path, three: list[str], tmp_path: Path) -> None:
    promote(copy, three[0])
    url = f"file://{tmp_path}/backup"
    for name in release_ids(copy):
        promoting = ["--promote"] if name == three[0] else []
        assert cli.main(["release", "push", name, "--releases", str(copy), "--to", url, *promoting]) == 0
    restored = tmp_path / "restored"
    restored.mkdir()
    assert cli.main(["release", "pull", "--releases", str(restored), "--from", url]) == 0
    assert cli.main(["release", "pull", three[1], "--releases", str(restored), "--from", url]) == 0
    assert current_id(restored) == three[0]
    assert cli.main(["release", "verify", "--releases", str(restored)]) == 0


def test_restored_keys_and_signatures_are_valid(copy: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    assert cli.main(["key", "new", "--name", "app", "--scopes", "search", "--file", str(secrets / "keys.json")]) == 0
    key = capfd.readouterr().out.strip()
    sh("openssl genpkey -algorithm ed25519 -out signing.key", secrets)
    kept = shutil.copytree(secrets, tmp_path / "kept")
    shutil.rmtree(secrets)  # what is lost
    restored = shutil.copytree(kept, secrets)
    sh("openssl pkey -in signing.key -pubout -out trusted.pem", restored)
    name = str(current_id(copy))
    assert cli.main(["release", "sign", name, "--releases", str(copy), "--key", str(restored / "signing.key")]) == 0
    settings = {"TAUGATE_KEYS_FILE": restored / "keys.json", "TAUGATE_TRUSTED_KEYS": restored / "trusted.pem"}
    environment = {variable: str(path) for variable, path in settings.items()}
    with ServiceProcess(copy, TAUGATE_CACHE=str(tmp_path / "cache"), **environment) as service:
        service.ready()
        asked = {"json": {"query": "building permit"}}
        assert service.http.post("/search", **asked).status_code == 401
        allowed = service.http.post("/search", **asked, headers={"Authorization": f"Bearer {key}"})
        assert (allowed.status_code, allowed.json()["release"]) == (200, name)


WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@pytest.fixture
def read_only(copy: Path, first: str, three: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the kernel says of such a mount; a test may not mount one, and root passes by every permission."""
    promote(copy, three[0])
    opened = os.open

    def guarded(path: Path | str, flags: int, *arguments: object, **options: object) -> int:
        if flags & WRITES and str(path).startswith(str(copy)):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return opened(path, flags, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", guarded)
        yield [first, *three]


@pytest.mark.parametrize("action", ["list", "show", "verify", "history", "diff"])
def test_read_commands_work_read_only(read_only: list[str], release: Release, action: str) -> None:
    code, out, _ = release(action, *([read_only[0]] if action == "diff" else []))
    assert code == 0
    assert out


def test_dry_run_works_read_only(read_only: list[str], release: Release) -> None:
    code, out, _ = release("prune", "--dry-run", "--keep", "1")
    assert (code, out) == (0, f"would prune {read_only[2]}\n")


def test_release_is_opened_read_only(copy: Path, read_only: list[str]) -> None:
    with lock_for_reading(copy / read_only[1]):
        assert load(copy / read_only[1]).manifest.release_id == read_only[1]


@pytest.mark.parametrize("action", ["promote", "rollback", "shadow", "prune"])
def test_change_of_read_only_directory_is_refused(
    copy: Path, read_only: list[str], release: Release, action: str
) -> None:
    arguments = {"promote": [read_only[2]], "shadow": [read_only[2]], "rollback": [], "prune": ["--keep", "0"]}
    code, out, error = release(action, *arguments[action])
    assert (code, out) == (2, "")
    assert error.splitlines() == [
        f"taugate: {copy}: is not writable (Read-only file system: .lock); run the command where it is"
    ]
    assert current_id(copy) == read_only[1]
    assert all((copy / name / MANIFEST).is_file() for name in read_only)
