"""`taugate calibrate URL`: the same data set from object storage gives the same release, or one message and nothing."""

import gzip
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import pytest

from taugate.cli import main as cli
from taugate.ingestion.dataset.beir import read_dataset
from taugate.ingestion.dataset.location import local_folder
from taugate.registry.catalog import release_ids
from tests.calibration.commands import refusal
from tests.object_storage import ObjectStorage, empty_bucket
from tests.pace import at_most

FILES = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")


@pytest.fixture
def store(sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStorage:
    """A bucket with the sample at team/zaragoza; temporary files have a folder of their own."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    bucket = empty_bucket()
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    for name in FILES:
        bucket.put(f"zaragoza/{name}", (sample / name).read_bytes())
    return bucket


def command(url: str, releases: Path, encoder: Path) -> list[str]:
    return ["calibrate", url, "--verbose", "--releases", str(releases), "--encoder", str(encoder)]


def refused(url: str, releases: Path, encoder: Path, capfd: pytest.CaptureFixture[str], code: int = 2) -> str:
    """Return the error, after a check that no temporary file is left."""
    messages = refusal(command(url, releases, encoder), releases, capfd, code)
    assert list((releases.parent / "tmp").iterdir()) == []
    return messages


@pytest.mark.parametrize("end", ["", "/"])
def test_remote_data_set_gives_same_release(
    store: ObjectStorage, releases: Path, encoder: Path, tmp_path: Path, end: str
) -> None:
    assert cli.main(command(f"{store.url}/zaragoza{end}", tmp_path / "r", encoder)) == 0
    (there,), (here,) = release_ids(tmp_path / "r"), release_ids(releases)
    assert there[-12:] == here[-12:]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_remote_packed_files_give_same_documents(store: ObjectStorage, sample: Path, tmp_path: Path) -> None:
    for name in FILES:
        store.remove(f"zaragoza/{name}")
        store.put(f"zaragoza/{name}.gz", gzip.compress((sample / name).read_bytes()))
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    with local_folder(f"{store.url}/zaragoza", "test") as folder:
        results = read_dataset(folder, "test", tmp_path / "there")
    assert [*results.documents] == [*read_dataset(sample, "test", tmp_path / "here").documents]


def test_remote_file_stored_twice_refused(
    store: ObjectStorage, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store.put("zaragoza/queries.jsonl.gz", b"")
    messages = refused(f"{store.url}/zaragoza", tmp_path / "r", encoder, capfd)
    assert messages.startswith(f"{store.url}/zaragoza/queries.jsonl: queries.jsonl.gz also exists")


@pytest.mark.parametrize("name", FILES)
def test_remote_file_missing_is_refused(
    store: ObjectStorage, encoder: Path, tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    store.remove(f"zaragoza/{name}")
    messages = refused(f"{store.url}/zaragoza", tmp_path / "r", encoder, capfd)
    assert messages.startswith(f"{store.url}/zaragoza/{name}: no such object; a data set is corpus.jsonl")


def test_remote_file_fault_names_its_url(
    store: ObjectStorage, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store.put("zaragoza/queries.jsonl", b'{"_id": "a", "text": ""}\n')
    messages = refused(f"{store.url}/zaragoza", tmp_path / "r", encoder, capfd)
    assert messages.startswith(f'{store.url}/zaragoza/queries.jsonl:1: "text" is empty; ')
    assert str(tmp_path) not in messages


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://no-bucket/zaragoza", "s3://no-bucket/zaragoza/qrels/test.tsv: "),
        ("s3://releases/team/elsewhere", "no such object"),
        ("s3://no bucket/zaragoza", "Invalid bucket name"),
        ("s3://key:secret@releases/team", "the URL holds credentials"),
        ("nothing://releases/team", "Protocol not known"),
        ("gs://releases/team", "package for gs:// is missing"),
        ("s3://releases/team/..", "does not end in the name of a data set"),
    ],
)
@pytest.mark.slow
def test_url_that_is_unusable_refused(
    store: ObjectStorage, encoder: Path, tmp_path: Path, url: str, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    messages = refused(url, tmp_path / "r", encoder, capfd)
    assert says in messages
    assert "secret" not in messages


def test_unreachable_store_is_not_input_error(
    store: ObjectStorage,
    encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{probe.getsockname()[1]}")
        messages = refused(f"{store.url}/zaragoza", tmp_path / "r", encoder, capfd, code=1)
    assert "the store does not respond or refuses" in messages


@pytest.mark.parametrize(("fault", "code"), [(OSError(5, "reset"), 1), (EOFError(), 1), (PermissionError("no"), 2)])
@pytest.mark.slow
def test_interrupted_download_is_reported(
    store: ObjectStorage, encoder: Path, tmp_path: Path, fault: Exception, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with patch("s3fs.core.S3File._fetch_range", side_effect=fault):
        messages = refused(f"{store.url}/zaragoza", tmp_path / "r", encoder, capfd, code)
    assert messages.startswith(f"{store.url}/zaragoza/qrels/test.tsv: the store does not respond or refuses (")


def test_full_disk_reported_before_download(
    store: ObjectStorage, sample: Path, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Twice the size of the corpus is needed: for the download, and for the spooled documents."""
    sizes = {name: (sample / name).stat().st_size for name in FILES}
    needed = sum(sizes.values()) + sizes["corpus.jsonl"]
    with (
        patch("taugate.ingestion.dataset.location.shutil.disk_usage") as usage,
        patch("taugate.storage.object_store.Store.download", side_effect=AssertionError("fetched")),
    ):
        usage.return_value.free = needed - 1
        messages = refused(f"{store.url}/zaragoza", tmp_path / "r", encoder, capfd)
    assert f"it takes {needed} bytes in {tmp_path / 'tmp'}, but only {needed - 1} are free" in messages


def test_file_changed_during_download_refused(
    store: ObjectStorage, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with patch("taugate.storage.object_store.Store.size", lambda _, name: None if name.endswith(".gz") else 100):
        messages = refused(f"{store.url}/zaragoza", tmp_path / "r", encoder, capfd)
    assert "size changed from 100 bytes during the download" in messages


def test_file_url_gives_the_same_release(sample: Path, releases: Path, encoder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(sample, tmp_path / "somewhere" / "zaragoza")
    assert cli.main(command(f"file://{copy}", tmp_path / "r", encoder)) == 0
    assert release_ids(tmp_path / "r")[0][-12:] == release_ids(releases)[0][-12:]


@pytest.mark.slow
def test_sigterm_ends_a_waiting_download(encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment = os.environ | {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "TMPDIR": str(tmp_path / "tmp"),
        }
        words = [
            sys.executable,
            "-m",
            "taugate",
            *command("s3://bucket/set", tmp_path / "r", encoder),
            "--split",
            "test",
        ]
        with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as process:
            silent.settimeout(60)
            with silent.accept()[0]:
                assert any((tmp_path / "tmp").glob("taugate-data-*"))
                began = time.monotonic()
                process.send_signal(signal.SIGTERM)
                assert process.wait(120) == 130
                assert time.monotonic() - began < at_most(10)
                assert process.stderr is not None
                assert process.stderr.read().splitlines()[-1] == "taugate: interrupted"
    assert list((tmp_path / "tmp").glob("taugate*")) == []
    assert not (tmp_path / "r").exists()
