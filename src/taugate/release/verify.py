"""Verifies that a release is complete and matches its id and its signature.

Signatures of a release: Ed25519 (RFC 8032) over the exact bytes of its manifest, which digests every file.
`manifest.sig` has one line per key with the key's id and the signature, both in hexadecimal, so that only one regular
expression parses untrusted bytes. It is not part of the release's content, because a release may be signed later.

The order makes it safe: first the signature if one is required, then JSON, then the schema, then the size and digest of
every file. Nothing else reads the files before that.
"""

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import orjson
from pydantic import ValidationError

from taugate.errors import InputError, ReleaseError
from taugate.policy.policy import POLICIES
from taugate.release.files import names_of
from taugate.release.layout import MANIFEST, MANIFEST_BYTES, RELEVANCE, SIGNATURE, content_digest, stored_files
from taugate.release.manifest import SCHEMA_VERSION, FileRecord, Manifest, ReleaseManifest, RunManifest
from taugate.release.names import disagreement
from taugate.release.records import SCHEMA_2, migrated
from taugate.storage.files import Json, open_regular, read_bounded

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


_PEM = re.compile(rb"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)
_KEYS_REMEDY = "give a PEM file with Ed25519 public keys (`openssl pkey -pubout`), or a folder of them"
_LINE = re.compile(rb"([0-9a-f]{64}) ([0-9a-f]{128})\n")
_LINE_BYTES = 194
SIGNATURE_BYTES = 100 * _LINE_BYTES  # far more signatures than any release has; a larger file is never read

_REMEDY = "calibrate again, or promote another release"
_MAX_SHOWN = 200  # characters of a manifest's value in a message


@dataclass(frozen=True)
class TrustedKeys:
    """The public keys whose signatures are trusted."""

    source: Path  # file or folder of the keys
    keys: Mapping[str, "Ed25519PublicKey"]  # Ed25519 keys by id

    @classmethod
    def load(cls, source: Path) -> Self:
        """Load all keys of a PEM file, or of the *.pem files of a folder.

        Raises InputError if `source` cannot be read or holds anything else.
        """
        require_cryptography()
        files = sorted(source.glob("*.pem")) if source.is_dir() else [source]
        keys = {key_id(key): key for file in files for key in _read_public_keys(file)}
        if not keys:
            raise InputError(f"{source}: holds no trusted key; {_KEYS_REMEDY}")
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
        raise InputError(f"{path}: cannot read the trusted keys ({error.strerror}); {_KEYS_REMEDY}") from error
    keys = []
    for block in _PEM.finditer(content):
        if b"PRIVATE" in block[1]:
            raise InputError(f"{path}: holds a private key, which a service must not have; {_KEYS_REMEDY}")
        try:
            key = load_pem_public_key(block[0])
        except Exception as error:  # no common base class: not base64, unknown algorithm, a certificate
            raise InputError(f"{path}: holds a block that is not a public key; {_KEYS_REMEDY}") from error
        if not isinstance(key, Ed25519PublicKey):
            raise InputError(f"{path}: holds a public key that is not Ed25519; {_KEYS_REMEDY}")
        keys.append(key)
    if not keys:
        raise InputError(f"{path}: holds no trusted key; {_KEYS_REMEDY}")
    return keys


def check_signature(release: Path, manifest: bytes, trusted: TrustedKeys) -> None:
    """Check that one of the trusted keys signed the bytes of a release's manifest; raises ReleaseError if none did."""
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

    Raises ReleaseError if the file does not hold signatures.
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


def verify(release: Path, trusted: TrustedKeys | None = None) -> ReleaseManifest:
    """Check signature, schema version, id, content digest, and the digest and size of every file.

    Without `trusted`, no signature is required. Raises ReleaseError if a check fails; names the first failure.
    """
    return verified(release, trusted)[0]


def verify_searchable(release: Path, trusted: TrustedKeys | None = None) -> Manifest:
    """Verify a release like `verify`; also raises ReleaseError if it has no documents to search."""
    manifest = verify(release, trusted).searchable
    if manifest is None:
        raise ReleaseError(
            f"{release}: was calibrated on a run, so it has neither encoder nor documents; name a release of "
            "`taugate calibrate`"
        )
    return manifest


def is_of_run(release: Path) -> bool:
    """Return whether a release says that it was calibrated on a run; False if its manifest cannot be read.

    Nothing else is checked: opening the release verifies it.
    """
    with suppress(ReleaseError):
        return "retriever" in _parsed(release / MANIFEST, _manifest_bytes(release / MANIFEST))
    return False


def verified(release: Path, trusted: TrustedKeys | None = None) -> tuple[ReleaseManifest, bytes]:
    """Verify a release like `verify`; returns the manifest and the bytes that it was read from."""
    content = _manifest_bytes(release / MANIFEST)
    manifest = read_manifest(release, content, trusted)
    _verify_files(release, manifest)
    return manifest, content


def read_manifest(release: Path, content: bytes, trusted: TrustedKeys | None) -> ReleaseManifest:
    """Parse and check the bytes of a manifest without reading other files of the release; see `verify`."""
    if trusted is not None:
        check_signature(release, content, trusted)
    raw = _parsed(release / MANIFEST, content)
    try:
        schema = RunManifest if "retriever" in raw else Manifest
        manifest: ReleaseManifest = schema.model_validate(_migrated(release, raw), strict=True)
    except ValidationError as error:
        detail = error.errors()[0]
        field = ".".join(map(str, detail["loc"]))[:_MAX_SHOWN]
        raise ReleaseError(f"{release / MANIFEST}: {field}: {detail['msg']}; {_REMEDY}") from error
    if manifest.release_id != release.name:
        recorded = _shown(manifest.release_id)
        raise ReleaseError(f"{release / MANIFEST}: says it is {recorded}, not {release.name}; {_REMEDY}")
    if content_digest(raw)[:12] != manifest.release_id[-12:]:
        raise ReleaseError(f"{release / MANIFEST}: its content digest is not the one in its id; {_REMEDY}")
    if different := _files_differ(manifest):
        names = _shown(", ".join(sorted(different)))
        raise ReleaseError(f"{release / MANIFEST}: its list of files is not that of this version ({names}); {_REMEDY}")
    return manifest


def _migrated(release: Path, raw: dict[str, Json]) -> dict[str, Json]:
    """Return a manifest in this schema version."""
    version = raw.get("schema_version")
    if version == SCHEMA_2:
        return migrated(raw, SCHEMA_VERSION)
    if version == SCHEMA_VERSION:
        return raw
    remedy = "calibrate with this version, or install the one that wrote it"
    if isinstance(version, int) and version > SCHEMA_VERSION:
        remedy = "upgrade the services first, then the machines that calibrate"
    raise ReleaseError(
        f"{release / MANIFEST}: schema version {_shown(version)}, this taugate reads {SCHEMA_2} and {SCHEMA_VERSION}; "
        f"{remedy}"
    )


def _files_differ(manifest: ReleaseManifest) -> frozenset[str]:
    """Return the missing and the unexpected files of a release."""
    names = names_of(manifest)
    return names.required ^ (frozenset(manifest.files) - names.optional)


def _manifest_bytes(path: Path) -> bytes:
    try:
        return read_bounded(path, MANIFEST_BYTES)
    except FileNotFoundError as error:
        raise ReleaseError(f"{path}: missing; {_REMEDY}") from error
    except OSError as error:
        raise ReleaseError(f"{path}: cannot be read, or is not a plain file of at most 8 MiB; {_REMEDY}") from error


def _parsed(path: Path, content: bytes) -> dict[str, Json]:
    try:
        raw = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise ReleaseError(f"{path}: cannot be read as JSON; {_REMEDY}") from error
    if not isinstance(raw, dict):
        raise ReleaseError(f"{path}: not a JSON object; {_REMEDY}")
    return raw


def _shown(value: Any) -> str:  # noqa: ANN401 (from an unchecked manifest)
    """Format a value for a message: its repr, which escapes control characters, shortened."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _verify_files(release: Path, manifest: ReleaseManifest) -> None:
    """Check that the folder has exactly the files of the manifest, whose names are those of this schema version."""
    stored = stored_files(release)
    for name in sorted(set(manifest.files) | stored):
        path, record = release / name, manifest.files.get(name)
        if record is None:
            raise ReleaseError(f"{path}: not part of this release; remove it")
        if name not in stored:  # also if a folder is a link
            raise ReleaseError(f"{path}: missing, or not a plain file; {_REMEDY}")
        try:
            _verify_file(path, record)
        except OSError as error:
            raise ReleaseError(f"{path}: cannot be read, or is not a plain file; {_REMEDY}") from error


def _verify_file(path: Path, record: FileRecord) -> None:
    """Check one file, which is opened once so that size and hash are of the same content."""
    with open_regular(path) as (file, size):
        if size != record.bytes:
            raise ReleaseError(f"{path}: {size} bytes instead of the {record.bytes} in the manifest; {_REMEDY}")
        if hashlib.file_digest(file, "sha256").hexdigest() != record.sha256:
            raise ReleaseError(f"{path}: SHA-256 differs from the manifest's; {_REMEDY}")


def check_optional_files(release: Path, manifest: ReleaseManifest) -> None:
    """Check that the release has an optional file if and only if the manifest has its record."""
    for name, is_expected in names_of(manifest).recorded.items():
        if is_expected != (name in manifest.files):
            raise disagreement(release, name)
    if manifest.relevance is None and POLICIES[manifest.policy.kind].needs_model:
        raise ReleaseError(
            f"{release}: the policy is {manifest.policy.kind}, but there is no {RELEVANCE}; calibrate again"
        )
