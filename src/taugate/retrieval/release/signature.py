"""Signatures of a release: Ed25519 (RFC 8032) over the exact bytes of its manifest, which digests every file.

`manifest.sig` has one line per key with the key's id and the signature, both in hexadecimal, so that only one regular
expression parses untrusted bytes. It is not part of the release's content, because a release may be signed later.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Self

from taugate.errors import InputError, ReleaseError
from taugate.retrieval.release.layout import MANIFEST, SIGNATURE
from taugate.storage.files import read_bounded

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_PEM = re.compile(rb"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)
_REMEDY = "give a PEM file with Ed25519 public keys (`openssl pkey -pubout`), or a folder of them"
_LINE = re.compile(rb"([0-9a-f]{64}) ([0-9a-f]{128})\n")
_LINE_BYTES = 194
SIGNATURE_BYTES = 100 * _LINE_BYTES  # far more signatures than any release has; a larger file is never read


@dataclass(frozen=True)
class TrustedKeys:
    """The public keys whose signatures are trusted.

    Attributes:
        source: File or folder of the keys.
        keys: Ed25519 keys by id.
    """

    source: Path
    keys: Mapping[str, "Ed25519PublicKey"]

    @classmethod
    def load(cls, source: Path) -> Self:
        """Load all keys of a PEM file, or of the *.pem files of a folder.

        Raises:
            InputError: If `source` cannot be read or holds anything else.
        """
        require_cryptography()
        files = sorted(source.glob("*.pem")) if source.is_dir() else [source]
        keys = {key_id(key): key for file in files for key in _read_public_keys(file)}
        if not keys:
            raise InputError(f"{source}: holds no trusted key; {_REMEDY}")
        return cls(source, keys)

    def signed(self, name: str, signature: bytes, message: bytes) -> bool:
        """Return whether the key with the id `name`, which must be in `keys`, signed the message."""
        from cryptography.exceptions import InvalidSignature

        try:
            self.keys[name].verify(signature, message)
        except InvalidSignature:
            return False
        return True


def key_id(key: "Ed25519PublicKey") -> str:
    """Return a key's id: the hexadecimal SHA-256 of its raw 32 bytes, independent of the file's format."""
    return sha256(key.public_bytes_raw()).hexdigest()


def require_cryptography() -> None:
    """Raise InputError if the package cryptography is not installed."""
    try:
        import cryptography  # noqa: F401 (only checks that it is installed)
    except ImportError as error:
        raise InputError("signatures need the package cryptography: pip install 'taugate[signing]'") from error


def _read_public_keys(path: Path) -> list["Ed25519PublicKey"]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot read the trusted keys ({error.strerror}); {_REMEDY}") from error
    keys = []
    for block in _PEM.finditer(content):
        if b"PRIVATE" in block[1]:
            raise InputError(f"{path}: holds a private key, which a service must not have; {_REMEDY}")
        try:
            key = load_pem_public_key(block[0])
        except Exception as error:  # no common base class: not base64, unknown algorithm, a certificate
            raise InputError(f"{path}: holds a block that is not a public key; {_REMEDY}") from error
        if not isinstance(key, Ed25519PublicKey):
            raise InputError(f"{path}: holds a public key that is not Ed25519; {_REMEDY}")
        keys.append(key)
    if not keys:
        raise InputError(f"{path}: holds no trusted key; {_REMEDY}")
    return keys


def check_signature(release: Path, manifest: bytes, trusted: TrustedKeys) -> None:
    """Check that one of the trusted keys signed the bytes of a release's manifest.

    Raises:
        ReleaseError: If none did.
    """
    path = release / SIGNATURE
    signatures = read_signatures(release)
    if not signatures:
        raise ReleaseError(f"{path}: the release is not signed; `taugate release sign {release.name} --key …` signs it")
    known_signatures = {name: signature for name, signature in signatures.items() if name in trusted.keys}
    if not known_signatures:
        names = ", ".join(name[:16] for name in sorted(signatures)[:3])
        raise ReleaseError(
            f"{path}: signed by {names}, which {trusted.source} does not hold; sign it with a trusted key"
        )
    if not any(
        trusted.signed(name, bytes.fromhex(signature), manifest) for name, signature in known_signatures.items()
    ):
        raise ReleaseError(
            f"{path}: the signature does not match {MANIFEST}, which was changed; get the release from its origin again"
        )


def read_signatures(release: Path) -> dict[str, str]:
    """Read a release's signatures by key id, both in hexadecimal; empty if there is no file.

    Raises:
        ReleaseError: If the file does not hold signatures.
    """
    path = release / SIGNATURE
    try:
        content = read_bounded(path, SIGNATURE_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ReleaseError(f"{path}: cannot be read as signatures; sign the release again") from error
    lines = _LINE.findall(content)
    if len(lines) * _LINE_BYTES != len(content):
        raise ReleaseError(f"{path}: does not hold signatures; remove it, and sign the release again")
    return {name.decode(): signature.decode() for name, signature in lines}


def encode_signatures(signatures: Mapping[str, str]) -> bytes:
    """Return signatures by key id as the bytes of the file that `read_signatures` reads."""
    return b"".join(f"{name} {signatures[name]}\n".encode() for name in sorted(signatures))
