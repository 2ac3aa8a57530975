"""Releases in object storage: a partial push does not count, and nothing is opened unchecked."""

import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import fsspec.registry  # noqa: F401 (a test looks it up, where the package has something else by its name)
import pytest

from taugate.cli import main as cli
from taugate.errors import InputError, ReleaseError, StoreError
from taugate.registry import history
from taugate.registry.catalog import current_id, find, release_ids
from taugate.registry.promotion import promote
from taugate.registry.transfer import ORIGIN, promote_remote, pull, push, update_copy
from taugate.registry.writer import read_private_key, sign
from taugate.release.layout import CURRENT, MANIFEST
from taugate.release.verify import TrustedKeys, verify
from taugate.retrieval.reader import load
from taugate.storage.object_store import Store
from tests.keys import write_keys
from tests.object_storage import MemoryStorage, ObjectStorage, object_storage
from tests.release.clones import clone, without_a_cut
from tests.release.test_hostile_release import forge


@pytest.fixture
def release(releases: Path, tmp_path: Path) -> Path:
    """A release that a test may break."""
    return find(shutil.copytree(releases, tmp_path / "releases"))


def another(release: Path, name: str = "another") -> Path:
    """A release beside it, of a data set by another name."""
    copy = shutil.copytree(release, release.parent / "copy")
    return forge(copy, lambda folder, raw: raw["data"].update(name=name))


def pushed(release: Path, store: ObjectStorage | MemoryStorage) -> Path:
    push(release, store.url)
    promote_remote(store.url, release.name)
    return release


def test_pushed_release_is_copied_and_loads(release: Path, store: ObjectStorage, tmp_path: Path) -> None:
    pushed(release, store)
    copy = update_copy(store.url + "/", tmp_path / "copy")
    assert current_id(copy) == release.name
    assert load(find(copy)).manifest == verify(release)
    assert pull(store.url, tmp_path / "pulled") == release.name == current_id(tmp_path / "pulled")
    assert store.names() == {CURRENT} | {
        path.relative_to(release.parent).as_posix() for path in release.rglob("*") if path.is_file()
    }


