"""Kill commands that change a releases directory at random moments, and check what they leave behind."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.markdown import table, verdict
from benchmarks.reliability.place import CalibrationSite
from benchmarks.reliability.plan import ReliabilityPlan
from taugate.cli import main as cli
from taugate.errors import ReleaseError
from taugate.registry import history
from taugate.registry.catalog import pointed_id, release_ids
from taugate.registry.prune import prune
from taugate.retrieval.release.layout import CURRENT, PRUNED_PREFIX, SHADOW, STAGING_PREFIX
from taugate.retrieval.release.verify import verify
from tests.registry.watched import start_changing, watched

HEADING = "kill -9"
_KEEP = 5  # so that looking at every release after every kill stays short
_CALIBRATIONS = 0.4  # share of the kills; the others are shared by promotions and prunes
_LATEST = 1.2  # of the time that it took once: some take longer
_SECONDS = 0.1  # in which a process that changes one thing after the other is killed: some twenty changes


@dataclass
class KillFindings:
    """After the kills of one kind of command."""

    kills: int = 0
    inside: int = 0
    looks: int = 0
    verified: int = 0
    damaged: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)


def section(plan: ReliabilityPlan) -> str:
    """Kill each command many times and count directories that are damaged."""
    rng = random.Random(plan.seed)  # noqa: S311 (no secret)
    place = CalibrationSite.prepared(plan.work)
    calibrations = round(_CALIBRATIONS * plan.kills)
    promotions = (plan.kills - calibrations) // 2
    pruned = plan.kills - calibrations - promotions
    found = {
        "`taugate calibrate`": _killed(place, _calibrations(place, calibrations, rng)),
        "promote and rollback": _killed(place, _changes(place, promotions, rng, 0, ["promote", "rollback"])),
        "prune": _killed(place, _changes(place, pruned, rng, promotions, ["prune"])),
    }
    _goes_on(place.releases, place.calibrate(0))
    return _text(found)


def _goes_on(releases: Path, process: "subprocess.Popen[str]") -> None:
    """Check that a killed command does not prevent the next calibration, rollback and prune, which leaves nothing behind."""
    codes = [process.wait()]
    for action in (["rollback"], ["prune", "--keep", "2"], ["verify"]):
        codes += [cli.main(["release", *action, "--releases", str(releases)])]
    if any(codes):
        sys.exit(f"what was killed keeps others from their work: exit codes {codes}")


def _calibrations(place: CalibrationSite, kills: int, rng: random.Random) -> Iterable[Callable[[], None]]:
    """Yield calibrations to kill: half at any moment, half while the release is written and promoted."""
    for seed in range(kills):
        moment = rng.uniform(0, _LATEST * place.seconds[seed % 2])

        def kill(seed: int = seed, moment: float = moment) -> None:
            process = place.calibrate(2 + seed)
            if seed % 2:
                place.until_it_writes(process)
            _kill(process, moment)

        yield kill
        list(prune(place.releases, _KEEP))


def _changes(
    place: CalibrationSite, kills: int, rng: random.Random, first: int, actions: list[str]
) -> Iterable[Callable[[], None]]:
    for seed in range(first, first + kills):
        moment = rng.uniform(0, _SECONDS)

        def kill(seed: int = seed, moment: float = moment) -> None:
            _kill(start_changing(place.releases, seed, "--actions", *actions), moment)

        yield kill


def _kill(process: "subprocess.Popen[str]", moment: float) -> None:
    time.sleep(moment)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def _killed(place: CalibrationSite, kills: Iterable[Callable[[], None]]) -> KillFindings:
    found, before = KillFindings(), _begun(place.releases)
    for kill in kills:
        with watched(place.releases) as seen:
            kill()
        seen.look(place.releases)
        found.kills += 1
        found.looks += seen.looks
        found.without += seen.faults
        after = _begun(place.releases)
        found.inside += not after <= before
        before = after
        for name in release_ids(place.releases):
            found.verified += 1
            try:
                verify(place.releases / name)
            except (ReleaseError, OSError) as error:
                found.damaged.append(str(error))
    return found


def _begun(releases: Path) -> set[object]:
    """Traces of changes that did not come to their end."""
    past = history.read(releases)
    pointers = {pointer: pointed_id(releases, pointer) for pointer in (CURRENT, SHADOW)}
    done = history.took_effect(past.events, pointers)
    interrupted = {number for number, moved in enumerate(done) if not moved}
    left = {
        entry.name for prefix in (STAGING_PREFIX, PRUNED_PREFIX, f".{CURRENT}") for entry in releases.glob(f"{prefix}*")
    }
    return {*interrupted, *left, *(f"line {number}" for number in past.unreadable)}


def _text(found: dict[str, KillFindings]) -> str:
    header = ["killed", "kills", "traces left", "looks at `current`", "without one", "releases verified", "that do not"]
    rows = [
        [
            name,
            each.kills,
            each.inside,
            f"{each.looks:,}",
            len(each.without),
            f"{each.verified:,}",
            len(each.damaged),
        ]
        for name, each in found.items()
    ]
    kills = sum(each.kills for each in found.values())
    damaged = [fault for each in found.values() for fault in each.damaged]
    without = [fault for each in found.values() for fault in each.without]
    targets = [
        [
            f"releases that list but do not verify, after {kills} kills",
            0,
            len(damaged),
            verdict(reached=not damaged),
        ],
        ["times without a current release", 0, len(without), verdict(reached=not without)],
    ]
    faults = "".join(f"\n- {fault}" for fault in sorted({*damaged, *without}))
    return (
        f"{_INTRODUCTION}\n\n{table(header, rows)}\n\n{table(['target', 'wanted', 'measured', ''], targets)}\n{faults}"
    )


_INTRODUCTION = """\
`taugate calibrate` is killed at random moments, every second time while it writes and promotes. It runs on the sample data set with an
encoder of random word vectors, and takes about two seconds. Promotions, rollbacks and prunes are shorter than the start of a process.
So one process makes them one after the other, and is killed at a random moment of its first 100 ms.

After each kill every listed release is verified. All the while a reader checks which release is current. "Traces left" counts the kills
that leave something unfinished: a staging folder, a half-removed release, or a line of the history without its promotion. At the end
a calibration, a rollback and a prune succeed, and every release verifies."""
