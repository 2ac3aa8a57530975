"""Writing a release so that it is complete or absent: staged beside the others, synced, then renamed."""

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from taugate.errors import ReleaseError
from taugate.registry.catalog import current_id
from taugate.retrieval.release.layout import MANIFEST, STAGING_PREFIX, content_digest, release_id, stored_files
from taugate.retrieval.release.manifest import Manifest
from taugate.storage.files import sha256_file, sync_folder
from taugate.storage.folders import publish, staging_folder


def write(
    releases: Path,
    facts: Mapping[str, Any],
    fill: Callable[[Path], None],
    now: Callable[[], datetime] | None = None,
    *,
    parent: str | None = None,
) -> Manifest:
    """Add a release to a releases directory; returns its manifest. Nothing is promoted.

    releases: the releases directory, which is made where needed. facts: the manifest less schema_version, release_id,
    created_at, parent and files. fill: writes every file of the release into the empty folder that it is given. now:
    returns the time of creation, UTC; by default the clock's, in whole seconds. parent: id of the release that it
    comes after; by default the current one. Raises OSError; nothing is left behind then.
    """
    try:
        with staging_folder(releases, STAGING_PREFIX) as staging:
            fill(staging)
            manifest = _manifest(staging, facts, parent or _current_or_none(releases), (now or _utc_now)())
            (staging / MANIFEST).write_bytes(orjson.dumps(manifest.model_dump(), option=orjson.OPT_INDENT_2) + b"\n")
            _make_readable_and_sync(staging)
            publish(staging, releases / manifest.release_id)
            sync_folder(releases)
    except OSError as error:
        raise OSError(f"{releases}: no release could be written there ({error}); nothing of it is left") from error
    return manifest


def _manifest(staging: Path, facts: Mapping[str, Any], parent: str | None, created_at: datetime) -> Manifest:
    files = {
        name: {"sha256": sha256_file(staging / name), "bytes": (staging / name).stat().st_size}
        for name in sorted(stored_files(staging))
    }
    draft = Manifest(release_id="", created_at=created_at.isoformat(), parent=parent, files=files, **facts)
    identifier = release_id(created_at, content_digest(draft.model_dump()))
    return draft.model_copy(update={"release_id": identifier})


def _current_or_none(releases: Path) -> str | None:
    """Return the current release's id, or None: a broken pointer must not keep a new release from being written."""
    try:
        return current_id(releases)
    except ReleaseError:
        return None


def _utc_now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _make_readable_and_sync(folder: Path) -> None:
    """Let whoever serves it read the folder, and wait for the disk: a library that wrote a file did neither."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            path.chmod(0o644)
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            sync_folder(path)
    folder.chmod(0o755)
    sync_folder(folder)
