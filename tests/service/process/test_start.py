"""A failed start is reported in one line that names the cause, with exit code 2 and no traceback."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from taugate.registry.catalog import find
from tests.fork_server import forked


@pytest.fixture
def taken() -> Iterator[str]:
    """A port in use: a service that gets that far stops there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield str(listener.getsockname()[1])


@pytest.fixture
def own(releases: Path, tmp_path: Path) -> Path:
    """A copy of the releases directory, to break."""
    return Path(shutil.copytree(releases, tmp_path / "own"))


def refusal(*arguments: str, **environment: str) -> str:
    """The one line that a refused start writes for people; anything else it writes is the log.

    Any free port will do where a test names none: others of the machine may be using the default one.
    """
    done = subprocess.run(
        forked("serve", *arguments),
        env=os.environ | {"TAUGATE_PORT": "0"} | environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "traceback" not in done.stderr.lower()
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("taugate: ")
    return lines[0]


def test_missing_releases_directory(tmp_path: Path) -> None:
    message = refusal()
    assert "--releases" in message
    assert "TAUGATE_RELEASES" in message
    message = refusal("--releases", str(tmp_path / "nowhere"))
    assert str(tmp_path / "nowhere") in message
    assert "taugate calibrate" in message


def test_directory_without_release(tmp_path: Path) -> None:
    assert str(tmp_path) in refusal("--releases", str(tmp_path))


@pytest.mark.parametrize("name", [b"20200101T000000Z-000000000000\n", b"", b"../..\n", b"\xff\x00"])
def test_current_pointer_is_invalid(own: Path, name: bytes) -> None:
    (own / "current").write_bytes(name)
    assert str(own / "current") in refusal("--releases", str(own))


@pytest.mark.parametrize("file", ["index.faiss", "encoder/model.onnx", "manifest.json"])
@pytest.mark.slow
def test_flipped_byte_is_named(own: Path, file: str) -> None:
    path = find(own) / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    assert str(path) in refusal("--releases", str(own), "--port", "0")


def test_missing_file_is_named(own: Path) -> None:
    path = find(own) / "golden.jsonl"
    path.unlink()
    assert str(path) in refusal("--releases", str(own), "--port", "0")


def test_missing_encoder_precision_is_named(own: Path) -> None:
    message = refusal("--releases", str(own), "--port", "0", TAUGATE_PRECISION="int8")
    assert "TAUGATE_PRECISION int8: the release has float32" in message


def test_malformed_redis_url_is_named(releases: Path) -> None:
    message = refusal("--releases", str(releases), "--port", "0", TAUGATE_REDIS_URL="127.0.0.1:6379")
    assert "TAUGATE_REDIS_URL" in message


def test_port_in_use_is_named(releases: Path, taken: str) -> None:
    message = refusal("--releases", str(releases), "--port", taken)
    assert f"127.0.0.1 port {taken}: Address already in use" in message
    assert "--port" in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "http"),
        ("MAX_K", "0"),
        ("MAX_BATCH", "many"),
        ("DEADLINE_MS", "-1"),
        ("LOG_LEVEL", "loud"),
        ("CACHE_BYTES", "-1"),
        ("QUEUE_LIMIT", "10"),  # below MAX_BATCH: a whole batch would be 429 even when nothing waits
    ],
)
@pytest.mark.slow
def test_invalid_setting_is_named(releases: Path, taken: str, name: str, value: str) -> None:
    environment = {"TAUGATE_PORT": taken, f"TAUGATE_{name}": value}
    assert f"TAUGATE_{name}" in refusal("--releases", str(releases), **environment)
