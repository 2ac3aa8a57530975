"""Writes releases: the folder with its manifest, which appears complete or not at all."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import orjson

from taugate.errors import ReleaseError
from taugate.registry.catalog import current_id, release_ids
from taugate.release.layout import (
    CHECK,
    MANIFEST,
    REPORT,
    STAGING_PREFIX,
    content_digest,
    digest_of,
    release_id,
    stored_files,
)
from taugate.release.manifest import FileRecord, ReleaseManifest
from taugate.release.verify import verify
from taugate.storage.files import atomic_write, set_mode, sha256_file, sync, sync_folder
from taugate.storage.folders import publish_folder, staging_folder

M = TypeVar("M", bound=ReleaseManifest)
# What a report has in the places of the release's id and time, which are known once all other files are written.
RELEASE_ID, CREATED_AT = "@RELEASE_ID@", "@CREATED_AT@"


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
    script = (files("taugate.release") / CHECK).read_bytes()
    try:
        with staging_folder(releases, STAGING_PREFIX) as staging:
            fill(staging)
            manifest = _manifest(staging, draft, parent or _current_or_none(releases), _free_second(releases))
            (staging / MANIFEST).write_bytes(orjson.dumps(manifest.model_dump(), option=orjson.OPT_INDENT_2) + b"\n")
            _make_readable_and_sync(staging)
            if not (releases / CHECK).is_file() or (releases / CHECK).read_bytes() != script:
                atomic_write(releases / CHECK, script)
            publish_folder(staging, releases / manifest.release_id)
            sync_folder(releases)
    except OSError as error:
        raise OSError(f"{releases}: cannot write a release there ({error}); partial files were removed") from error
    return manifest


def without_equal(releases: Path, manifest: ReleaseManifest) -> ReleaseManifest:
    """Remove a new release if the current one has the same content, and return the manifest of the one that is kept."""
    current = _current_or_none(releases)
    if current is None or current == manifest.release_id or digest_of(current) != digest_of(manifest.release_id):
        return manifest
    try:
        kept = verify(releases / current)
    except ReleaseError:  # damaged, so the new one is needed
        return manifest
    shutil.rmtree(releases / manifest.release_id)
    return kept


def _manifest(staging: Path, draft: M, parent: str | None, created_at: datetime) -> M:
    records = {name: _record(staging / name) for name in sorted(stored_files(staging))}
    draft = draft.model_copy(update={"created_at": created_at.isoformat(), "parent": parent, "files": records})
    identifier = release_id(created_at, content_digest(draft.model_dump()))
    report = (staging / REPORT).read_bytes()
    for placeholder, value in ((RELEASE_ID, identifier), (CREATED_AT, f"{created_at:%Y-%m-%d %H:%M} UTC")):
        report = report.replace(placeholder.encode(), value.encode())
    (staging / REPORT).write_bytes(report)
    return draft.model_copy(update={"release_id": identifier, "files": records | {REPORT: _record(staging / REPORT)}})


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
    while any(name.startswith(release_id(second, "")) for name in names):
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
