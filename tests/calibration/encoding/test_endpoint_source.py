"""Calibration with an encoder behind an endpoint: what is sent, what is paid twice, and what a changed model does."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taugate.cli.main import main
from taugate.errors import ReleaseError
from taugate.release.encoder import CONFIG
from taugate.release.golden import TOLERANCE
from taugate.retrieval.encoder.encoder import KEY_FILE, ExportedEncoder
from taugate.retrieval.reader import load
from tests.embedding_server import EmbeddingServer, embedding_server
from tests.language_model import status
from tests.sample_part import write_part

_PROBES = 17  # texts that are sent before anything else
_DOCUMENTS = 150


@pytest.fixture(scope="module")
def sample(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the sample, because each test encodes it several times."""
    return write_part(sample, tmp_path_factory.mktemp("sample") / "part", _DOCUMENTS)


@pytest.fixture
def server(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingServer]:
    """A server with the encoder of other tests; nothing of it is cached."""
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "cache"))
    loaded = ExportedEncoder.load(encoder)
    with embedding_server(lambda texts: loaded.encode(texts, "document")) as served:
        yield served


def calibrate(data: Path, releases: Path, server: EmbeddingServer, *options: str, model: str = "m") -> int:
    command = ["calibrate", str(data), "--releases", str(releases), "--encoder", f"openai:{server.url}"]
    return main([*command, "--model", model, *options])


def released(releases: Path) -> Path:
    return releases / (releases / "current").read_text(encoding="utf-8").strip()


def manifest_of(release: Path) -> dict[str, Any]:
    return dict(json.loads((release / "manifest.json").read_bytes()))


