"""Who vouches for a release: Ed25519 signatures (RFC 8032) of the exact bytes of its manifest, which has every digest.

One line a key in `manifest.sig`: the key's id and the signature, both in hexadecimal, so that nothing but one regular
expression reads it before anybody is trusted. It is no part of the release's content: who trusts a release may sign it
after it was written.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from taugate.errors import ReleaseError
from taugate.retrieval.release.layout import MANIFEST, SIGNATURE
from taugate.retrieval.release.trusted_keys import TrustedKeys
from taugate.storage.plain_file import read_plain

_LINE = re.compile(rb"([0-9a-f]{64}) ([0-9a-f]{128})\n")
_LINE_BYTES = 194
SIGNATURE_BYTES = 100 * _LINE_BYTES  # more people than will ever vouch for one release; a larger file is never read


def check_signature(release: Path, manifest: bytes, trusted: TrustedKeys) -> None:
    """Raise ReleaseError unless one of the trusted keys signed these bytes of a manifest."""
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
    """Signatures by key id, both in hexadecimal, none where there is no file. Raises ReleaseError."""
    path = release / SIGNATURE
    try:
        content = read_plain(path, SIGNATURE_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ReleaseError(f"{path}: cannot be read as signatures; sign the release again") from error
    found = _LINE.findall(content)
    if len(found) * _LINE_BYTES != len(content):
        raise ReleaseError(f"{path}: does not hold signatures; remove it, and sign the release again")
    return {name.decode(): signature.decode() for name, signature in found}


def written(signatures: Mapping[str, str]) -> bytes:
    """The file that `read_signatures` reads."""
    return b"".join(f"{name} {signatures[name]}\n".encode() for name in sorted(signatures))
