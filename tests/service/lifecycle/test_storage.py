"""A service with releases in object storage."""

import subprocess
import sys
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.registry.catalog import current_id, release_ids
from tests.object_storage import object_storage
from tests.service_process import ServiceProcess


@pytest.mark.slow
def test_service_starts_from_copy_without_store(releases: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with object_storage() as (bucket, server):
        arguments = ["release", "push", "--releases", str(releases), "--to", bucket.url, "--promote"]
        run = [sys.executable, "-m", "taugate", *arguments]
        pushed = subprocess.run(run, env=bucket.environment, capture_output=True, text=True, check=True)
        assert pushed.stdout == f"* {bucket.url}/{current_id(releases)}\n"
        environment = bucket.environment | {"TAUGATE_RELEASES_COPY": str(copy), "TAUGATE_WORKERS": "2"}
        with ServiceProcess(bucket.url, **environment) as service:
            reply = service.ready(60).http.post("/search", json={"query": "permit"}).json()
        assert reply["release"] == current_id(releases)
        assert release_ids(copy) == [current_id(releases)]
        bucket.put("current", b"20200101T000000Z-000000000000\n")  # what is no release is not served
        with ServiceProcess(bucket.url, **environment | {"TAUGATE_WORKERS": "1"}) as service:
            answered = service.ready(60).http.post("/search", json={"query": "permit"}).json()
            assert answered["release"] == current_id(releases)
            _, log = service.stop()
        assert "cannot update the copy of the releases" in log
        server.stop()
        with ServiceProcess(bucket.url, **environment) as service:
            assert (
                service.ready(60).http.post("/search", json={"query": "permit"}).json()["results"] == reply["results"]
            )
        nowhere = environment | {"TAUGATE_RELEASES_COPY": str(tmp_path / "another")}
        with ServiceProcess(bucket.url, **nowhere) as service:
            service.process.wait(timeout=60)
            code, log = service.stop()
        assert code == 1
        assert f"taugate: {bucket.url}/current: the store does not respond" in log
        server.start()  # so that leaving the block can stop it


def test_push_promotes_only_current_release(releases: Path, tmp_path: Path, capfd) -> None:
    url = f"file://{tmp_path}/store"
    arguments = ["release", "push", "--releases", str(releases), "--to", url]
    assert cli.main([*arguments, "20200101T000000Z-000000000000", "--promote"]) == 2
    assert "no release" in capfd.readouterr().err
    assert cli.main(arguments) == 0
    assert capfd.readouterr().out == f"  {url}/{current_id(releases)}\n"
    assert not (tmp_path / "store" / "current").exists()
    assert cli.main([*arguments, "--promote"]) == 0
    assert (tmp_path / "store" / "current").read_text() == f"{current_id(releases)}\n"
