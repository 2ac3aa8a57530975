"""Calibration without a persistent directory: pull the current release, and replace it by a rule."""

import shutil
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.errors import InputError, ReleaseError
from taugate.registry import history
from taugate.registry.catalog import current_id, find, release_ids
from taugate.registry.promotion import promote
from taugate.registry.transfer import promote_remote, pull, push
from taugate.registry.writer import read_private_key, sign
from taugate.release.layout import CURRENT
from taugate.release.verify import TrustedKeys, verify
from tests.keys import write_keys
from tests.object_storage import MemoryStorage
from tests.release.clones import clone, without_a_cut


@pytest.fixture
def store(memory: MemoryStorage) -> MemoryStorage:
    return memory


@pytest.fixture
def there(store: MemoryStorage, releases: Path) -> str:
    """The id of what is current in the store."""
    release = find(releases)
    push(release, store.url)
    promote_remote(store.url, release.name)
    return release.name


def test_pull_makes_remote_current_release_current(store: MemoryStorage, there: str, tmp_path: Path) -> None:
    here = tmp_path / "deep" / "releases"
    for _ in range(2):
        assert pull(store.url, here) == there
        assert (current_id(here), release_ids(here)) == (there, [there])
        verify(find(here))
    assert len(history.read(here).events) == 1


def test_pull_from_empty_store_does_nothing(store: MemoryStorage, tmp_path: Path) -> None:
    assert pull(store.url, tmp_path / "r") is None
    assert list(tmp_path.iterdir()) == []


def test_current_release_with_policy_none_is_pulled(store: MemoryStorage, there: str, tmp_path: Path) -> None:
    pull(store.url, tmp_path / "a")
    name = clone(tmp_path / "a" / there, 1, without_a_cut)
    push(tmp_path / "a" / name, store.url)
    promote_remote(store.url, name)
    assert pull(store.url, tmp_path / "b") == name == current_id(tmp_path / "b")


def test_pull_does_not_undo_local_promotion(store: MemoryStorage, there: str, tmp_path: Path) -> None:
    here = tmp_path / "r"
    pull(store.url, here)
    other = clone(here / there, 1)
    promote(here, other)
    with pytest.raises(
        ReleaseError, match=f"its current release is {other}, that of .* is {there}; run push --promote"
    ):
        pull(store.url, here)
    assert pull(store.url, here, there) == there, "by its id it may come, and changes nothing"
    assert current_id(here) == other


def test_named_release_is_pulled_without_promotion(store: MemoryStorage, there: str, tmp_path: Path) -> None:
    assert pull(store.url, tmp_path / "r", there) == there
    assert current_id(tmp_path / "r") is None
    promote(tmp_path / "r", there)


@pytest.mark.parametrize("name", ["../../etc", "20300101T000000Z-000000000000"])
def test_unknown_release_is_not_pulled(store: MemoryStorage, there: str, tmp_path: Path, name: str) -> None:
    with pytest.raises(ReleaseError, match="holds no release"):
        pull(store.url, tmp_path / "r", name)
    assert not (tmp_path / "r").exists() or release_ids(tmp_path / "r") == []


def test_damaged_release_is_not_pulled(store: MemoryStorage, there: str, tmp_path: Path) -> None:
    store.put(f"{there}/golden.jsonl", b"x" * len(store.get(f"{there}/golden.jsonl")))
    with pytest.raises(ReleaseError, match=r"golden\.jsonl: SHA-256"):
        pull(store.url, tmp_path / "r")
    assert release_ids(tmp_path / "r") == []
    store.put(CURRENT, b"../../etc")
    with pytest.raises(ReleaseError, match="current: does not hold one line with a release id"):
        pull(store.url, tmp_path / "r")


def test_pull_requires_trusted_signature(store: MemoryStorage, releases: Path, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path)
    source = tmp_path / "signed"
    name = str(current_id(releases))
    push(find(releases), store.url)
    promote_remote(store.url, name)
    trusted = TrustedKeys.load(public)
    with pytest.raises(ReleaseError, match="not signed"):
        pull(store.url, tmp_path / "r", trusted=trusted)
    pull(store.url, source)
    sign(source / name, read_private_key(private))
    push(source / name, store.url, trusted)
    assert pull(store.url, tmp_path / "r", trusted=trusted) == name


