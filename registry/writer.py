"""Write a release so that it is complete or absent: staged beside the others, synced, renamed; `current` moves last."""

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from taugate.errors import ReleaseError
from taugate.registry.catalog import current_id, sync_folder
from taugate.retrieval.release.layout import MANIFEST, STAGING_PREFIX, content_digest, release_id, stored_files
from taugate.retrieval.release.manifest import Manifest
from taugate.storage.files import publish, sha256_file, staging_folder


def write(
    releases: Path,
    facts: Mapping[str, Any],
    fill: Callable[[Path], None],
    now: Callable[[], datetime] | None = None,
    *,
    parent: str | None = None,
) -> Manifest:
    """Add a release to a directory.

    facts: the manifest less schema_version, release_id, created_at, parent and files; fill: writes every file into the
    folder that it is given; parent: by default the current release. Returns the manifest. Raises OSError; nothing is
    left behind then.
    """
    try:
        with staging_folder(releases, STAGING_PREFIX) as staging:
            fill(staging)
            manifest = _manifest(staging, facts, parent or _parent(releases), (now or _utc_now)())
            (staging / MANIFEST).write_bytes(orjson.dumps(manifest.model_dump(), option=orjson.OPT_INDENT_2) + b"\n")
            _finish(staging)
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


def _parent(releases: Path) -> str | None:
    """The current release, where there is one: a pointer to none must not keep a new release from being written."""
    try:
        return current_id(releases)
    except ReleaseError:
        return None


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
