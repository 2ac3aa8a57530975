"""`taugate calibrate URL`: the same data set from object storage gives the same release, or one message and nothing."""

import gzip
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from taugate.cli import main as cli
from taugate.data.beir import read_dataset
from taugate.data.location import local_folder
from taugate.registry.catalog import release_ids
from tests.calibration.commands import refusal
from tests.object_storage import ObjectStorage, empty_bucket
from tests.pace import at_most

Refused = Callable[..., str]
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


@pytest.fixture
def refused(store: ObjectStorage, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Refused:
    """The error of a calibration on the bucket or another URL, which leaves no temporary file."""

    def run(url: str = f"{store.url}/zaragoza", code: int = 2) -> str:
        message = refusal(command(url, tmp_path / "r", encoder), tmp_path / "r", capfd, code)
        assert list((tmp_path / "tmp").iterdir()) == []
        return message

    return run


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


def test_remote_file_stored_twice_refused(store: ObjectStorage, refused: Refused) -> None:
    store.put("zaragoza/queries.jsonl.gz", b"")
    assert refused().startswith(f"{store.url}/zaragoza/queries.jsonl: queries.jsonl.gz also exists")


@pytest.mark.parametrize("name", FILES)
def test_remote_file_missing_is_refused(store: ObjectStorage, refused: Refused, name: str) -> None:
    store.remove(f"zaragoza/{name}")
    assert refused().startswith(f"{store.url}/zaragoza/{name}: no such object; a data set is corpus.jsonl")


def test_remote_file_fault_names_its_url(store: ObjectStorage, refused: Refused, tmp_path: Path) -> None:
    store.put("zaragoza/queries.jsonl", b'{"_id": "a", "text": ""}\n')
    message = refused()
    assert message.startswith(f'{store.url}/zaragoza/queries.jsonl:1: "text" is empty; ')
    assert str(tmp_path) not in message


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
def test_url_that_is_unusable_refused(refused: Refused, url: str, says: str) -> None:
    message = refused(url)
    assert says in message
    assert "secret" not in message


def test_unreachable_store_is_not_input_error(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{probe.getsockname()[1]}")
        assert "the store does not respond or refuses" in refused(code=1)


@pytest.mark.parametrize(("fault", "code"), [(OSError(5, "reset"), 1), (EOFError(), 1), (PermissionError("no"), 2)])
@pytest.mark.slow
def test_interrupted_download_is_reported(store: ObjectStorage, refused: Refused, fault: Exception, code: int) -> None:
    with patch("s3fs.core.S3File._fetch_range", side_effect=fault):
        message = refused(code=code)
    assert message.startswith(f"{store.url}/zaragoza/qrels/test.tsv: the store does not respond or refuses (")


def test_full_disk_reported_before_download(sample: Path, refused: Refused, tmp_path: Path) -> None:
    """Twice the size of the corpus is needed: for the download, and for the spooled documents."""
    sizes = {name: (sample / name).stat().st_size for name in FILES}
    needed = sum(sizes.values()) + sizes["corpus.jsonl"]
    with (
        patch("taugate.data.location.shutil.disk_usage") as usage,
        patch("taugate.storage.object_store.Store.download", side_effect=AssertionError("fetched")),
    ):
        usage.return_value.free = needed - 1
        message = refused()
    assert f"it takes {needed} bytes in {tmp_path / 'tmp'}, but only {needed - 1} are free" in message


def test_file_changed_during_download_refused(refused: Refused) -> None:
    with patch("taugate.storage.object_store.Store.size", lambda _, name: None if name.endswith(".gz") else 100):
        assert "size changed from 100 bytes during the download" in refused()


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
