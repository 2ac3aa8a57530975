"""A thousand corrupted releases, and as many forged ones: refused with the name of a file, and never a crash."""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.reliability.attempts import Attempt, attempts
from benchmarks.reliability.damage import Damage, files, flipped, mistyped, swapped, truncated
from benchmarks.reliability.forged_files import forge_file

HEADING = "Corrupted releases"
_CORRUPTIONS = (flipped, truncated, swapped, mistyped)
_MAX_MEMORY = 1 << 30  # bytes, resident


@dataclass(frozen=True)
class CorruptionRow:
    """Counts for one kind of damage: releases served, refused at load or when a document was read, and so on.

    Attributes:
        unnamed: Refused by a message without the name of a file that was damaged (of a forged release: of any file, as
            what does not fit is said of one of two).
        peak: Most resident bytes.
    """

    kind: str
    releases: int
    served: int
    refused: int
    refused_later: int
    crashed: int
    unnamed: int
    peak: int

    @property
    def sound(self) -> bool:
        """True if nothing crashed, every message had a name and memory stayed within its bound."""
        return not self.crashed and not self.unnamed and self.peak <= _MAX_MEMORY


def corrupted(releases: Sequence[Path], count: int, work: Path, seed: int = 0) -> list[CorruptionRow]:
    """Damage that digests or the schema give away: a release that is served is a failure."""
    return _measure(releases, [_CORRUPTIONS[i % len(_CORRUPTIONS)] for i in range(count)], work, seed)


def forged(releases: Sequence[Path], count: int, work: Path, seed: int = 0) -> list[CorruptionRow]:
    """Forge files within digests that fit: some change nothing that anyone could see, and these are served."""
    return _measure(releases, [forge_file] * count, work, seed)


def _measure(
    releases: Sequence[Path], kinds: Sequence[Callable[[Path, random.Random], Damage]], work: Path, seed: int
) -> list[CorruptionRow]:
    rng = random.Random(seed)  # noqa: S311 (nothing secret)
    chosen = [releases[i // len(_CORRUPTIONS) % len(releases)] for i in range(len(kinds))]
    plan = [(release, kind(release, rng)) for release, kind in zip(chosen, kinds, strict=True)]
    found: dict[str, list[tuple[Attempt, bool]]] = {}
    for (release, damage), attempt in zip(plan, attempts(_folders(plan, work)), strict=True):
        names = files(release) if damage.kind.startswith("forged") else damage.names
        named = any(name.rpartition("/")[2] in attempt.said for name in names)
        found.setdefault(damage.kind, []).append((attempt, named))
    return [_row(kind, found[kind]) for kind in sorted(found)]


def _folders(plan: Sequence[tuple[Path, Damage]], work: Path) -> Iterator[Path]:
    """Write damaged releases one at a time; the one before is removed when the next is asked for."""
    for release, damage in plan:
        folder = work / "damaged"
        folder.mkdir()
        yield damage.to(release, folder)
        shutil.rmtree(folder)


def _row(kind: str, found: Sequence[tuple[Attempt, bool]]) -> CorruptionRow:
    outcomes = Counter(attempt.outcome for attempt, _ in found)
    return CorruptionRow(
        kind=kind,
        releases=len(found),
        served=outcomes["served"],
        refused=outcomes["refused"],
        refused_later=outcomes["refused later"],
        crashed=outcomes["crashed"] + outcomes["hung"],
        unnamed=sum(attempt.outcome.startswith("refused") and not named for attempt, named in found),
        peak=max(attempt.peak for attempt, _ in found),
    )
