"""Which keys a command of the offline job trusts, and with which it signs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from taugate.errors import InputError
from taugate.registry.signing import read_private_key
from taugate.retrieval.release.trusted_keys import TrustedKeys, key_id

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

TRUSTED_KEYS = "TAUGATE_TRUSTED_KEYS"


def trusted_keys(path: Path | None = None) -> TrustedKeys | None:
    """The keys of a file or folder, else those that TAUGATE_TRUSTED_KEYS names; None where neither does.

    Raises InputError.
    """
    chosen = path or os.environ.get(TRUSTED_KEYS)
    return TrustedKeys.load(Path(chosen)) if chosen else None


def signing_key(path: Path | None, *, promoting: bool) -> "Ed25519PrivateKey | None":
    """The key to sign a new release with, None where none was asked for.

    promoting: whether the release is to be current, which where TAUGATE_TRUSTED_KEYS is set takes a key that it holds.
    Raises InputError.
    """
    key = None if path is None else read_private_key(path)
    trusted = trusted_keys() if promoting else None
    if trusted is not None and (key is None or key_id(key.public_key()) not in trusted.keys):
        raise InputError(
            f"{TRUSTED_KEYS} {trusted.source}: no service that trusts these keys would load the new release; "
            "give --sign-with one of them, or --no-promote"
        )
    return key
