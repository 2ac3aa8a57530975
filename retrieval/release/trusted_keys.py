"""The public keys whose signature makes a release trusted."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Self

from taugate.errors import InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_PEM = re.compile(rb"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)
_REMEDY = "give a PEM file with Ed25519 public keys (`openssl pkey -pubout`), or a folder of them"


@dataclass(frozen=True)
class TrustedKeys:
    """Ed25519 keys by id, and the file or folder that they are from."""

    source: Path
    keys: Mapping[str, "Ed25519PublicKey"]

    @classmethod
    def load(cls, source: Path) -> Self:
        """All keys of a PEM file, or of the files *.pem of a folder. Raises InputError where there is anything else."""
        cryptography_there()
        files = sorted(source.glob("*.pem")) if source.is_dir() else [source]
        found = {key_id(key): key for file in files for key in _read(file)}
        if not found:
            raise InputError(f"{source}: holds no trusted key; {_REMEDY}")
        return cls(source, found)

    def signed(self, name: str, signature: bytes, message: bytes) -> bool:
        """Whether the key of this id made the signature of the message."""
        from cryptography.exceptions import InvalidSignature

        try:
            self.keys[name].verify(signature, message)
        except InvalidSignature:
            return False
        return True


def key_id(key: "Ed25519PublicKey") -> str:
    """SHA-256 of the raw 32 bytes, in hexadecimal: one key has one name, however its file is written."""
    return sha256(key.public_bytes_raw()).hexdigest()


def cryptography_there() -> None:
    """Raise InputError where the extra is missing."""
    try:
        import cryptography  # noqa: F401 (only whether it is there)
    except ImportError as error:
        raise InputError("signatures need the package cryptography: pip install 'taugate[signing]'") from error


def _read(path: Path) -> list["Ed25519PublicKey"]:
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
            raise InputError(f"{path}: holds something that is no public key; {_REMEDY}") from error
        if not isinstance(key, Ed25519PublicKey):
            raise InputError(f"{path}: holds a public key that is not Ed25519; {_REMEDY}")
        keys.append(key)
    if not keys:
        raise InputError(f"{path}: holds no trusted key; {_REMEDY}")
    return keys
