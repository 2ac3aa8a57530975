"""With trusted keys, a release loads only if one of them signed the exact bytes of its manifest."""

import shutil
import subprocess
from pathlib import Path
from unittest.mock import patch

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from taugate.errors import InputError, ReleaseError
from taugate.registry.catalog import find
from taugate.registry.writer import read_private_key, sign
from taugate.release.layout import MANIFEST, SIGNATURE
from taugate.release.verify import TrustedKeys, verify
from taugate.retrieval.reader import load
from tests.keys import write_keys


@pytest.fixture
def release(releases: Path, tmp_path: Path) -> Path:
    """A release that a test may sign or break."""
    return find(shutil.copytree(releases, tmp_path / "releases"))


def test_trusted_signature_loads_and_verifies(release: Path, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path)
    before = verify(release)
    sign(release, read_private_key(private))
    trusted = TrustedKeys.load(public)
    assert verify(release) == verify(release, trusted) == before
    assert load(release, trusted=trusted).manifest == before
    assert (release / SIGNATURE).stat().st_mode & 0o777 == 0o644
    assert [path.name for path in release.parent.iterdir() if path.name.startswith(".staging")] == []


def test_one_trusted_signature_suffices(release: Path, tmp_path: Path) -> None:
    pairs = [write_keys(tmp_path, name) for name in "abc"]
    for private, _ in (*pairs[:2], pairs[0]):  # the first twice: its signature is replaced
        sign(release, read_private_key(private))
    assert len((release / SIGNATURE).read_text().splitlines()) == 2
    for _, public in pairs[:2]:
        verify(release, TrustedKeys.load(public))
    with pytest.raises(ReleaseError, match=r"manifest\.sig: signed by .*, which .*c\.pem does not hold"):
        verify(release, TrustedKeys.load(pairs[2][1]))
    folder = tmp_path / "trusted"
    folder.mkdir()
    for _, public in pairs[1:]:
        shutil.copy(public, folder)
    assert len(TrustedKeys.load(folder).keys) == 2
    verify(release, TrustedKeys.load(folder))
    both = tmp_path / "both"
    both.write_bytes(b"two keys\n" + pairs[0][1].read_bytes() + pairs[1][1].read_bytes())
    assert len(TrustedKeys.load(both).keys) == 2


def test_unsigned_release_is_refused_unparsed(release: Path, tmp_path: Path) -> None:
    trusted = TrustedKeys.load(write_keys(tmp_path)[1])
    with (
        patch("taugate.release.verify.orjson.loads", side_effect=AssertionError("parsed")),
        pytest.raises(ReleaseError, match=r"manifest\.sig: the release is not signed"),
    ):
        verify(release, trusted)


def test_changed_manifest_is_refused_unparsed(release: Path, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path)
    sign(release, read_private_key(private))
    path = release / MANIFEST
    path.write_bytes(path.read_bytes() + b"\n")  # the same JSON
    with (
        patch("taugate.release.verify.orjson.loads", side_effect=AssertionError("parsed")),
        pytest.raises(ReleaseError, match=r"the signature does not match manifest\.json"),
    ):
        load(release, trusted=TrustedKeys.load(public))


def test_foreign_signature_is_refused(release: Path, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path)
    signer = sign(release, read_private_key(private))
    (release / SIGNATURE).write_text(f"{signer} {'0' * 128}\n")
    with pytest.raises(ReleaseError, match="does not match"):
        verify(release, TrustedKeys.load(public))


@pytest.mark.parametrize("content", [b"x", b"\x00" * 194, b"a" * 64 + b" " + b"b" * 128, b"\n", b"x" * 20_000])
def test_invalid_signature_file_is_refused(release: Path, tmp_path: Path, content: bytes) -> None:
    (release / SIGNATURE).write_bytes(content)
    with pytest.raises(ReleaseError, match=r"manifest\.sig"):
        verify(release, TrustedKeys.load(write_keys(tmp_path)[1]))


def test_unverified_release_is_not_signed(release: Path, tmp_path: Path) -> None:
    (release / "report.html").write_text("changed")
    with pytest.raises(ReleaseError, match=r"report\.html"):
        sign(release, read_private_key(write_keys(tmp_path)[0]))
    assert not (release / SIGNATURE).exists()


def test_encrypted_key_requires_passphrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, _ = write_keys(tmp_path, passphrase="an open secret")
    with pytest.raises(InputError, match="TAUGATE_SIGNING_PASSPHRASE"):
        read_private_key(private)
    monkeypatch.setenv("TAUGATE_SIGNING_PASSPHRASE", "wrong")
    with pytest.raises(InputError, match="does not decrypt it"):
        read_private_key(private)
    monkeypatch.setenv("TAUGATE_SIGNING_PASSPHRASE", "an open secret")
    assert read_private_key(private)


def test_invalid_key_files_are_named(tmp_path: Path) -> None:
    private, public = write_keys(tmp_path)
    other, empty = tmp_path / "other.pem", tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="private key, which a service must not have"):
        TrustedKeys.load(private)
    for content in (b"", b"hello", b"-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----\n"):
        other.write_bytes(content)
        with pytest.raises(InputError, match=r"other\.pem: holds"):
            TrustedKeys.load(other)
    curve = generate_private_key(SECP256R1()).public_key()
    other.write_bytes(curve.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(InputError, match="not Ed25519"):
        TrustedKeys.load(other)
    for missing in (tmp_path / "none.pem", empty):
        with pytest.raises(InputError, match=missing.name):
            TrustedKeys.load(missing)
    for missing in (tmp_path / "none.key", empty, public):
        with pytest.raises(InputError, match=missing.name):
            read_private_key(missing)


def test_missing_cryptography_names_extra(tmp_path: Path) -> None:
    private, public = write_keys(tmp_path)
    with patch.dict("sys.modules", {"cryptography": None}):
        for call in (lambda: TrustedKeys.load(public), lambda: read_private_key(private)):
            with pytest.raises(InputError, match=r"pip install 'taugate\[signing\]'"):
                call()


def test_documented_openssl_commands_work(release: Path, tmp_path: Path) -> None:
    """openssl makes keys that are taken here, and checks what is signed here."""
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", "signing.key"], cwd=tmp_path, check=True)
    subprocess.run(
        ["openssl", "pkey", "-in", "signing.key", "-pubout", "-out", "trusted.pem"], cwd=tmp_path, check=True
    )
    sign(release, read_private_key(tmp_path / "signing.key"))
    verify(release, TrustedKeys.load(tmp_path / "trusted.pem"))
    (tmp_path / "raw").write_bytes(bytes.fromhex((release / SIGNATURE).read_text().split()[1]))
    check = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "trusted.pem", "-rawin", "-sigfile", "raw"]
    subprocess.run([*check, "-in", str(release / MANIFEST)], cwd=tmp_path, check=True)
