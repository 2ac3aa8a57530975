"""Releases in object storage: pushed so that half of one is none, copied so that nothing is opened unchecked."""

import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import fsspec.registry  # noqa: F401 (a test looks it up, where the package has something else by its name)
import pytest

from taugate.errors import InputError, ReleaseError, StoreError
from taugate.registry.catalog import current_id, find, release_ids
from taugate.registry.promotion import promote
from taugate.registry.remote.copy import ORIGIN, update_copy
from taugate.registry.remote.transfer import promote_remote, push
from taugate.registry.signing import read_private_key, sign
from taugate.retrieval.release.layout import CURRENT, MANIFEST
from taugate.retrieval.release.reader import load
from taugate.retrieval.release.signature import TrustedKeys
from taugate.retrieval.release.verify import verify
from taugate.storage.object_store import Store
from tests.keys import write_keys
from tests.object_storage import ObjectStorage, object_storage
from tests.retrieval.release.test_hostile_release import forge


@pytest.fixture
def release(releases: Path, tmp_path: Path) -> Path:
    """A release that a test may break."""
    return find(shutil.copytree(releases, tmp_path / "releases"))


def another(release: Path, name: str = "another") -> Path:
    """A release beside it, of a data set by another name."""
    copy = shutil.copytree(release, release.parent / "copy")
    return forge(copy, lambda folder, raw: raw["data"].update(name=name))


def pushed(release: Path, store: ObjectStorage) -> Path:
    push(release, store.url)
    promote_remote(store.url, release.name)
    return release


def test_what_is_pushed_comes_back_and_loads(release: Path, store: ObjectStorage, tmp_path: Path) -> None:
    pushed(release, store)
    copy = update_copy(store.url + "/", tmp_path / "copy")
    assert current_id(copy) == release.name
    assert load(find(copy)).manifest == verify(release)
    assert store.names() == {CURRENT} | {
        path.relative_to(release.parent).as_posix() for path in release.rglob("*") if path.is_file()
    }