def test_copy_keeps_current_and_previous_release(release: Path, memory: MemoryStorage, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    names = []
    for each in (release, another(release, "b"), another(release, "c")):
        names.append(pushed(each, memory).name)
        assert current_id(update_copy(memory.url, copy)) == names[-1]
    assert set(release_ids(copy)) == set(names[1:])
    promote_remote(memory.url, names[0])  # rolled back further than the copy reaches
    assert current_id(update_copy(memory.url, copy)) == names[0]
    assert verify(find(copy)).release_id == names[0]


def test_interrupted_push_is_resumed(release: Path, memory: MemoryStorage, tmp_path: Path) -> None:
    upload, uploaded = Store.upload, []

    def killed(self: Store, path: Path, name: str) -> None:
        if len(uploaded) == 4:
            raise KeyboardInterrupt
        uploaded.append(name)
        upload(self, path, name)

    with patch.object(Store, "upload", killed), pytest.raises(KeyboardInterrupt):
        push(release, memory.url)
    promote_remote(memory.url, release.name)
    with pytest.raises(ReleaseError, match=f"holds no release {release.name}"):
        update_copy(memory.url, tmp_path / "copy")
    memory.put(uploaded[0], b"x" * len(memory.get(uploaded[0])))  # of the right size, and another
    again: list[str] = []
    with patch.object(Store, "upload", lambda self, path, name: again.append(name) or upload(self, path, name)):
        push(release, memory.url)
    assert set(again).isdisjoint(uploaded[1:])
    assert uploaded[0] in again
    verify(find(update_copy(memory.url, tmp_path / "copy")))
    with patch.object(Store, "upload", side_effect=AssertionError("uploaded twice")):
        push(release, memory.url)


def test_push_does_not_overwrite_other_release(release: Path, memory: MemoryStorage) -> None:
    pushed(release, memory)
    memory.put(f"{release.name}/{MANIFEST}", b"{}")
    with pytest.raises(ReleaseError, match=rf"{release.name}: holds another manifest\.json"):
        push(release, memory.url)
    assert memory.get(f"{release.name}/{MANIFEST}") == b"{}"


def test_damaged_release_is_not_pushed(release: Path, memory: MemoryStorage) -> None:
    (release / "report.html").write_bytes(b"")
    with pytest.raises(ReleaseError, match=r"report\.html"):
        push(release, memory.url)
    assert memory.names() == set()


Harm = Callable[[ObjectStorage | MemoryStorage, str], None]
HARMS: dict[str, tuple[Harm, str]] = {
    "tampered": (lambda s, n: s.put(f"{n}/index.faiss", b"x" * len(s.get(f"{n}/index.faiss"))), "index.faiss: SHA-256"),
    "longer": (
        lambda s, n: s.put(f"{n}/golden.jsonl", s.get(f"{n}/golden.jsonl") + b"x"),
        "golden.jsonl: its size is not",
    ),
    "shorter": (lambda s, n: s.put(f"{n}/golden.jsonl", b"x"), "golden.jsonl: its size is not"),
    "missing": (lambda s, n: s.remove(f"{n}/encoder/model.onnx"), "model.onnx: missing"),
    "manifest": (lambda s, n: s.put(f"{n}/manifest.json", b"{"), "/store/.*manifest.json: cannot be read"),
    "no manifest": (lambda s, n: s.remove(f"{n}/manifest.json"), "holds no release"),
    "manifest without end": (lambda s, n: s.put(f"{n}/manifest.json", bytes(9 << 20)), "manifest.json: more than"),
    "pointer": (lambda s, n: s.put("current", b"../../etc"), "current: does not hold one line"),
    "pointer in no script": (lambda s, n: s.put("current", b"\xff"), "current: does not hold one line"),
    "pointer without end": (lambda s, n: s.put("current", bytes(1000)), "current: more than"),
    "no pointer": (lambda s, n: s.remove("current"), "no release is current"),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    # S3 has errors of its own for objects that are missing.
    [*(("memory", name) for name in HARMS), pytest.param("store", "missing", marks=pytest.mark.slow)],
)
def test_damaged_download_keeps_copy(
    release: Path, request: pytest.FixtureRequest, kind: str, tmp_path: Path, name: str
) -> None:
    harm, message = HARMS[name]
    store = request.getfixturevalue(kind)
    copy = update_copy(store.url, tmp_path / "copy") if pushed(release, store) else tmp_path
    other = pushed(another(release), store)
    harm(store, other.name)
    with pytest.raises(ReleaseError, match=message):
        update_copy(store.url, copy)
    assert current_id(copy) == release.name
    assert sorted(path.name for path in copy.iterdir() if path.name != ".bring.lock") == sorted(
        [release.name, CURRENT, ORIGIN]
    )
    verify(find(copy))
    store.put(CURRENT, other.name.encode())
    if "manifest" not in message:
        push(other, store.url)  # which mends everything but another manifest
        assert current_id(update_copy(store.url, copy)) == other.name


def test_repair_replaces_damaged_copy(release: Path, memory: MemoryStorage, tmp_path: Path) -> None:
    pushed(release, memory)
    copy = update_copy(memory.url, tmp_path / "copy")
    (find(copy) / "index.faiss").write_bytes(b"")
    with pytest.raises(ReleaseError, match=r"index\.faiss"):
        verify(find(update_copy(memory.url, copy)))
    verify(find(update_copy(memory.url, copy, repair=True)))


def test_signatures_are_copied_and_required(release: Path, memory: MemoryStorage, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path)
    trusted = TrustedKeys.load(public)
    with pytest.raises(ReleaseError, match="not signed"):
        push(release, memory.url, trusted)
    pushed(release, memory)
    with pytest.raises(ReleaseError, match=r"/store/.*manifest\.sig: the release is not signed"):
        update_copy(memory.url, tmp_path / "copy", trusted)
    sign(release, read_private_key(private))
    push(release, memory.url, trusted)
    load(find(update_copy(memory.url, tmp_path / "copy", trusted)), trusted=trusted)


def test_unreachable_store_is_reported(
    release: Path, store: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ReleaseError, match="s3://no-bucket/.*does not respond or refuses") as refused:
        push(release, "s3://no-bucket/x")
    assert not isinstance(refused.value, StoreError)
    with object_storage() as (other, server):
        monkeypatch.setenv("AWS_ENDPOINT_URL", other.environment["AWS_ENDPOINT_URL"])
        copy = update_copy(store.url, tmp_path / "copy") if pushed(release, other) else tmp_path
        server.stop()
        with pytest.raises(StoreError, match=r"s3://releases/team/current: the store does not respond"):
            update_copy(store.url, copy)
        with pytest.raises(StoreError, match="does not respond"):
            push(release, store.url)
        server.start()  # so that leaving the block can stop it
    load(find(copy))


def test_store_error_is_not_release_error(release: Path, memory: MemoryStorage, tmp_path: Path) -> None:
    pushed(release, memory)
    read = Store.read

    def broken(self: Store, name: str, most: int) -> bytes:
        if name.endswith(MANIFEST):
            raise StoreError("the store does not respond")
        return read(self, name, most)

    with patch.object(Store, "read", broken), pytest.raises(StoreError):
        update_copy(memory.url, tmp_path / "copy")


def test_missing_credentials_are_reported(
    store: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ReleaseError, match="credentials"):
        update_copy(store.url, tmp_path / "copy")


def test_other_folder_is_not_used_as_copy(release: Path, store: ObjectStorage, tmp_path: Path) -> None:
    pushed(release, store)
    with pytest.raises(InputError, match="is not a copy of releases"):
        update_copy(store.url, release.parent)
    assert release_ids(release.parent) == [release.name]
    copy = update_copy(store.url, tmp_path / "copy")
    with pytest.raises(InputError, match="is a copy of s3://releases/team, not of s3://releases/other"):
        update_copy("s3://releases/other", copy)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="TAUGATE_CACHE"):
        update_copy(store.url, tmp_path / "file")