def test_url_with_credentials_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds credentials"):
        pull("s3://key:secret@bucket/x", tmp_path / "r")


def test_push_refuses_unknown_remote_current(
    store: MemoryStorage, there: str, releases: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A directory that is new, or was lost: its first release was compared with nothing."""
    pull(store.url, tmp_path / "other", there)
    name = clone(tmp_path / "other" / there, 1)
    here = tmp_path / "new"
    here.mkdir()
    shutil.move(tmp_path / "other" / name, here / name)
    promote(here, name)
    names = store.names()
    push_it = ["release", "push", "--releases", str(here), "--to", store.url]
    assert cli.main([*push_it, "--promote"]) == 2
    message = capfd.readouterr().err
    assert message.startswith(f"taugate: {store.url}: its current release {there} is not in {here}, so nothing was ")
    assert f"`taugate release pull {there}`, then push again" in message
    assert (store.names(), store.get(CURRENT).decode().strip()) == (names, there)
    assert cli.main(push_it) == 0, "without --promote it takes nobody's place"
    assert cli.main(["release", "pull", "--releases", str(here), "--from", store.url, there]) == 0
    assert cli.main([*push_it, "--promote"]) == 0
    assert store.get(CURRENT).decode().strip() == name


def test_invalid_remote_pointer_is_not_replaced(
    store: MemoryStorage, there: str, releases: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["release", "push", "--releases", str(releases), "--to", store.url, "--promote"]
    store.put(CURRENT, b"../../etc")
    assert cli.main(arguments) == 2
    assert (
        "current: does not hold one line with a release id; find out who wrote it, remove it" in capfd.readouterr().err
    )
    store.remove(CURRENT)
    assert cli.main(arguments) == 0
    assert store.get(CURRENT).decode().strip() == there


def cron(store: MemoryStorage, data: str, releases: Path, encoder: Path, *more: str) -> list[int]:
    """Exit codes of the commands of a recalibration, each only where the one before ended with 0."""
    commands = [
        ["pull", "--releases", str(releases), "--from", store.url],
        ["calibrate", data, "--releases", str(releases), "--encoder", str(encoder), *more],
        ["push", "--releases", str(releases), "--to", store.url, "--promote"],
    ]
    codes: list[int] = []
    for command in commands:
        if not any(codes):
            codes.append(cli.main(command if command[0] == "calibrate" else ["release", *command]))
    return codes


@pytest.mark.slow
def test_recalibration_works_from_object_store(
    store: MemoryStorage, sample: Path, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first release, the same once more, one that keeps less, and one that may not be promoted."""
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        store.put(f"zaragoza/{name}", (sample / name).read_bytes())
    data, rule = f"{store.url}/zaragoza", ("--max-accuracy-drop", "0.1", "--max-kept-increase", "auto")

    def run(day: str, *more: str) -> list[int]:
        return cron(store, data, tmp_path / day, encoder, *rule, *more)

    assert run("monday") == [0, 0, 0]
    assert "no release is current there; nothing was pulled" in capfd.readouterr().err
    first = store.get(CURRENT).decode().strip()
    assert run("tuesday", "--max-loss", "0.05") == [0, 0, 0]
    second = store.get(CURRENT).decode().strip()
    assert second == current_id(tmp_path / "tuesday") != first
    assert set(release_ids(tmp_path / "tuesday")) == {first, second}
    assert run("wednesday", "--max-loss", "0.05", "--seed", "1", "--policy", "similarity") == [0, 4]
    assert run("thursday", "--max-loss", "0.001") == [0, 5], "503 documents are too few for any test"
    assert store.get(CURRENT).decode().strip() == second
    names = store.names()
    assert run("friday", "--max-loss", "0.05") == [0, 0, 0], "the same content once more"
    assert store.names() == names
    assert store.get(CURRENT).decode().strip() == second
