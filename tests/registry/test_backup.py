"""What docs/operations.md says to back up is restored from real files: releases, history, API keys, the signing key."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.registry.catalog import current_id, release_ids
from taugate.registry.history import read
from taugate.registry.promotion import promote, rollback
from tests.registry.conftest import copy, first, three
from tests.service_process import ServiceProcess

__all__ = ["copy", "first", "three"]

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def sh(command: str, folder: Path, **streams: bytes) -> bytes:
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, check=False, **streams)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_archive_of_page_is_restored(copy: Path, three: list[str], tmp_path: Path) -> None:
    promote(copy, three[0])
    (command,) = re.findall(r"'cd /releases && (tar -c .*)' \| gzip", PAGE)
    archive = sh(command, copy)
    promote(copy, three[1])  # after the backup
    restored = tmp_path / "restored"
    restored.mkdir()
    sh("tar --extract", restored, input=archive)
    assert current_id(restored) == three[0]
    assert release_ids(restored) == release_ids(copy)
    assert len(read(restored).events) == len(read(copy).events) - 1
    assert cli.main(["release", "verify", "--releases", str(restored)]) == 0
    rollback(restored)
    assert current_id(restored) != three[0]


def test_store_is_restored_into_empty_directory(copy: Path, three: list[str], tmp_path: Path) -> None:
    promote(copy, three[0])
    url = f"file://{tmp_path}/backup"
    for name in release_ids(copy):
        promoting = ["--promote"] if name == three[0] else []
        assert cli.main(["release", "push", name, "--releases", str(copy), "--to", url, *promoting]) == 0
    restored = tmp_path / "restored"
    restored.mkdir()
    assert cli.main(["release", "pull", "--releases", str(restored), "--from", url]) == 0
    assert cli.main(["release", "pull", three[1], "--releases", str(restored), "--from", url]) == 0
    assert current_id(restored) == three[0]
    assert cli.main(["release", "verify", "--releases", str(restored)]) == 0


def test_restored_keys_and_signatures_are_valid(copy: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    assert cli.main(["key", "new", "--name", "app", "--scopes", "search", "--file", str(secrets / "keys.json")]) == 0
    key = capfd.readouterr().out.strip()
    sh("openssl genpkey -algorithm ed25519 -out signing.key", secrets)
    kept = shutil.copytree(secrets, tmp_path / "kept")
    shutil.rmtree(secrets)  # what is lost
    restored = shutil.copytree(kept, secrets)
    sh("openssl pkey -in signing.key -pubout -out trusted.pem", restored)
    name = str(current_id(copy))
    assert cli.main(["release", "sign", name, "--releases", str(copy), "--key", str(restored / "signing.key")]) == 0
    settings = {"TAUGATE_KEYS_FILE": restored / "keys.json", "TAUGATE_TRUSTED_KEYS": restored / "trusted.pem"}
    environment = {variable: str(path) for variable, path in settings.items()}
    with ServiceProcess(copy, TAUGATE_CACHE=str(tmp_path / "cache"), **environment) as service:
        service.ready()
        asked = {"json": {"query": "building permit"}}
        assert service.http.post("/search", **asked).status_code == 401
        allowed = service.http.post("/search", **asked, headers={"Authorization": f"Bearer {key}"})
        assert (allowed.status_code, allowed.json()["release"]) == (200, name)
