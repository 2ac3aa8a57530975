"""`taugate calibrate URL`: the same data set from object storage gives the same release, or one message and nothing."""

import gzip
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from taugate.cli import main as cli
from taugate.ingestion.dataset.beir import read_dataset
from taugate.ingestion.dataset.location import local_folder
from taugate.registry.catalog import release_ids
from tests.calibration.commands import refusal
from tests.object_storage import ObjectStorage, object_storage

FILES = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")


@pytest.fixture
def store(sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStorage]:
    """A bucket with the sample at team/zaragoza; temporary files have a folder of their own."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    with object_storage() as (bucket, _):
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        for name in FILES:
            bucket.put(f"zaragoza/{name}", (sample / name).read_bytes())
        yield bucket


def command(url: str, releases: Path, encoder: Path) -> list[str]:
    return ["calibrate", url, "--releases", str(releases), "--encoder", str(encoder)]


def refused(url: str, releases: Path, encoder: Path, capfd: pytest.CaptureFixture[str], code: int = 2) -> str:
    """Nothing is left of it, either."""
    said = refusal(command(url, releases, encoder), releases, capfd, code)
    assert list((releases.parent / "tmp").iterdir()) == []
    return said


@pytest.mark.parametrize("end", ["", "/"])
def test_it_is_the_same_release(store: ObjectStorage, releases: Path, encoder: Path, tmp_path: Path, end: str) -> None:
    assert cli.main(command(f"{store.url}/zaragoza{end}", tmp_path / "r", encoder)) == 0
    (there,), (here,) = release_ids(tmp_path / "r"), release_ids(releases)
    assert there[-12:] == here[-12:]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_packed_files_give_the_same_documents(store: ObjectStorage, sample: Path, tmp_path: Path) -> None:
    for name in FILES:
        store.remove(f"zaragoza/{name}")
        store.put(f"zaragoza/{name}.gz", gzip.compress((sample / name).read_bytes()))
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    with local_folder(f"{store.url}/zaragoza", "test") as folder:
        found = read_dataset(folder, "test", tmp_path / "there")
    assert [*found.documents] == [*read_dataset(sample, "test", tmp_path / "here").documents]


def test_a_file_that_is_there_twice(
    store: ObjectStorage, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store.put("zaragoza/queries.jsonl.gz", b"")
    said = refused(f"{store.url}/zaragoza", tmp_path / "r", encoder, capfd)
    assert said.startswith(f"{store.url}/zaragoza/queries.jsonl: queries.jsonl.gz is there as well")


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_not_there(
    store: ObjectStorage, encoder: Path, tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    store.remove(f"zaragoza/{name}")
    said = refused(f"{store.url}/zaragoza", tmp_path / "r", encoder, capfd)
    assert said.startswith(f"{store.url}/zaragoza/{name}: no such object; a data set is corpus.jsonl")


def test_a_fault_in_a_file_is_told_with_its_url(
    store: ObjectStorage, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store.put("zaragoza/queries.jsonl", b'{"_id": "a", "text": ""}\n')
    said = refused(f"{store.url}/zaragoza", tmp_path / "r", encoder, capfd)
    assert said.startswith(f'{store.url}/zaragoza/queries.jsonl:1: "text" is empty; ')
    assert str(tmp_path) not in said


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
def test_a_url_that_leads_nowhere(
    store: ObjectStorage, encoder: Path, tmp_path: Path, url: str, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    said = refused(url, tmp_path / "r", encoder, capfd)
    assert says in said
    assert "secret" not in said


def test_a_store_that_is_not_there_is_no_fault_of_the_data(
    store: ObjectStorage,
    encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{probe.getsockname()[1]}")
        said = refused(f"{store.url}/zaragoza", tmp_path / "r", encoder, capfd, code=1)
    assert "the store does not answer or refuses" in said


@pytest.mark.parametrize(("fault", "code"), [(OSError(5, "reset"), 1), (EOFError(), 1), (PermissionError("no"), 2)])
def test_a_store_that_breaks_off(
    store: ObjectStorage, encoder: Path, tmp_path: Path, fault: Exception, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with patch("s3fs.core.S3File._fetch_range", side_effect=fault):
        said = refused(f"{store.url}/zaragoza", tmp_path / "r", encoder, capfd, code)
    assert said.startswith(f"{store.url}/zaragoza/qrels/test.tsv: the store does not answer or refuses (")


def test_a_disk_without_room_is_said_before_anything_is_fetched(
    store: ObjectStorage, sample: Path, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Twice the corpus: it is fetched, and its documents are spooled."""
    sizes = {name: (sample / name).stat().st_size for name in FILES}
    needed = sum(sizes.values()) + sizes["corpus.jsonl"]
    with (
        patch("taugate.ingestion.dataset.location.shutil.disk_usage") as usage,
        patch("taugate.storage.object_store.Store.download", side_effect=AssertionError("fetched")),
    ):
        usage.return_value.free = needed - 1
        said = refused(f"{store.url}/zaragoza", tmp_path / "r", encoder, capfd)
    assert f"it takes {needed} bytes in {tmp_path / 'tmp'}, but only {needed - 1} are free" in said


def test_a_file_that_changes_meanwhile(
    store: ObjectStorage, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with patch("taugate.storage.object_store.Store.size", lambda _, name: None if name.endswith(".gz") else 100):
        said = refused(f"{store.url}/zaragoza", tmp_path / "r", encoder, capfd)
    assert "no longer the 100 bytes that it had" in said


def test_other_stores_do_as_well(sample: Path, releases: Path, encoder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(sample, tmp_path / "somewhere" / "zaragoza")
    assert cli.main(command(f"file://{copy}", tmp_path / "r", encoder)) == 0
    assert release_ids(tmp_path / "r")[0][-12:] == release_ids(releases)[0][-12:]


def test_told_to_end_while_a_store_keeps_it_waiting(encoder: Path, tmp_path: Path) -> None:
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
                assert process.wait(30) == 130
                assert time.monotonic() - began < 10
                assert process.stderr is not None
                assert process.stderr.read().splitlines()[-1] == "taugate: interrupted"
    assert list((tmp_path / "tmp").glob("taugate*")) == []
    assert not (tmp_path / "r").exists()
