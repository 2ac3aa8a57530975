"""Pruning an engine: drop the collections that no release names any more, and never one that somebody may still need.

An engine may hold the collections of several releases directories, which know nothing of each other. So whoever prunes
names all of them.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from taugate.errors import ReleaseError
from taugate.registry.catalog import release_ids, unverified_manifest
from taugate.registry.lock import calibration_lock
from taugate.retrieval.engines.engine import Engine
from taugate.retrieval.engines.record import EngineRecord

HOURS = 24  # a collection that is younger may be one that a calibration elsewhere has just uploaded
_ANSWER = 60.0  # seconds for one question


@dataclass(frozen=True)
class CollectionDecision:
    """What became of a collection: its name, and why it stays; `kept` is None where it is dropped."""

    name: str
    kept: str | None


def prune_collections(
    engine: Engine, directories: Sequence[Path], *, dry_run: bool = False, now: float | None = None
) -> Iterator[CollectionDecision]:
    """Drop collections one by one; yields each decision once it is done, in the order of their names.

    No calibration runs in any of the directories meanwhile, as it may be about to name one.

    Args:
        engine: That holds the collections.
        directories: Every releases directory whose releases are in this engine.
        dry_run: Decide, and drop nothing.
        now: Seconds since 1970; by default the clock's.

    Raises:
        ReleaseError: Where a release cannot be read or a calibration is under way, before anything is dropped, and
            EngineUnavailable.
    """
    with ExitStack() as locks:
        if not dry_run:
            for directory in dict.fromkeys(each.resolve() for each in directories):
                locks.enter_context(calibration_lock(directory))
        needed = _needed(engine, directories)
        for name in engine.names(_soon()):
            kept = needed.get(name) or _too_young(engine, name, time.time() if now is None else now)
            if kept is None and not dry_run:
                engine.drop(name, _soon())
            yield CollectionDecision(name, kept)


def _needed(engine: Engine, directories: Sequence[Path]) -> dict[str, str]:
    """Return the collections that releases name, each with one of these."""
    found: dict[str, str] = {}
    for directory in directories:
        if not directory.is_dir():
            raise ReleaseError(f"{directory}: no such directory; name every directory of releases in this engine")
        for name in release_ids(directory):
            manifest = unverified_manifest(directory, name)
            if not manifest:
                raise ReleaseError(
                    f"{directory / name}: its manifest cannot be read, so nobody knows which collection it needs; "
                    "remove the release first"
                )
            if (written := manifest.get("engine")) is None:
                continue
            try:
                record = EngineRecord.model_validate(written)
            except ValidationError as error:
                raise ReleaseError(f"{directory / name}: its engine record cannot be read; remove it first") from error
            if record.kind == engine.kind:
                found[record.collection] = f"of release {name}"
    return found


def _too_young(engine: Engine, name: str, now: float) -> str | None:
    created = engine.created(name, _soon())
    if created is None:
        return "nobody knows when it was made"
    hours = (now - created) / 3600
    return None if hours >= HOURS else f"made {max(hours, 0):.1f} hours ago, less than {HOURS}"


def _soon() -> float:
    return time.monotonic() + _ANSWER
