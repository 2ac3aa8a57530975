"""`taugate encode`: the same shards whoever encodes them, and what is done is not done again."""

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from engines_tests.encoding.encoding_process import EncodingProcess, shards_in
from taugate.calibration.encoding.sharded_vectors import ShardedVectors
from taugate.calibration.encoding.shards import RECORD
from taugate.calibration.encoding.source import RequestedEncoder
from taugate.calibration.progress import Job
from taugate.cli.main import main
from taugate.data.beir import read_dataset
from taugate.errors import InputError
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate_engines.encoding import encode as encode_module
from taugate_engines.encoding.encode import Encoded, Workers, encode_corpus
from taugate_engines.encoding.ray_workers import Worker
from tests.fake_encoder import write_fake_encoder
from tests.object_storage import object_storage

ROWS, SHARDS = 16, 32  # of the sample: 503 documents


def _encode(data: Path, to: str | Path, encoder: Path, workers: Workers = Workers()) -> Encoded:  # noqa: B008 (frozen)
    return encode_corpus(str(data), str(to), RequestedEncoder(str(encoder), new=True), workers, Job(), ROWS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, sample: Path, encoder: Path) -> Path:
    """An encoding of the sample that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    assert _encode(sample, folder, encoder).encoded == SHARDS
    return folder


def _digest(folder: Path) -> str:
    return json.loads((folder / RECORD).read_bytes())["digest"]


def test_shards_match_in_memory_vectors(whole: Path, sample: Path, encoder: Path, tmp_path: Path) -> None:
    loaded = ExportedEncoder.load(encoder)
    dataset = read_dataset(sample, "test", tmp_path)
    expected = loaded.encode([each.encoded_text for each in dataset.documents], "document")
    vectors = ShardedVectors.open(str(whole), loaded.sha256, tmp_path)
    vectors.check_corpus(str(whole), tmp_path)
    assert vectors[np.arange(len(expected))].tobytes() == expected.tobytes()


@pytest.mark.exhaustive
def test_killed_workers_leave_resumable_shards(whole: Path, sample: Path, encoder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    first = EncodingProcess(sample, folder, str(encoder), 2, ROWS)
    first.wait_for_shards(3)
    first.kill()
    done = shards_in(folder)
    assert 3 <= len(done) < SHARDS, "killed too late to show anything"
    assert not (folder / RECORD).exists()

    second = EncodingProcess(sample, folder, str(encoder), 1, ROWS)
    second.wait_for_shards(len(done) + 3)
    killed = second.kill_worker()
    result = second.result()
    assert killed, "no worker to kill"
    assert (folder / RECORD).read_bytes() == (whole / RECORD).read_bytes()
    assert done.items() <= shards_in(folder).items(), "a finished shard was encoded again"
    # the one in flight may have been written by a worker that could no longer say so
    assert SHARDS - len(done) - 1 <= result["encoded"] <= SHARDS - len(done)


def test_only_damaged_shards_are_encoded_again(whole: Path, sample: Path, encoder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "copy"))
    assert _encode(sample, folder, encoder).encoded == 0
    shards = sorted((folder / "shards").iterdir())
    content = bytearray(shards[0].read_bytes())
    content[-1] ^= 1
    shards[0].write_bytes(content)
    shards[1].unlink()
    assert _encode(sample, folder, encoder).encoded == 2
    assert _digest(folder) == _digest(whole)
    (folder / RECORD).unlink()
    shards[2].write_bytes(b"")
    assert _encode(sample, folder, encoder).encoded == 1
    assert _digest(folder) == _digest(whole)


@pytest.mark.slow
def test_object_storage_matches_local_encoding(
    whole: Path, sample: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with object_storage() as (bucket, _):
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        url = f"{bucket.url}/vectors"
        assert _encode(sample, url, encoder).encoded == SHARDS
        assert bucket.get(f"vectors/{RECORD}") == (whole / RECORD).read_bytes()
        assert len(bucket.names()) == SHARDS + 1
        loaded = ExportedEncoder.load(encoder)
        vectors = ShardedVectors.open(url, loaded.sha256, tmp_path)
        kept = ShardedVectors.open(str(whole), loaded.sha256, tmp_path)
        assert vectors[np.arange(503)].tobytes() == kept[np.arange(503)].tobytes()


def test_remote_workers_read_shared_copies(
    whole: Path, sample: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a cluster, with Ray replaced by a worker that knows only what travels."""
    from taugate_engines.encoding import ray_workers

    def elsewhere(work, shards, workers, address):
        assert (work.spool, work.folder, workers, address) == (None, None, 3, "auto")
        worker = Worker(work)
        for number, shard in enumerate(shards):
            yield number, *worker.encode(shard)

    monkeypatch.setattr(ray_workers, "encode_with_ray", elsewhere)
    folder = tmp_path / "encoding"
    shutil.copytree(whole / "shards", folder / "shards")
    removed = sorted((folder / "shards").iterdir())[:5]
    for each in removed:
        each.unlink()
    done = _encode(sample, f"file://{folder}", encoder, Workers(3, "auto"))
    assert (done.encoded, done.record.digest) == (5, _digest(whole))
    assert {each.relative_to(folder).parts[0] for each in folder.rglob("*") if each.is_file()} == {"shards", RECORD}


