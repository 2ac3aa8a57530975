"""Pruning removes old releases, and collections of an engine that no release names, but nothing that is needed.

An engine may hold the collections of several releases directories, so the caller must name all of them.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from taugate.errors import ReleaseError
from taugate.registry.catalog import current_id, erasure_source, parent_of, release_ids, shadow_id, unverified_manifest
from taugate.registry.history import calibration_lock, change_lock, record, try_lock_for_removal
from taugate.registry.promotion import rollback_targets
from taugate.release.engine import EngineRecord
from taugate.release.layout import PRUNED_PREFIX, STAGING_PREFIX, baseline_path
from taugate.retrieval.engines.engine import Engine
from taugate.storage.files import sync_folder
from taugate.storage.folders import remove_abandoned

KEEP = 10  # as many as Helm and a Kubernetes Deployment keep for rollbacks
_OPEN = "open in a service, or its lock cannot be checked"

HOURS = 24  # a younger collection may have just been uploaded by a calibration elsewhere
_TIMEOUT = 60.0  # seconds for one request


@dataclass(frozen=True)
class PruneDecision:
    """The decision on a release that is not among the newest, or on a collection."""

    name: str  # id of the release, or name of the collection
    kept: str | None  # why it is kept, None if it is removed


def prune(releases: Path, keep: int = KEEP, *, dry_run: bool = False) -> Iterator[PruneDecision]:
    """Remove old releases one by one, and leftovers of killed commands; yields each decision once it is done."""
    # Releases that are needed are kept, however old. Decisions come oldest first, without releases that another prune
    # removes at the same time.
    if not dry_run:
        _clear(releases)
    names = release_ids(releases)
    for name in names[: max(len(names) - keep, 0)]:
        decision = PruneDecision(name, _why_kept(releases, name)) if dry_run else _remove(releases, name)
        if decision is not None:
            yield decision


def _remove(releases: Path, name: str) -> PruneDecision | None:
    """Hide a release by renaming it under the lock, then delete it, which may take long. None if it is gone."""
    gone = releases / f"{PRUNED_PREFIX}{name}"
    with change_lock(releases), try_lock_for_removal(releases / name) as locked:
        if not (releases / name).is_dir():  # another prune had the lock first, removed it and recorded it
            return None
        kept = _needed(releases).get(name) or (None if locked else _OPEN)
        if kept is not None:
            return PruneDecision(name, kept)
        failed = _try_record(releases, name)
        (releases / name).rename(gone)
        baseline_path(releases, name).unlink(missing_ok=True)
        sync_folder(releases)
    with suppress(FileNotFoundError):  # another prune took it for a leftover, and deletes it as well
        shutil.rmtree(gone)
    if failed is not None:
        with change_lock(releases):
            record(releases, "prune", name, None)
    return PruneDecision(name, None)


def _try_record(releases: Path, name: str) -> OSError | None:
    """Record a removal; returns the error if that fails."""
    # The release is pruned all the same, and recorded afterwards, because its removal frees space on a full disk.
    try:
        record(releases, "prune", name, None)
    except OSError as error:
        return error
    return None


def _why_kept(releases: Path, name: str) -> str | None:
    needed = _needed(releases).get(name)
    if needed is not None:
        return needed
    with try_lock_for_removal(releases / name) as locked:
        return None if locked else _OPEN


def _needed(releases: Path) -> dict[str | None, str]:
    """Return why releases are needed, by id. Raises ReleaseError if a pointer does not name a release."""
    # If the current release comes from an erasure, no earlier one is needed, as they may have the erased documents.
    current = current_id(releases)
    back: dict[str | None, str] = {}
    if erasure_source(releases, current) is None:
        back[parent_of(releases, current)] = "parent of the current release"
        back[next(iter(rollback_targets(releases)), None)] = "target of a rollback"
    return {**back, shadow_id(releases): "shadow", current: "current"}  # the last reason counts


def _clear(releases: Path) -> None:
    """Remove leftovers of killed prunes and calibrations; another prune may do so at the same time."""
    for folder in releases.glob(f"{PRUNED_PREFIX}*"):
        shutil.rmtree(folder, ignore_errors=True)
    remove_abandoned(releases, STAGING_PREFIX)


def prune_collections(
    engine: Engine, directories: Sequence[Path], *, dry_run: bool = False, now: float | None = None
) -> Iterator[PruneDecision]:
    """Drop collections one by one; yields each decision once it is done, in the order of their names."""
    # Locks out calibrations in all of the directories, because they may be about to name a collection.
    with ExitStack() as locks:
        if not dry_run:
            for directory in dict.fromkeys(path.resolve() for path in directories):
                locks.enter_context(calibration_lock(directory))
        needed = _needed_collections(engine, directories)
        for name in engine.names(_deadline()):
            kept = needed.get(name) or _too_young(engine, name, time.time() if now is None else now)
            if kept is None and not dry_run:
                engine.drop(name, _deadline())
            yield PruneDecision(name, kept)


def _needed_collections(engine: Engine, directories: Sequence[Path]) -> dict[str, str]:
    """Return the collections that releases name, each with the reason to keep it."""
    needed: dict[str, str] = {}
    for directory in directories:
        if not directory.is_dir():
            raise ReleaseError(f"{directory}: no such directory; name every directory of releases in this engine")
        for name in release_ids(directory):
            manifest = unverified_manifest(directory, name)
            if not manifest:
                raise ReleaseError(
                    f"{directory / name}: its manifest cannot be read, so the collection that it needs is unknown; "
                    "remove the release first"
                )
            if (raw := manifest.get("engine")) is None:
                continue
            try:
                record = EngineRecord.model_validate(raw)
            except ValidationError as error:
                raise ReleaseError(f"{directory / name}: its engine record cannot be read; remove it first") from error
            if record.kind == engine.kind:
                needed[record.collection] = f"used by release {name}"
    return needed


def _too_young(engine: Engine, name: str, now: float) -> str | None:
    created = engine.created(name, _deadline())
    if created is None:
        return "of unknown age"
    hours = (now - created) / 3600
    return None if hours >= HOURS else f"created {max(hours, 0):.1f} hours ago, less than {HOURS}"


def _deadline() -> float:
    return time.monotonic() + _TIMEOUT
