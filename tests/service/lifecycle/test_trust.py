"""A service with trusted keys serves only signed releases."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnxruntime import InferenceSession

from taugate.errors import ReleaseError
from taugate.registry.catalog import find, release_ids
from taugate.registry.download import PRIVATE
from taugate.registry.writer import read_private_key, sign
from taugate.retrieval.encoder import bert
from taugate.retrieval.engines.engine import EngineAccess
from taugate.retrieval.reader import load
from taugate.service.lifecycle.loading import trusting
from taugate.service.settings import Settings
from tests.keys import write_keys
from tests.service_process import ServiceProcess


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_unsigned_release_is_not_served(releases: Path, tmp_path: Path, workers: str) -> None:
    copy = shutil.copytree(releases, tmp_path / "releases")
    private, public = write_keys(tmp_path)
    trust = {"TAUGATE_TRUSTED_KEYS": str(public), "TAUGATE_WORKERS": workers}
    with ServiceProcess(copy, **trust) as service:
        service.process.wait(timeout=60)
        code, log = service.stop()
    assert code == 2
    assert "not signed" in log
    assert "Traceback" not in log
    sign(find(copy), read_private_key(private))
    with ServiceProcess(copy, **trust) as service:
        assert service.ready().http.post("/search", json={"query": "permit"}).status_code == 200


def test_missing_trusted_keys_end_service(releases: Path, tmp_path: Path) -> None:
    with ServiceProcess(releases, TAUGATE_TRUSTED_KEYS=str(tmp_path / "none.pem")) as service:
        service.process.wait(timeout=60)
        code, log = service.stop()
    assert code == 2
    assert "none.pem: cannot read the trusted keys" in log


@pytest.fixture
def signed(releases: Path, tmp_path: Path) -> Settings:
    """Settings that trust the key which signed the release."""
    copy = shutil.copytree(releases, tmp_path / "releases")
    private, public = write_keys(tmp_path)
    sign(find(copy), read_private_key(private))
    return Settings(releases=copy, trusted_keys=public, releases_copy=tmp_path / "copies")


def exchanged(tokenizer: Path, golden: Path) -> tuple[bytes, str]:
    """A tokenizer that takes a word for another, and that word: none that a golden query has."""
    raw = json.loads(tokenizer.read_bytes())
    vocabulary, asked = raw["model"]["vocab"], golden.read_text(encoding="utf-8").lower()
    one, other = [word for word in vocabulary if word.isalpha() and len(word) > 3 and word not in asked][:2]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    return json.dumps(raw).encode(), one


def replaced(path: Path, content: bytes) -> None:
    path.with_suffix(".new").write_bytes(content)
    path.with_suffix(".new").replace(path)


@pytest.mark.parametrize("exchange", [replaced, Path.write_bytes], ids=["by name", "in place"])
def test_file_replaced_after_check_is_not_opened(
    signed: Settings, monkeypatch: pytest.MonkeyPatch, exchange: Callable[[Path, bytes], object]
) -> None:
    release = find(signed.releases.directory)
    tokenizer = release / "encoder" / "tokenizer.json"
    forged, word = exchanged(tokenizer, release / "golden.jsonl")
    honest = load(release).retriever.vectors([word])

    def session(model: Path, threads: int) -> InferenceSession:
        """Digests were compared for the last time; the tokenizer is opened next."""
        exchange(tokenizer, forged)
        return open_session(model, threads)

    open_session = bert.load_session
    monkeypatch.setattr(bert, "load_session", session)
    opened = trusting(signed, EngineAccess())(release, 1, "auto")
    assert tokenizer.read_bytes() == forged
    np.testing.assert_array_equal(opened.retriever.vectors([word]), honest)
    np.testing.assert_array_equal(
        opened.retriever.single_threaded().vectors([word]), honest
    )  # which opens it once more
    opened.close()
    assert release_ids(signed.releases.copies / PRIVATE) == []
    with pytest.raises(ReleaseError, match=rf"{release}/encoder/tokenizer\.json: (SHA-256|its size is not)"):
        trusting(signed, EngineAccess())(release, 1, "auto")
    assert [path.name for path in (signed.releases.copies / PRIVATE).iterdir()] == [".lock"]
