"""A service that trusts keys starts with a signed release, and with no other."""

import shutil
from pathlib import Path

import pytest

from retrieval.release.catalog import find
from retrieval.release.signing import read_private_key, sign
from tests.keys import write_keys
from tests.service_process import ServiceProcess


@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_serves_what_is_signed_only(releases: Path, tmp_path: Path, workers: str) -> None:
    copy = shutil.copytree(releases, tmp_path / "releases")
    private, public = write_keys(tmp_path)
    trust = {"TAUGATE_TRUSTED_KEYS": str(public), "TAUGATE_WORKERS": workers}
    with ServiceProcess(copy, **trust) as service:
        service.process.wait(timeout=60)
        code, said = service.stop()
    assert code == 2
    assert "not signed" in said
    assert "Traceback" not in said
    sign(find(copy), read_private_key(private))
    with ServiceProcess(copy, **trust) as service:
        assert service.ready().http.post("/search", json={"query": "permit"}).status_code == 200


def test_a_key_file_that_is_none_is_said(releases: Path, tmp_path: Path) -> None:
    with ServiceProcess(releases, TAUGATE_TRUSTED_KEYS=str(tmp_path / "none.pem")) as service:
        service.process.wait(timeout=60)
        code, said = service.stop()
    assert code == 2
    assert "none.pem: trusted keys cannot be read" in said
