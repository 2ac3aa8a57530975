"""Signatures of a release: Ed25519 (RFC 8032) over the exact bytes of its manifest, which has the digest of every file.

`manifest.sig` has one line a key: the key's id and the signature, both in hexadecimal, so that nothing but one regular
expression reads it before anybody is trusted. It is no part of the release's content: whoever trusts a release may sign
it after it was written.
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
SIGNATURE_BYTES = 100 * _LINE_BYTES  # more people than will ever sign one release; a larger file is never read


@dataclass(frozen=True)
class TrustedKeys:
    """The public keys whose signatures are trusted.

    Attributes:
        source: The file or folder that they are from.
        keys: Ed25519 keys by id.
    """

    source: Path
    keys: Mapping[str, "Ed25519PublicKey"]

    @classmethod
    def load(cls, source: Path) -> Self:
        """Load all keys of a PEM file, or of the files *.pem of a folder.

        Raises:
            InputError: For anything else.
        """
        require_cryptography()
        files = sorted(source.glob("*.pem")) if source.is_dir() else [source]
        found = {key_id(key): key for file in files for key in _read_public_keys(file)}
        if not found:
            raise InputError(f"{source}: holds no trusted key; {_REMEDY}")
        return cls(source, found)

    def signed(self, name: str, signature: bytes, message: bytes) -> bool:
        """Tell whether a key made the signature of a message.

        Args:
            name: The key's id, which is one of `keys`.
        """
        from cryptography.exceptions import InvalidSignature

        try:
            self.keys[name].verify(signature, message)
        except InvalidSignature:
            return False
        return True


def key_id(key: "Ed25519PublicKey") -> str:
    """Return a key's id: the SHA-256 of its raw 32 bytes, in hexadecimal, the same however its file is written."""
    return sha256(key.public_bytes_raw()).hexdigest()


def require_cryptography() -> None:
    """Raise InputError where the package cryptography is not installed."""
    try:
        import cryptography  # noqa: F401 (only whether it is there)
    except ImportError as error:
        raise InputError("signatures need the package cryptography: pip install 'taugate[signing]'") from error


def _read_public_keys(path: Path) -> list["Ed25519PublicKey"]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: trusted keys cannot be read ({error.strerror}); {_REMEDY}") from error
    keys = []
    for block in _PEM.finditer(content):
        if b"PRIVATE" in block[1]:
            raise InputError(f"{path}: holds a private key, which a service must not have; {_REMEDY}")
        try:
            key = load_pem_public_key(block[0])
        except Exception as error:  # not base64, unknown algorithm, a certificate: a type for each, no common base
            raise InputError(f"{path}: holds something that is not a public key; {_REMEDY}") from error
        if not isinstance(key, Ed25519PublicKey):
            raise InputError(f"{path}: holds a public key that is not Ed25519; {_REMEDY}")
        keys.append(key)
    if not keys:
        raise InputError(f"{path}: holds no trusted key; {_REMEDY}")
    return keys


def check_signature(release: Path, manifest: bytes, trusted: TrustedKeys) -> None:
    """Check that one of the trusted keys signed a manifest.

    Args:
        release: The release's folder.
        manifest: The bytes of its manifest.
        trusted: The keys.

    Raises:
        ReleaseError: .
    """
    path = release / SIGNATURE
    signatures = read_signatures(release)
    if not signatures:
        raise ReleaseError(f"{path}: the release is not signed; `taugate release sign {release.name} --key …` signs it")
    ours = {name: signature for name, signature in signatures.items() if name in trusted.keys}
    if not ours:
        names = ", ".join(name[:16] for name in sorted(signatures)[:3])
        raise ReleaseError(f"{path}: signed by {names}, which {trusted.source} does not hold; sign it with one it does")
    if not any(trusted.signed(name, bytes.fromhex(signature), manifest) for name, signature in ours.items()):
        raise ReleaseError(
            f"{path}: the signature does not fit {MANIFEST}, which was changed; take the release from its origin again"
        )


def read_signatures(release: Path) -> dict[str, str]:
    """Read a release's signatures by key id, both in hexadecimal; none where there is no file.

    Raises:
        ReleaseError: .
    """
    path = release / SIGNATURE
    try:
        content = read_bounded(path, SIGNATURE_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ReleaseError(f"{path}: cannot be read as signatures; sign the release again") from error
    found = _LINE.findall(content)
    if len(found) * _LINE_BYTES != len(content):
        raise ReleaseError(f"{path}: does not hold signatures; remove it, and sign the release again")
    return {name.decode(): signature.decode() for name, signature in found}


def encode_signatures(signatures: Mapping[str, str]) -> bytes:
    """Return signatures, by key id, as the bytes of the file that `read_signatures` reads."""
    return b"".join(f"{name} {signatures[name]}\n".encode() for name in sorted(signatures))