def test_worker_with_other_packages_is_rejected(
    sample: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from taugate_engines.encoding import ray_workers

    def elsewhere(given, shards, workers, address):
        monkeypatch.setattr(ray_workers, "version", lambda name: "0.1")
        yield 0, *Worker(given).encode(shards[0])

    monkeypatch.setattr(ray_workers, "encode_with_ray", elsewhere)
    with pytest.raises(InputError, match=r"a worker has taugate 0\.1, onnxruntime .* install the same everywhere"):
        _encode(sample, tmp_path, encoder, Workers(1, "auto"))


def test_conflicting_location_or_options_are_rejected(whole: Path, sample: Path, encoder: Path, tmp_path: Path) -> None:
    other = write_fake_encoder(tmp_path / "other", ["roof"], seed=1)
    with pytest.raises(InputError, match="holds vectors of another encoder"):
        _encode(sample, whole, other)
    changed = Path(shutil.copytree(sample, tmp_path / "changed"))
    lines = (changed / "corpus.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (changed / "corpus.jsonl").write_text("".join(lines[:-1]), encoding="utf-8")
    with pytest.raises(InputError, match="holds the vectors of another corpus"):
        _encode(changed, whole, encoder)
    with pytest.raises(InputError, match="give the folder that holds"):
        _encode(tmp_path / "nowhere", tmp_path / "to", encoder)
    with pytest.raises(InputError, match="--workers 0: give 1 or more"):
        Workers(0)
    with pytest.raises(InputError, match="--ray-address: give --workers too"):
        Workers(None, "auto")


def test_full_disk_leaves_complete_shards(
    whole: Path, sample: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, written = os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal written
        written += 1
        if written > 9:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        _encode(sample, tmp_path / "to", encoder)
    monkeypatch.setattr(os, "fsync", real)
    done = len(shards_in(tmp_path / "to"))
    assert 0 < done < SHARDS
    assert not (tmp_path / "to" / RECORD).exists()
    assert _encode(sample, tmp_path / "to", encoder).encoded == SHARDS - done
    assert (tmp_path / "to" / RECORD).read_bytes() == (whole / RECORD).read_bytes()


def test_encode_command_prints_digest(
    sample: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["encode", str(sample), "--to", str(tmp_path / "to"), "--encoder", str(encoder)]
    assert main([*words, "--json"]) == 0
    printed = capsys.readouterr()
    value = json.loads(printed.out)
    assert value == {
        "location": str(tmp_path / "to"),
        "digest": _digest(tmp_path / "to"),
        "documents": 503,
        "shards": 1,
        "encoded": 1,
    }
    assert "503 documents in 1 shards, 1 of them now" in printed.err
    assert main(words) == 0
    assert capsys.readouterr().out == f"{value['digest']}\n"


def test_interrupt_keeps_finished_shards(
    sample: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, calls = Worker.encode, 0

    def interrupted(self: Worker, *given):
        nonlocal calls
        calls += 1
        if calls > 4:
            raise KeyboardInterrupt
        return real(self, *given)

    monkeypatch.setattr(Worker, "encode", interrupted)
    monkeypatch.setattr(encode_module.encode_spool, "__defaults__", (ROWS,))
    monkeypatch.setattr(encode_module.encode_corpus, "__defaults__", (ROWS,))
    assert main(["encode", str(sample), "--to", str(tmp_path / "to"), "--encoder", str(encoder)]) == 130
    assert "taugate: interrupted" in capsys.readouterr().err
    assert len(shards_in(tmp_path / "to")) == 4
    assert not (tmp_path / "to" / RECORD).exists()


def test_missing_ray_names_package(
    sample: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    for name in [each for each in sys.modules if each == "ray" or each.startswith("ray.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    words = ["encode", str(sample), "--to", str(tmp_path), "--encoder", str(encoder), "--workers", "2"]
    assert main(words) == 2
    assert "ray is not installed; --workers needs it: pip install 'taugate-engines[ray]'" in capsys.readouterr().err
