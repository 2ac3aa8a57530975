"""Pruning: removes old releases with their baselines, and never one that is needed."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from taugate.registry.catalog import current_id, erasure_source, parent_of, release_ids, shadow_id
from taugate.registry.history import record
from taugate.registry.lock import change_lock, try_lock_for_removal
from taugate.registry.promotion import rollback_targets
from taugate.retrieval.release.layout import PRUNED_PREFIX, STAGING_PREFIX, baseline_path
from taugate.storage.files import sync_folder
from taugate.storage.folders import remove_abandoned

KEEP = 10  # as many as Helm and a Kubernetes Deployment keep for rollbacks
_OPEN = "open in a service, or its lock cannot be checked"


@dataclass(frozen=True)
class PruneDecision:
    """The decision on a release that is not among the newest, or on a collection.

    Attributes:
        name: Id of the release, or name of the collection.
        kept: Why it is kept, None if it is removed.
    """

    name: str
    kept: str | None


def prune(releases: Path, keep: int = KEEP, *, dry_run: bool = False) -> Iterator[PruneDecision]:
    """Remove old releases one by one, and leftovers of killed commands; yields each decision once it is done.

    Releases that are needed are kept, however old. Decisions come oldest first, without releases that another prune
    removes at the same time.

    Args:
        releases: The releases directory.
        keep: Number of newest releases to keep in any case.
        dry_run: Decide, and change nothing.

    Raises:
        ReleaseError: If a pointer is wrong, or the directory is locked. A release is then complete or gone.
        OSError: If the directory cannot be changed. A release is then complete or gone.
    """
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
    """Record a removal; returns the error if that fails.

    The release is pruned all the same, and recorded afterwards, because its removal frees space on a full disk.
    """
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
    """Return why releases are needed, by id.

    If the current release comes from an erasure, no earlier one is needed, as they may have the erased documents.

    Raises:
        ReleaseError: If a pointer does not name a release.
    """
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