def test_full_disk_is_reported_before_download(release: Path, memory: MemoryStorage, tmp_path: Path) -> None:
    pushed(release, memory)
    with patch("taugate.registry.download.shutil.disk_usage") as usage:
        usage.return_value.free = 1000
        with pytest.raises(ReleaseError, match="only 1000 are free"):
            update_copy(memory.url, tmp_path / "copy")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nothing://x", "Protocol not known"),
        ("s3://key:secret@bucket/x", "holds credentials"),
        ("gs://bucket/x", "package for gs:// is missing"),
    ],
)
def test_unusable_url_is_refused(tmp_path: Path, url: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        update_copy(url, tmp_path / "copy")
    assert "secret" not in str(refused.value)


def test_store_that_connects_eagerly_is_reported() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(StoreError, match="the store does not respond"):
        Store(f"ftp://127.0.0.1:{port}/releases")


@pytest.mark.parametrize("missing", ["fsspec.core", "s3fs"])
def test_missing_package_names_extra(tmp_path: Path, missing: str) -> None:
    with (
        patch.dict(sys.modules["fsspec.registry"]._registry, clear=True),  # of classes that were imported before
        patch.dict("sys.modules", {missing: None}),
        pytest.raises(InputError, match=r"pip install 'taugate\[storage\]'"),
    ):
        update_copy("s3://bucket/x", tmp_path / "copy")


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_other_file_systems_are_supported(release: Path, tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}://{tmp_path}/store"
    push(release, url)
    promote_remote(url, release.name)
    load(find(update_copy(url, tmp_path / "copy")))
    promote(tmp_path / "copy", release.name)  # a copy is a releases directory


@pytest.fixture
def kept_store(memory: MemoryStorage) -> MemoryStorage:
    return memory


@pytest.fixture
def there(kept_store: MemoryStorage, releases: Path) -> str:
    """The id of what is current in the store."""
    release = find(releases)
    push(release, kept_store.url)
    promote_remote(kept_store.url, release.name)
    return release.name


def test_pull_makes_remote_current_release_current(kept_store: MemoryStorage, there: str, tmp_path: Path) -> None:
    here = tmp_path / "deep" / "releases"
    for _ in range(2):
        assert pull(kept_store.url, here) == there
        assert (current_id(here), release_ids(here)) == (there, [there])
        verify(find(here))
    assert len(history.read(here).events) == 1


def test_pull_from_empty_store_does_nothing(kept_store: MemoryStorage, tmp_path: Path) -> None:
    assert pull(kept_store.url, tmp_path / "r") is None
    assert list(tmp_path.iterdir()) == []


def test_current_release_with_policy_none_is_pulled(kept_store: MemoryStorage, there: str, tmp_path: Path) -> None:
    pull(kept_store.url, tmp_path / "a")
    name = clone(tmp_path / "a" / there, 1, without_a_cut)
    push(tmp_path / "a" / name, kept_store.url)
    promote_remote(kept_store.url, name)
    assert pull(kept_store.url, tmp_path / "b") == name == current_id(tmp_path / "b")


def test_pull_does_not_undo_local_promotion(kept_store: MemoryStorage, there: str, tmp_path: Path) -> None:
    here = tmp_path / "r"
    pull(kept_store.url, here)
    other = clone(here / there, 1)
    promote(here, other)
    with pytest.raises(
        ReleaseError, match=f"its current release is {other}, that of .* is {there}; run push --promote"
    ):
        pull(kept_store.url, here)
    assert pull(kept_store.url, here, there) == there, "by its id it may come, and changes nothing"
    assert current_id(here) == other


def test_named_release_is_pulled_without_promotion(kept_store: MemoryStorage, there: str, tmp_path: Path) -> None:
    assert pull(kept_store.url, tmp_path / "r", there) == there
    assert current_id(tmp_path / "r") is None
    promote(tmp_path / "r", there)


@pytest.mark.parametrize("name", ["../../etc", "20300101T000000Z-000000000000"])
def test_unknown_release_is_not_pulled(kept_store: MemoryStorage, there: str, tmp_path: Path, name: str) -> None:
    with pytest.raises(ReleaseError, match="holds no release"):
        pull(kept_store.url, tmp_path / "r", name)
    assert not (tmp_path / "r").exists() or release_ids(tmp_path / "r") == []


def test_damaged_release_is_not_pulled(kept_store: MemoryStorage, there: str, tmp_path: Path) -> None:
    kept_store.put(f"{there}/golden.jsonl", b"x" * len(kept_store.get(f"{there}/golden.jsonl")))
    with pytest.raises(ReleaseError, match=r"golden\.jsonl: SHA-256"):
        pull(kept_store.url, tmp_path / "r")
    assert release_ids(tmp_path / "r") == []
    kept_store.put(CURRENT, b"../../etc")
    with pytest.raises(ReleaseError, match="current: does not hold one line with a release id"):
        pull(kept_store.url, tmp_path / "r")


def test_pull_requires_trusted_signature(kept_store: MemoryStorage, releases: Path, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path)
    source = tmp_path / "signed"
    name = str(current_id(releases))
    push(find(releases), kept_store.url)
    promote_remote(kept_store.url, name)
    trusted = TrustedKeys.load(public)
    with pytest.raises(ReleaseError, match="not signed"):
        pull(kept_store.url, tmp_path / "r", trusted=trusted)
    pull(kept_store.url, source)
    sign(source / name, read_private_key(private))
    push(source / name, kept_store.url, trusted)
    assert pull(kept_store.url, tmp_path / "r", trusted=trusted) == name


def test_url_with_credentials_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds credentials"):
        pull("s3://key:secret@bucket/x", tmp_path / "r")


def test_push_refuses_unknown_remote_current(
    kept_store: MemoryStorage, there: str, releases: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A directory that is new, or was lost: its first release was compared with nothing."""
    pull(kept_store.url, tmp_path / "other", there)
    name = clone(tmp_path / "other" / there, 1)
    here = tmp_path / "new"
    here.mkdir()
    shutil.move(tmp_path / "other" / name, here / name)
    promote(here, name)
    names = kept_store.names()
    push_it = ["release", "push", "--releases", str(here), "--to", kept_store.url]
    assert cli.main([*push_it, "--promote"]) == 2
    message = capfd.readouterr().err
    assert message.startswith(
        f"taugate: {kept_store.url}: its current release {there} is not in {here}, so nothing was "
    )
    assert f"`taugate release pull {there}`, then push again" in message
    assert (kept_store.names(), kept_store.get(CURRENT).decode().strip()) == (names, there)
    assert cli.main(push_it) == 0, "without --promote it takes nobody's place"
    assert cli.main(["release", "pull", "--releases", str(here), "--from", kept_store.url, there]) == 0
    assert cli.main([*push_it, "--promote"]) == 0
    assert kept_store.get(CURRENT).decode().strip() == name


def test_invalid_remote_pointer_is_not_replaced(
    kept_store: MemoryStorage, there: str, releases: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["release", "push", "--releases", str(releases), "--to", kept_store.url, "--promote"]
    kept_store.put(CURRENT, b"../../etc")
    assert cli.main(arguments) == 2
    assert (
        "current: does not hold one line with a release id; find out who wrote it, remove it" in capfd.readouterr().err
    )
    kept_store.remove(CURRENT)
    assert cli.main(arguments) == 0
    assert kept_store.get(CURRENT).decode().strip() == there


def cron(kept_store: MemoryStorage, data: str, releases: Path, encoder: Path, *more: str) -> list[int]:
    """Exit codes of the commands of a recalibration, each only where the one before ended with 0."""
    commands = [
        ["pull", "--releases", str(releases), "--from", kept_store.url],
        ["calibrate", data, "--releases", str(releases), "--encoder", str(encoder), *more],
        ["push", "--releases", str(releases), "--to", kept_store.url, "--promote"],
    ]
    codes: list[int] = []
    for command in commands:
        if not any(codes):
            codes.append(cli.main(command if command[0] == "calibrate" else ["release", *command]))
    return codes


@pytest.mark.slow
def test_recalibration_works_from_object_store(
    kept_store: MemoryStorage, sample: Path, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first release, the same once more, one that keeps less, and one that may not be promoted."""
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        kept_store.put(f"zaragoza/{name}", (sample / name).read_bytes())
    data, rule = f"{kept_store.url}/zaragoza", ("--max-accuracy-drop", "0.1", "--max-kept-increase", "auto")

    def run(day: str, *more: str) -> list[int]:
        return cron(kept_store, data, tmp_path / day, encoder, *rule, *more)

    assert run("monday") == [0, 0, 0]
    assert "no release is current there; nothing was pulled" in capfd.readouterr().err
    first = kept_store.get(CURRENT).decode().strip()
    assert run("tuesday", "--max-loss", "0.05") == [0, 0, 0]
    second = kept_store.get(CURRENT).decode().strip()
    assert second == current_id(tmp_path / "tuesday") != first
    assert set(release_ids(tmp_path / "tuesday")) == {first, second}
    assert run("wednesday", "--max-loss", "0.05", "--seed", "1", "--policy", "similarity") == [0, 4]
    assert run("thursday", "--max-loss", "0.001") == [0, 5], "503 documents are too few for any test"
    assert kept_store.get(CURRENT).decode().strip() == second
    names = kept_store.names()
    assert run("friday", "--max-loss", "0.05") == [0, 0, 0], "the same content once more"
    assert kept_store.names() == names
    assert kept_store.get(CURRENT).decode().strip() == second
