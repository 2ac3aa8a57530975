"""To sign a release with a private key, for whoever has one; the service never does."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from taugate.errors import InputError
from taugate.retrieval.release.layout import SIGNATURE, STAGING_PREFIX
from taugate.retrieval.release.signature import read_signatures, written
from taugate.retrieval.release.trusted_keys import cryptography_there, key_id
from taugate.retrieval.release.verify import verified
from taugate.storage.plain_file import put_plain
from taugate.storage.staging import staging_folder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PASSPHRASE = "TAUGATE_SIGNING_PASSPHRASE"  # noqa: S105 (the variable that holds it)


def read_private_key(path: Path) -> "Ed25519PrivateKey":
    """A key from a PEM file, which TAUGATE_SIGNING_PASSPHRASE opens where it is locked. Raises InputError."""
    cryptography_there()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    passphrase = os.environ.get(PASSPHRASE)
    try:
        key = load_pem_private_key(path.read_bytes(), passphrase.encode() if passphrase else None)
    except OSError as error:
        raise InputError(f"{path}: the signing key cannot be read ({error.strerror}); name a PEM file") from error
    except TypeError as error:  # a passphrase for a key without one, or none for a key with one
        raise InputError(f"{path}: set {PASSPHRASE} where the key has a passphrase, and only then") from error
    except Exception as error:  # not PEM, wrong passphrase, unknown algorithm: a type for each, with no common base
        raise InputError(f"{path}: holds no private key in PEM, or {PASSPHRASE} does not open it") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path}: not an Ed25519 key; `openssl genpkey -algorithm ed25519` makes one")
    return key


def sign(release: Path, key: "Ed25519PrivateKey") -> str:
    """Verify a release and put a signature of its manifest beside it, in place of an older one by the same key.

    Returns the key's id. Raises ReleaseError when the release does not verify, OSError.
    """
    _, manifest = verified(release)
    signer = key_id(key.public_key())
    signatures = {**read_signatures(release), signer: key.sign(manifest).hex()}
    with staging_folder(release.parent, STAGING_PREFIX) as staging:  # nothing half written has a name in a release
        put_plain(release / SIGNATURE, written(signatures), staging)
    return signer