def test_the_current_release_moves_and_the_one_before_stays(
    release: Path, store: ObjectStorage, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    names = []
    for each in (release, another(release, "b"), another(release, "c")):
        names.append(pushed(each, store).name)
        assert current_id(update_copy(store.url, copy)) == names[-1]
    assert set(release_ids(copy)) == set(names[1:])
    promote_remote(store.url, names[0])  # rolled back further than the copy reaches
    assert current_id(update_copy(store.url, copy)) == names[0]
    assert verify(find(copy)).release_id == names[0]


def test_half_a_push_is_no_release_and_the_next_one_finishes_it(
    release: Path, store: ObjectStorage, tmp_path: Path
) -> None:
    upload, uploaded = Store.upload, []

    def killed(self: Store, path: Path, name: str) -> None:
        if len(uploaded) == 4:
            raise KeyboardInterrupt
        uploaded.append(name)
        upload(self, path, name)

    with patch.object(Store, "upload", killed), pytest.raises(KeyboardInterrupt):
        push(release, store.url)
    promote_remote(store.url, release.name)
    with pytest.raises(ReleaseError, match=f"holds no release {release.name}"):
        update_copy(store.url, tmp_path / "copy")
    store.put(uploaded[0], b"x" * len(store.get(uploaded[0])))  # of the right size, and another
    again: list[str] = []
    with patch.object(Store, "upload", lambda self, path, name: again.append(name) or upload(self, path, name)):
        push(release, store.url)
    assert set(again).isdisjoint(uploaded[1:])
    assert uploaded[0] in again
    verify(find(update_copy(store.url, tmp_path / "copy")))
    with patch.object(Store, "upload", side_effect=AssertionError("uploaded twice")):
        push(release, store.url)


def test_another_release_of_the_same_id_is_not_overwritten(release: Path, store: ObjectStorage) -> None:
    pushed(release, store)
    store.put(f"{release.name}/{MANIFEST}", b"{}")
    with pytest.raises(ReleaseError, match=rf"{release.name}: holds another manifest\.json"):
        push(release, store.url)
    assert store.get(f"{release.name}/{MANIFEST}") == b"{}"


def test_what_does_not_verify_is_not_pushed(release: Path, store: ObjectStorage) -> None:
    (release / "report.html").write_bytes(b"")
    with pytest.raises(ReleaseError, match=r"report\.html"):
        push(release, store.url)
    assert store.names() == set()


HARMS: dict[str, tuple[Callable[[ObjectStorage, str], None], str]] = {
    "tampered": (lambda s, n: s.put(f"{n}/index.faiss", b"x" * len(s.get(f"{n}/index.faiss"))), "index.faiss: SHA-256"),
    "longer": (lambda s, n: s.put(f"{n}/golden.jsonl", s.get(f"{n}/golden.jsonl") + b"x"), "golden.jsonl: not the"),
    "shorter": (lambda s, n: s.put(f"{n}/golden.jsonl", b"x"), "golden.jsonl: not the"),
    "missing": (lambda s, n: s.remove(f"{n}/encoder/model.onnx"), "model.onnx: missing"),
    "manifest": (lambda s, n: s.put(f"{n}/manifest.json", b"{"), "s3://releases/team/.*manifest.json: cannot be read"),
    "no manifest": (lambda s, n: s.remove(f"{n}/manifest.json"), "holds no release"),
    "manifest without end": (lambda s, n: s.put(f"{n}/manifest.json", bytes(9 << 20)), "manifest.json: more than"),
    "pointer": (lambda s, n: s.put("current", b"../../etc"), "current: is not one line"),
    "pointer in no script": (lambda s, n: s.put("current", b"\xff"), "current: is not one line"),
    "pointer without end": (lambda s, n: s.put("current", bytes(1000)), "current: more than"),
    "no pointer": (lambda s, n: s.remove("current"), "no release is current"),
}


@pytest.mark.parametrize(("harm", "said"), HARMS.values(), ids=HARMS.keys())
def test_what_is_harmed_is_refused_and_the_copy_stays(
    release: Path, store: ObjectStorage, tmp_path: Path, harm: Callable[[ObjectStorage, str], None], said: str
) -> None:
    copy = update_copy(store.url, tmp_path / "copy") if pushed(release, store) else tmp_path
    other = pushed(another(release), store)
    harm(store, other.name)
    with pytest.raises(ReleaseError, match=said):
        update_copy(store.url, copy)
    assert current_id(copy) == release.name
    assert sorted(path.name for path in copy.iterdir() if path.name != ".bring.lock") == sorted(
        [release.name, CURRENT, ORIGIN]
    )
    verify(find(copy))
    store.put(CURRENT, other.name.encode())
    if "manifest" not in said:
        push(other, store.url)  # which mends everything but another manifest
        assert current_id(update_copy(store.url, copy)) == other.name


def test_a_damaged_copy_is_mended_when_asked(release: Path, store: ObjectStorage, tmp_path: Path) -> None:
    pushed(release, store)
    copy = update_copy(store.url, tmp_path / "copy")
    (find(copy) / "index.faiss").write_bytes(b"")
    with pytest.raises(ReleaseError, match=r"index\.faiss"):
        verify(find(update_copy(store.url, copy)))
    verify(find(update_copy(store.url, copy, repair=True)))


def test_signatures_travel_and_are_asked_for(release: Path, store: ObjectStorage, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path)
    trusted = TrustedKeys.load(public)
    with pytest.raises(ReleaseError, match="not signed"):
        push(release, store.url, trusted)
    pushed(release, store)
    with pytest.raises(ReleaseError, match=r"s3://releases/team/.*manifest\.sig: the release is not signed"):
        update_copy(store.url, tmp_path / "copy", trusted)
    sign(release, read_private_key(private))
    push(release, store.url, trusted)
    load(find(update_copy(store.url, tmp_path / "copy", trusted)), trusted=trusted)


def test_a_store_that_is_down_or_refuses_is_said(
    release: Path, store: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ReleaseError, match="s3://no-bucket/.*does not answer or refuses") as refused:
        push(release, "s3://no-bucket/x")
    assert not isinstance(refused.value, StoreError)
    with object_storage() as (other, server):
        monkeypatch.setenv("AWS_ENDPOINT_URL", other.environment["AWS_ENDPOINT_URL"])
        copy = update_copy(store.url, tmp_path / "copy") if pushed(release, other) else tmp_path
        server.stop()
        with pytest.raises(StoreError, match=r"s3://releases/team/current: the store does not answer"):
            update_copy(store.url, copy)
        with pytest.raises(StoreError, match="does not answer"):
            push(release, store.url)
        server.start()  # so that leaving the block can stop it
    load(find(copy))


def test_a_store_that_breaks_off_at_the_manifest_is_no_fault_of_the_release(
    release: Path, store: ObjectStorage, tmp_path: Path
) -> None:
    pushed(release, store)
    read = Store.read

    def broken(self: Store, name: str, most: int) -> bytes:
        if name.endswith(MANIFEST):
            raise StoreError("the store does not answer")
        return read(self, name, most)

    with patch.object(Store, "read", broken), pytest.raises(StoreError):
        update_copy(store.url, tmp_path / "copy")


def test_without_credentials_it_is_said(store: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ReleaseError, match="credentials"):
        update_copy(store.url, tmp_path / "copy")


def test_nothing_is_removed_from_a_folder_that_is_no_copy(release: Path, store: ObjectStorage, tmp_path: Path) -> None:
    pushed(release, store)
    with pytest.raises(InputError, match="is no copy of releases"):
        update_copy(store.url, release.parent)
    assert release_ids(release.parent) == [release.name]
    copy = update_copy(store.url, tmp_path / "copy")
    with pytest.raises(InputError, match="is a copy of s3://releases/team, not of s3://releases/other"):
        update_copy("s3://releases/other", copy)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="TAUGATE_RELEASES_COPY"):
        update_copy(store.url, tmp_path / "file")


