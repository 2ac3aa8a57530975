"""Writes releases, which appear complete or not at all, and signs them with a private key."""

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import orjson

from taugate.errors import InputError, ReleaseError
from taugate.registry.catalog import current_id, release_ids
from taugate.release import layout
from taugate.release.manifest import FileRecord, ReleaseManifest
from taugate.release.verify import (
    TrustedKeys,
    encode_signatures,
    key_id,
    read_signatures,
    require_cryptography,
    verified,
    verify,
)
from taugate.storage.files import atomic_write, set_mode, sha256_file, sync, sync_folder
from taugate.storage.folders import publish_folder, staging_folder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


M = TypeVar("M", bound=ReleaseManifest)
# What a report has in the places of the release's id and time, which are known once all other files are written.
RELEASE_ID, CREATED_AT = "@RELEASE_ID@", "@CREATED_AT@"

PASSPHRASE = "TAUGATE_SIGNING_PASSPHRASE"  # noqa: S105 (the variable that holds it)
SIGNING_KEY = "TAUGATE_SIGNING_KEY"  # file of the key that signs new releases
TRUSTED_KEYS = "TAUGATE_TRUSTED_KEYS"


def write(releases: Path, draft: M, fill: Callable[[Path], None], *, parent: str | None = None) -> M:
    """Add a release to a releases directory and return its manifest; nothing is promoted.

    The release is staged beside the others, synced, then renamed.

    Args:
        releases: The releases directory, created if needed.
        draft: The manifest; its release_id, created_at, parent and files are replaced.
        fill: Writes every file of the release into the empty folder passed to it; RELEASE_ID and CREATED_AT in the
            report are replaced then.
        parent: Id of the previous release; by default the current one.
    """
    script = (files("taugate.release") / layout.CHECK).read_bytes()
    try:
        with staging_folder(releases, layout.STAGING_PREFIX) as staging:
            fill(staging)
            manifest = _manifest(staging, draft, parent or _current_or_none(releases), _free_second(releases))
            (staging / layout.MANIFEST).write_bytes(
                orjson.dumps(manifest.model_dump(), option=orjson.OPT_INDENT_2) + b"\n"
            )
            if not (releases / layout.CHECK).is_file() or (releases / layout.CHECK).read_bytes() != script:
                atomic_write(releases / layout.CHECK, script)
            _make_readable_and_sync(staging)
            publish_folder(staging, releases / manifest.release_id)
            sync_folder(releases)
    except OSError as error:
        raise OSError(f"{releases}: cannot write a release there ({error}); partial files were removed") from error
    return manifest


def without_equal(releases: Path, manifest: ReleaseManifest) -> ReleaseManifest:
    """Remove a new release if the current one has the same content, and return the manifest of the one that is kept."""
    current = _current_or_none(releases)
    digest = layout.digest_of(manifest.release_id)
    if current is None or current == manifest.release_id or layout.digest_of(current) != digest:
        return manifest
    try:
        kept = verify(releases / current)
    except ReleaseError:  # damaged, so the new one is needed
        return manifest
    shutil.rmtree(releases / manifest.release_id)
    return kept


def _manifest(staging: Path, draft: M, parent: str | None, created_at: datetime) -> M:
    records = {name: _record(staging / name) for name in sorted(layout.stored_files(staging))}
    draft = draft.model_copy(update={"created_at": created_at.isoformat(), "parent": parent, "files": records})
    identifier = layout.release_id(created_at, layout.content_digest(draft.model_dump()))
    report = (staging / layout.REPORT).read_bytes()
    for placeholder, value in ((RELEASE_ID, identifier), (CREATED_AT, f"{created_at:%Y-%m-%d %H:%M} UTC")):
        report = report.replace(placeholder.encode(), value.encode())
    (staging / layout.REPORT).write_bytes(report)
    return draft.model_copy(
        update={"release_id": identifier, "files": records | {layout.REPORT: _record(staging / layout.REPORT)}}
    )


def _record(path: Path) -> FileRecord:
    return FileRecord(sha256=sha256_file(path), bytes=path.stat().st_size)


def _current_or_none(releases: Path) -> str | None:
    """Return the current release's id, or None, so that a broken pointer does not prevent writing a release."""
    try:
        return current_id(releases)
    except ReleaseError:
        return None


def _free_second(releases: Path) -> datetime:
    """Return the first second from now on, UTC, that is in no id of the directory."""
    # Ids sort by time. Two ids of the same second would sort by digest, which says nothing about their order.
    names = release_ids(releases)
    second = datetime.now(UTC).replace(microsecond=0)
    while any(name.startswith(layout.release_id(second, "")) for name in names):
        second += timedelta(seconds=1)
    return second


def _make_readable_and_sync(folder: Path) -> None:
    """Make the folder readable for the service's user, and sync it: libraries that wrote files did neither."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            set_mode(path, 0o644)
            with path.open("rb") as file:
                sync(file.fileno())
        else:
            sync_folder(path)
    set_mode(folder, 0o755)
    sync_folder(folder)


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
    with staging_folder(
        release.parent, layout.STAGING_PREFIX
    ) as staging:  # so that a partial file never appears in a release
        atomic_write(release / layout.SIGNATURE, encode_signatures(signatures), folder=staging)
    return signer


def trusted_keys(path: Path | None = None) -> TrustedKeys | None:
    """Load the trusted public keys, None if none are configured."""
    source = path or os.environ.get(TRUSTED_KEYS)
    return TrustedKeys.load(Path(source)) if source else None


def signing_key(path: Path | None, *, promoting: bool) -> "Ed25519PrivateKey | None":
    """Read the key to sign a new release with, None without a path."""
    key = None if path is None else read_private_key(path)
    trusted = trusted_keys() if promoting else None
    if trusted is not None and (key is None or key_id(key.public_key()) not in trusted.keys):
        raise InputError(
            f"{TRUSTED_KEYS} {trusted.source}: no service that trusts these keys would load the new release; "
            f"name one of them in {SIGNING_KEY}, or give --no-promote"
        )
    return key