def test_same_weights_behind_endpoint_give_same_release(
    sample: Path, encoder: Path, tmp_path: Path, server: EmbeddingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate(sample, tmp_path / "behind", server, "--yes") == 0
    assert f"tokens, will be sent to {server.url} (m)" in capsys.readouterr().err
    assert main(["calibrate", str(sample), "--releases", str(tmp_path / "local"), "--encoder", str(encoder)]) == 0
    behind, here = (released(tmp_path / name) for name in ("behind", "local"))
    expected, manifest = manifest_of(here), manifest_of(behind)
    assert manifest["policy"]["tau"] == pytest.approx(expected["policy"]["tau"], abs=TOLERANCE)
    assert manifest["metrics"]["calibration"]["accuracy"] == expected["metrics"]["calibration"]["accuracy"]
    assert manifest["encoder"]["endpoint"] == {"dialect": "openai", "url": server.url, "model": "m"}
    assert manifest["golden_tolerance"] == TOLERANCE
    assert {path.name for path in (behind / "encoder").iterdir()} == {CONFIG}
    with load(behind).resources, load(here).resources:
        pairs = zip(load(behind).golden, load(here).golden, strict=True)
        assert all(one.scores == pytest.approx(other.scores, abs=TOLERANCE) for one, other in pairs)


def test_nothing_is_sent_without_confirmation(
    sample: Path, tmp_path: Path, server: EmbeddingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate(sample, tmp_path / "releases", server) == 2
    assert "nothing was sent: add --yes to send the texts to the endpoint" in capsys.readouterr().err
    assert len(server.texts) == _PROBES
    assert not (tmp_path / "releases" / "current").exists()


def test_interrupted_calibration_does_not_send_texts_twice(
    sample: Path, tmp_path: Path, server: EmbeddingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.faults = [None] * 16 + [status(402)] * 4
    assert calibrate(sample, tmp_path / "releases", server, "--yes") == 2
    assert "402 (no); the account has no credit" in capsys.readouterr().err
    server.faults, before = [], len(server.texts) - _PROBES
    assert calibrate(sample, tmp_path / "releases", server, "--yes") == 0
    again = len(server.texts) - 2 * _PROBES - len({*server.texts[_PROBES:]})
    assert before > 200
    assert again <= 4 * 32  # the requests that ran together with the failed ones
    sent = len(server.texts)
    assert calibrate(sample, tmp_path / "releases", server) == 0  # does not ask, as nothing is left to send
    assert len(server.texts) < sent + 100  # the probes and the golden queries


def test_changed_model_is_refused_at_load_and_does_not_share_vectors(
    sample: Path, tmp_path: Path, server: EmbeddingServer
) -> None:
    assert calibrate(sample, tmp_path / "releases", server, "--yes") == 0
    release, before = released(tmp_path / "releases"), server.encode
    rng = np.random.default_rng(0)
    server.encode = lambda texts: before(texts) + rng.normal(0, 0.01, 128)
    with pytest.raises(ReleaseError, match=rf"away from the record .*the endpoint {server.url} may have another model"):
        load(release)
    server.encode = lambda texts: before(texts)[:, ::-1]
    sent = len(server.texts)
    assert calibrate(sample, tmp_path / "releases", server, "--yes") == 0
    assert len(server.texts) > sent + _DOCUMENTS  # all documents again
    encoders = [manifest_of(path.parent)["encoder"] for path in (tmp_path / "releases").glob("*/manifest.json")]
    assert len({encoder["sha256"] for encoder in encoders}) == 2


def test_noisy_endpoint_has_larger_tolerance_or_is_refused(
    sample: Path, tmp_path: Path, server: EmbeddingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    exact, rng = server.encode, np.random.default_rng(0)
    server.encode = lambda texts: (v := exact(texts)) + rng.normal(0, 3e-4, v.shape)
    assert calibrate(sample, tmp_path / "releases", server, "--yes") == 0
    assert 1e-3 < manifest_of(released(tmp_path / "releases"))["golden_tolerance"] < 1e-2
    for _ in range(20):
        load(released(tmp_path / "releases")).close()
    server.encode = lambda texts: (v := exact(texts)) + rng.normal(0, 1e-2, v.shape)
    assert calibrate(sample, tmp_path / "releases", server, "--yes") == 2
    assert "replies to the same text with different vectors" in capsys.readouterr().err


def test_update_sends_only_new_documents_and_key_is_nowhere(
    sample: Path, tmp_path: Path, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("sEcReTkEy", encoding="utf-8")
    data, releases = tmp_path / "data", tmp_path / "releases"
    shutil.copytree(sample, data)
    assert calibrate(data, releases, server, "--yes", "--encoder-key-file", str(tmp_path / "key")) == 0
    assert server.headers["Authorization"] == "Bearer sEcReTkEy"
    with (data / "corpus.jsonl").open("a", encoding="utf-8") as corpus:
        corpus.write('{"_id": "new", "text": "A brand new document about scaffolding permits."}\n')
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))
    monkeypatch.setenv("TAUGATE_ENCODER_URL", server.url)
    sent = len(server.texts)
    assert main(["update", str(data), "--releases", str(releases)]) == 0
    assert "A brand new document about scaffolding permits." in server.texts[sent:]
    assert len(server.texts) < sent + 200  # golden queries, and near misses
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "key"]
    assert not any(b"sEcReTkEy" in content for content in written)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--encoder", "openai:http://127.0.0.1:9/v1"], "add --model NAME"),
        (["--encoder", "tei:http://127.0.0.1:9", "--dimensions", "8"], "--dimensions 8: this endpoint has no such"),
        (["--encoder", "openai:http://key@127.0.0.1:9/v1", "--model", "m"], "the URL may hold no password"),
        (["--model", "m"], "is not behind an endpoint"),
        (["--encoder", "openai:http://127.0.0.1:9/v1", "--model", "m", "--dimensions", "0"], "--dimensions 0: give a"),
    ],
)
def test_option_that_does_not_fit_is_one_message(
    options: list[str], message: str, sample: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", str(sample), "--releases", str(tmp_path), *options]) == 2
    assert message in capsys.readouterr().err
