"""Signatures on the command line: `taugate release sign`, `calibrate --sign-with`, and which keys are trusted."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrieval.errors import InputError
from retrieval.release.catalog import find
from retrieval.release.signing import read_private_key, sign
from retrieval.release.trusted_keys import TrustedKeys, key_id

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

TRUSTED_KEYS = "TAUGATE_TRUSTED_KEYS"


def add_parser(actions: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the action `sign` of `taugate release`."""
    text = "put a signature beside a release, if it verifies"
    action: argparse.ArgumentParser = actions.add_parser("sign", help=text, description=text)
    action.add_argument("--releases", metavar="DIR", type=Path, required=True, help="where releases are kept")
    action.add_argument("--key", metavar="PEM", type=Path, required=True, help="Ed25519 private key")
    action.add_argument("id", metavar="ID", help="release id")
    action.set_defaults(run=_sign)


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


def _sign(arguments: argparse.Namespace) -> int:
    key = read_private_key(arguments.key)
    signer = sign(find(arguments.releases, arguments.id), key)
    sys.stdout.write(f"signed {arguments.id} {signer}\n")
    return 0