def test_a_release_that_does_not_fit_the_disk_is_said_before_it_is_fetched(
    release: Path, store: ObjectStorage, tmp_path: Path
) -> None:
    pushed(release, store)
    with patch("taugate.registry.remote.download.shutil.disk_usage") as usage:
        usage.return_value.free = 1000
        with pytest.raises(ReleaseError, match="1000 are free"):
            update_copy(store.url, tmp_path / "copy")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nothing://x", "Protocol not known"),
        ("s3://key:secret@bucket/x", "holds credentials"),
        ("gs://bucket/x", "package for gs:// is missing"),
    ],
)
def test_a_url_that_cannot_be_used_is_said(tmp_path: Path, url: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        update_copy(url, tmp_path / "copy")
    assert "secret" not in str(refused.value)


def test_a_store_that_is_asked_at_once_and_is_not_there_is_said() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(StoreError, match="the store does not answer"):
        Store(f"ftp://127.0.0.1:{port}/releases")


@pytest.mark.parametrize("missing", ["fsspec.core", "s3fs"])
def test_without_its_packages_the_extra_is_named(tmp_path: Path, missing: str) -> None:
    with (
        patch.dict(sys.modules["fsspec.registry"]._registry, clear=True),  # of classes that were imported before
        patch.dict("sys.modules", {missing: None}),
        pytest.raises(InputError, match=r"pip install 'taugate\[storage\]'"),
    ):
        update_copy("s3://bucket/x", tmp_path / "copy")


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_other_file_systems_do_as_well(release: Path, tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}://{tmp_path}/store"
    push(release, url)
    promote_remote(url, release.name)
    load(find(update_copy(url, tmp_path / "copy")))
    promote(tmp_path / "copy", release.name)  # a copy is a releases directory
