"""A service that other machines can reach starts only with keys, or if it is told that it needs none."""

from pathlib import Path

import pytest

from taugate.cli.serve import listen
from taugate.errors import InputError
from taugate.service.access.authorization import check_access
from taugate.service.settings import Settings
from tests.service.access.files import ENTRIES, write
from tests.service.process.test_start import refusal

ALL = ".".join("0000")
PUBLIC = [ALL, "::", "", "192.0.2.1", "10.0.0.1", "fe80::1", "example.org", "128.0.0.1", "127.1.evil.example"]
LOCAL = ["127.0.0.1", "127.0.0.2", "::1", "localhost"]


def settings(**given: object) -> Settings:
    return Settings(releases=Path("nowhere"), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", PUBLIC)
def test_public_address_without_keys_is_refused(host: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        listen(settings(host=host, port=0))
    assert "TAUGATE_KEYS_FILE" in str(refused.value)
    assert "TAUGATE_ALLOW_UNAUTHENTICATED=true" in str(refused.value)
    check_access(settings(host=host, allow_unauthenticated=True))
    check_access(settings(host=host, keys_file=write(tmp_path / "keys.json", ENTRIES)))


@pytest.mark.parametrize("host", LOCAL)
def test_loopback_address_needs_no_keys(host: str) -> None:
    check_access(settings(host=host))


def test_second_loopback_address_is_bound() -> None:
    with listen(settings(host="127.0.0.2", port=0)) as listener:
        assert listener.getsockname()[0] == "127.0.0.2"


def test_serve_without_keys_fails_in_one_line(releases: Path) -> None:
    message = refusal("--releases", str(releases), "--host", ALL)
    assert f"other machines can reach {ALL}, and no API keys are configured" in message


def test_unreadable_keys_prevent_start(releases: Path, tmp_path: Path) -> None:
    message = refusal("--releases", str(releases), TAUGATE_KEYS_FILE=str(tmp_path / "nowhere.json"))
    assert f"{tmp_path / 'nowhere.json'}: No such file or directory" in message
    broken = write(tmp_path / "keys.json", '[{"name": "app"}]')
    message = refusal("--releases", str(releases), TAUGATE_KEYS_FILE=str(broken))
    assert f"{broken}, entry 1: sha256: Field required" in message
    message = refusal("--releases", str(releases), TAUGATE_KEYS="[7]")
    assert "TAUGATE_KEYS, entry 1: " in message
