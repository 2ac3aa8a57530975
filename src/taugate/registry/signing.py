"""Signing: adds a signature to a release with a private key, which the service never has."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from taugate.errors import InputError
from taugate.release.layout import SIGNATURE, STAGING_PREFIX
from taugate.release.verify import (
    TrustedKeys,
    encode_signatures,
    key_id,
    read_signatures,
    require_cryptography,
    verified,
)
from taugate.storage.files import atomic_write
from taugate.storage.folders import staging_folder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PASSPHRASE = "TAUGATE_SIGNING_PASSPHRASE"  # noqa: S105 (the variable that holds it)
SIGNING_KEY = "TAUGATE_SIGNING_KEY"  # file of the key that signs new releases
TRUSTED_KEYS = "TAUGATE_TRUSTED_KEYS"


def read_private_key(path: Path) -> "Ed25519PrivateKey":
    """Read an Ed25519 private key from a PEM file; TAUGATE_SIGNING_PASSPHRASE decrypts an encrypted one."""
    require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    passphrase = os.environ.get(PASSPHRASE)
    try:
        key = load_pem_private_key(path.read_bytes(), passphrase.encode() if passphrase else None)
    except OSError as error:
        raise InputError(f"{path}: the signing key cannot be read ({error.strerror}); name a PEM file") from error
    except TypeError as error:  # a passphrase for an unencrypted key, or none for an encrypted one
        raise InputError(f"{path}: set {PASSPHRASE} if the key has a passphrase, and only then") from error
    except Exception as error:  # not PEM, wrong passphrase, unknown algorithm: the types have no common base
        raise InputError(f"{path}: not a private key in PEM, or {PASSPHRASE} does not decrypt it") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path}: not an Ed25519 key; `openssl genpkey -algorithm ed25519` makes one")
    return key


def sign(release: Path, key: "Ed25519PrivateKey") -> str:
    """Verify a release and add a signature of its manifest; returns the key's id."""
    # Replaces an older signature by the same key, and keeps those by others.
    _, manifest = verified(release)
    signer = key_id(key.public_key())
    signatures = {**read_signatures(release), signer: key.sign(manifest).hex()}
    with staging_folder(release.parent, STAGING_PREFIX) as staging:  # so that a partial file never appears in a release
        atomic_write(release / SIGNATURE, encode_signatures(signatures), folder=staging)
    return signer


def trusted_keys(path: Path | None = None) -> TrustedKeys | None:
    """Load the trusted public keys, None if none are configured.

    Args:
        path: A PEM file or a folder of them; by default TAUGATE_TRUSTED_KEYS.
    """
    source = path or os.environ.get(TRUSTED_KEYS)
    return TrustedKeys.load(Path(source)) if source else None


def signing_key(path: Path | None, *, promoting: bool) -> "Ed25519PrivateKey | None":
    """Read the key to sign a new release with, None without a path.

    Args:
        promoting: Whether the release is to become current. If TAUGATE_TRUSTED_KEYS is set, the key must be one of
            these.
    """
    key = None if path is None else read_private_key(path)
    trusted = trusted_keys() if promoting else None
    if trusted is not None and (key is None or key_id(key.public_key()) not in trusted.keys):
        raise InputError(
            f"{TRUSTED_KEYS} {trusted.source}: no service that trusts these keys would load the new release; "
            f"name one of them in {SIGNING_KEY}, or give --no-promote"
        )
    return key
