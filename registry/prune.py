"""Remove old releases with their baselines, and never one that somebody needs."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from taugate.registry import catalog as outline
from taugate.registry.catalog import current_id, release_ids, shadow_id, sync_folder
from taugate.registry.history import earlier, record
from taugate.registry.lock import locked, unheld
from taugate.retrieval.release.layout import PRUNED_PREFIX, STAGING_PREFIX, baseline_path
from taugate.storage.files import clear_left

KEEP = 10  # as many as Helm and a Kubernetes Deployment keep to go back to
_OPEN = "a service has it open, or that cannot be known"


@dataclass(frozen=True)
class Outcome:
    """What became of a release that is not among the newest. kept: why it stays, None where it does not."""

    name: str
    kept: str | None


def prune(releases: Path, keep: int = KEEP, *, dry_run: bool = False) -> Iterator[Outcome]:
    """Remove all but the newest `keep` releases and those that are needed, one by one, and what killed commands left.

    Yields what was decided, oldest first, once it is done; nothing of a release that another prune removes meanwhile.
    Raises ReleaseError or OSError where the directory cannot be changed; a release is then there as a whole or not at
    all.
    """
    if not dry_run:
        _clear(releases)
    names = release_ids(releases)
    for name in names[: max(len(names) - keep, 0)]:
        outcome = Outcome(name, _reason(releases, name)) if dry_run else _remove(releases, name)
        if outcome is not None:
            yield outcome


def _remove(releases: Path, name: str) -> Outcome | None:
    """Out of sight in one step under the lock, then off the disk, which may take long. None where it is gone."""
    gone = releases / f"{PRUNED_PREFIX}{name}"
    with locked(releases), unheld(releases / name) as free:
        if not (releases / name).is_dir():  # another prune had the lock first, removed it and recorded it
            return None
        kept = _needed(releases).get(name) or (None if free else _OPEN)
        if kept is not None:
            return Outcome(name, kept)
        failed = _recorded(releases, name)
        (releases / name).rename(gone)
        baseline_path(releases, name).unlink(missing_ok=True)
        sync_folder(releases)
    with suppress(FileNotFoundError):  # another prune takes it for left behind, and ends what was begun
        shutil.rmtree(gone)
    if failed is not None:
        with locked(releases):
            record(releases, "prune", name, None)
    return Outcome(name, None)


def _recorded(releases: Path, name: str) -> OSError | None:
    """Why it could not be recorded. It is pruned all the same, and recorded after: that makes room on a full disk."""
    try:
        record(releases, "prune", name, None)
    except OSError as error:
        return error
    return None


def _reason(releases: Path, name: str) -> str | None:
    needed = _needed(releases).get(name)
    if needed is not None:
        return needed
    with unheld(releases / name) as free:
        return None if free else _OPEN


def _needed(releases: Path) -> dict[str | None, str]:
    """Why releases stay, by id; the last reason counts. Raises ReleaseError where a pointer cannot be believed.

    Behind an erasure nothing is needed: whatever was current before may have what was erased.
    """
    current = current_id(releases)
    back: dict[str | None, str] = {}
    if outline.erased_from(releases, current) is None:
        back[outline.parent(releases, current)] = "parent of the current release"
        back[next(iter(earlier(releases)), None)] = "where a rollback goes to"
    return {**back, shadow_id(releases): "shadow", current: "current"}


def _clear(releases: Path) -> None:
    """What a killed prune or calibration left. One that runs beside this one may take the same files away."""
    for left in releases.glob(f"{PRUNED_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    clear_left(releases, STAGING_PREFIX)
