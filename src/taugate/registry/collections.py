"""Prunes an engine: drops collections that no release names, and never one that may still be needed.

An engine may hold the collections of several releases directories, which do not know each other. So the caller must
name all of them.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from pydantic import ValidationError

from taugate.errors import ReleaseError
from taugate.registry.catalog import release_ids, unverified_manifest
from taugate.registry.lock import calibration_lock
from taugate.registry.prune import PruneDecision
from taugate.retrieval.engines.engine import Engine
from taugate.retrieval.engines.record import EngineRecord

HOURS = 24  # a younger collection may have just been uploaded by a calibration elsewhere
_TIMEOUT = 60.0  # seconds for one request


def prune_collections(
    engine: Engine, directories: Sequence[Path], *, dry_run: bool = False, now: float | None = None
) -> Iterator[PruneDecision]:
    """Drop collections one by one; yields each decision once it is done, in the order of their names.

    Locks out calibrations in all of the directories, because they may be about to name a collection.

    Args:
        engine: The engine that holds the collections.
        directories: Every releases directory whose releases are in this engine.
        dry_run: Decide, and drop nothing.
        now: Unix time in seconds; by default the current time.

    Raises:
        ReleaseError: If a release cannot be read or a calibration is running; nothing is dropped then.
        EngineUnavailable: If the engine is not responding.
    """
    with ExitStack() as locks:
        if not dry_run:
            for directory in dict.fromkeys(path.resolve() for path in directories):
                locks.enter_context(calibration_lock(directory))
        needed = _needed(engine, directories)
        for name in engine.names(_deadline()):
            kept = needed.get(name) or _too_young(engine, name, time.time() if now is None else now)
            if kept is None and not dry_run:
                engine.drop(name, _deadline())
            yield PruneDecision(name, kept)


def _needed(engine: Engine, directories: Sequence[Path]) -> dict[str, str]:
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
