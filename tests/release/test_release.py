"""A release is complete, or refused with one message that names the file."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.errors import ReleaseError
from taugate.registry.catalog import current_id, find, release_ids
from taugate.registry.history import read
from taugate.registry.promotion import promote
from taugate.release.files import names_of
from taugate.release.layout import CHECK, MANIFEST, REPORT, content_digest, release_id
from taugate.release.manifest import Manifest
from taugate.release.verify import verify
from taugate.retrieval.reader import load
from tests.compatibility.write import FOLDER
from tests.release.clones import clone

FILES = names_of(verify(find(FOLDER / "releases" / "schema-2-last")))  # of a release with a corpus


@pytest.fixture
def copy(releases: Path, tmp_path: Path) -> Path:
    """A releases directory that a test may break."""
    return shutil.copytree(releases, tmp_path / "releases")


def edit(release: Path, change: Callable[[dict], None]) -> None:
    manifest = json.loads((release / MANIFEST).read_bytes())
    change(manifest)
    (release / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def test_release_verifies_and_loads(releases: Path) -> None:
    release = load(find(releases))
    assert release.manifest.policy.kind == "similarity"
    assert len(release.documents) == release.manifest.data.documents == 503


@pytest.mark.parametrize("name", sorted(FILES.required))
def test_changed_file_is_refused(copy: Path, name: str) -> None:
    path = find(copy) / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ReleaseError, match=path.name):
        load(find(copy))
    path.write_bytes(content[:-1])
    with pytest.raises(ReleaseError, match=path.name):
        load(find(copy))
    path.unlink()
    with pytest.raises(ReleaseError, match=path.name):
        load(find(copy))


CHANGES = {
    "schema_version": (lambda m: m.update(schema_version=1), "schema version 1"),
    "tau": (lambda m: m["policy"].update(tau=0.1), "content digest"),
    "k": (lambda m: m["policy"].update(k=0), "policy.k"),
    "policy_kind": (lambda m: m["policy"].update(kind="magic"), "policy.kind"),
    "id": (lambda m: m.update(release_id="20200101T000000Z-000000000000"), "says it is"),
    "missing_part": (lambda m: m.pop("encoder"), "encoder"),
    "unknown_part": (lambda m: m.update(surprise=1), "surprise"),
    "file_unlisted": (lambda m: m["files"].pop("golden.jsonl"), "content digest"),
    "path_outside": (lambda m: m["files"].update({"../x": {"sha256": "0", "bytes": 0}}), "content digest"),
    "not_an_object": (lambda m: m["data"].update(documents="many"), "data.documents"),
}


@pytest.mark.parametrize(("change", "said"), CHANGES.values(), ids=CHANGES.keys())
def test_changed_manifest_is_refused(copy: Path, change: Callable[[dict], None], said: str) -> None:
    edit(find(copy), change)
    with pytest.raises(ReleaseError, match=said):
        verify(find(copy))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null"])
def test_manifest_without_json_object_is_refused(copy: Path, content: bytes) -> None:
    (find(copy) / MANIFEST).write_bytes(content)
    with pytest.raises(ReleaseError, match=MANIFEST):
        verify(find(copy))


def test_forged_path_outside_is_refused(copy: Path) -> None:
    """Even with a digest that fits, names come from the layout and not from the manifest."""
    release = find(copy)
    raw = json.loads((release / MANIFEST).read_bytes())
    raw["files"]["../../etc/passwd"] = {"sha256": "0" * 64, "bytes": 1}
    raw["release_id"] = raw["release_id"][:17] + content_digest(raw)[:12]
    forged = release.rename(release.parent / raw["release_id"])
    (forged / MANIFEST).write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(ReleaseError, match="its list of files is not that"):
        verify(forged)


def test_extra_file_and_link_are_refused(copy: Path) -> None:
    release = find(copy)
    (release / "extra.bin").write_bytes(b"")
    with pytest.raises(ReleaseError, match="extra.bin"):
        verify(release)
    (release / "extra.bin").unlink()
    target = (release / "golden.jsonl").rename(copy / "elsewhere")
    (release / "golden.jsonl").symlink_to(target)
    with pytest.raises(ReleaseError, match="golden.jsonl"):
        verify(release)


def test_digest_excludes_ids_and_times(releases: Path) -> None:
    manifest = verify(find(releases))
    raw = manifest.model_dump()
    moved = raw | {"release_id": "x", "created_at": "y", "parent": "z"}
    assert content_digest(raw) == content_digest(moved)
    for field in set(Manifest.model_fields) - {"release_id", "created_at", "parent"}:
        assert content_digest(raw) != content_digest(raw | {field: {"changed": field}}), field
    for name in raw["files"]:
        other = raw | {"files": raw["files"] | {name: {"sha256": "0", "bytes": 0}}}
        # The report compares with the parent, which is no part of the content either.
        assert (content_digest(raw) == content_digest(other)) == (name == REPORT), name


@pytest.mark.parametrize("pointer", ["", "../../etc", "20200101T000000Z-000000000000", "x" * 5000])
def test_invalid_pointer_is_named(copy: Path, pointer: str) -> None:
    (copy / "current").write_text(pointer, encoding="ascii")
    with pytest.raises(ReleaseError, match="current"):
        find(copy)


def test_promotion_refuses_missing_release(copy: Path) -> None:
    before = current_id(copy)
    with pytest.raises(ReleaseError, match="no release"):
        promote(copy, "20200101T000000Z-000000000000")
    assert current_id(copy) == before
    assert sorted(path.name for path in copy.iterdir()) == [".lock", before, CHECK, "current", "history.jsonl"]


def test_concurrent_promotions_succeed(copy: Path) -> None:
    """Threads here, processes in tests/registry/test_concurrent_changes.py."""
    names = [str(current_id(copy)), clone(find(copy), 0)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda turn: promote(copy, names[turn % 2]), range(100)))
    assert current_id(copy) in names
    assert (copy / "current").stat().st_mode & 0o777 == 0o644
    events = read(copy).events
    assert [event.previous for event in events] == [None, *(event.release for event in events[:-1])]
    assert sorted(path.name for path in copy.iterdir()) == [".lock", *names, CHECK, "current", "history.jsonl"]


def test_dangling_pointer_allows_listing_and_calibration(
    copy: Path, sample: Path, encoder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(find(copy))
    assert cli.main(["release", "list", "--releases", str(copy)]) == 0
    assert "names" in capfd.readouterr().err
    assert cli.main(["calibrate", str(sample), "--releases", str(copy), "--encoder", str(encoder)]) == 0
    assert "warning: " in capfd.readouterr().err
    assert verify(find(copy)).parent is None


def test_command_lists_shows_and_verifies(copy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = current_id(copy)
    assert cli.main(["release", "list", "--releases", str(copy)]) == 0
    assert capfd.readouterr().out.startswith(f"* {name}  ")
    assert cli.main(["release", "show", "--releases", str(copy)]) == 0
    assert json.loads(capfd.readouterr().out)["release_id"] == name
    assert cli.main(["release", "verify", "--releases", str(copy)]) == 0
    assert capfd.readouterr().out == f"ok {name}\n"
    (find(copy) / "index.faiss").write_bytes(b"")
    assert cli.main(["release", "verify", "--releases", str(copy), name]) == 1
    out, error = capfd.readouterr()
    assert out == f"failed {name}\n"
    assert "index.faiss" in error
    assert cli.main(["release", "show", "--releases", str(copy), "nonsense"]) == 2
    assert release_ids(copy) == [name]


@pytest.mark.slow
def test_command_promotes_verified_releases_only(
    copy: Path, sample: Path, encoder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = str(current_id(copy))
    options = ["--releases", str(copy), "--encoder", str(encoder), "--seed", "1", "--no-promote"]
    assert cli.main(["calibrate", str(sample), *options]) == 0
    (second,) = set(release_ids(copy)) - {first}
    capfd.readouterr()
    assert cli.main(["release", "promote", "--releases", str(copy), second]) == 0
    assert capfd.readouterr().out == f"* {second}\n"
    assert current_id(copy) == second
    (copy / first / "index.faiss").write_bytes(b"")
    assert cli.main(["release", "promote", "--releases", str(copy), first]) == 2
    assert "index.faiss" in capfd.readouterr().err
    assert current_id(copy) == second


def test_ids_sort_by_time() -> None:
    from datetime import UTC, datetime

    early, late = (release_id(datetime(2026, month, 1, tzinfo=UTC), "f" * 64) for month in (2, 11))
    assert early == "20260201T000000Z-ffffffffffff"
    assert early < late
