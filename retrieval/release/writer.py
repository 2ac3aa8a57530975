"""Write a release so that it is complete or absent: staged beside the others, synced, renamed; `current` moves last."""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from retrieval.digest import sha256_file
from retrieval.errors import InputError
from retrieval.release.catalog import current_id, sync_folder
from retrieval.release.layout import MANIFEST, STAGING_PREFIX, content_digest, release_id, stored_files
from retrieval.release.manifest import Manifest

# A staging folder this old has no living writer: the longest calibration copies its files in minutes.
_STALE_SECONDS = 24 * 3600


def write(
    releases: Path, facts: Mapping[str, Any], fill: Callable[[Path], None], now: Callable[[], datetime] | None = None
) -> Manifest:
    """Add a release to a directory.

    facts: the manifest less schema_version, release_id, created_at, parent and files; fill: writes every file into the
    folder that it is given. Returns the manifest. When anything fails, nothing is left behind.
    """
    try:
        releases.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{releases}: cannot be made a releases directory ({error.strerror}); name one that is, or a new one"
        ) from error
    _remove_stale(releases)
    staging = Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=releases))
    try:
        fill(staging)
        manifest = _manifest(staging, facts, current_id(releases), (now or _utc_now)())
        (staging / MANIFEST).write_bytes(orjson.dumps(manifest.model_dump(), option=orjson.OPT_INDENT_2) + b"\n")
        _finish(staging)
        if not (releases / manifest.release_id).exists():  # else: the same content, written within the same second
            staging.rename(releases / manifest.release_id)
        sync_folder(releases)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return manifest


def _manifest(staging: Path, facts: Mapping[str, Any], parent: str | None, created_at: datetime) -> Manifest:
    files = {
        name: {"sha256": sha256_file(staging / name), "bytes": (staging / name).stat().st_size}
        for name in sorted(stored_files(staging))
    }
    draft = Manifest(release_id="", created_at=created_at.isoformat(), parent=parent, files=files, **facts)
    identifier = release_id(created_at, content_digest(draft.model_dump()))
    return draft.model_copy(update={"release_id": identifier})


def _utc_now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _finish(folder: Path) -> None:
    """Readable by whoever serves it, and on the disk: neither is given for files that a library wrote."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            path.chmod(0o644)
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            sync_folder(path)
    folder.chmod(0o755)
    sync_folder(folder)


def _remove_stale(releases: Path) -> None:
    """Clear away what writers left that were killed. They never become releases, they only take space."""
    for folder in releases.glob(f"{STAGING_PREFIX}*"):
        if datetime.now(UTC).timestamp() - folder.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
