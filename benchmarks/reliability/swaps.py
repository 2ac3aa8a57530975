"""Promote and roll back releases under load, and measure what users notice and what stays in memory."""

import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import orjson

from benchmarks.drift.traffic import asked, released
from benchmarks.markdown import Target, table, targets
from benchmarks.reliability.checked_replies import CheckedLoad, Replies, Window
from benchmarks.reliability.plan import ReliabilityPlan
from benchmarks.serving.servers import Server
from benchmarks.serving.services import taugate
from taugate.registry.catalog import current_id, find
from taugate.registry.promotion import promote, rollback

HEADING = "Swaps under load"
_SETS = ("squad_v2_dev", "squadshifts_new_wiki")
_CLIENTS = 16
_IN_TURN = 5  # changes, of which the last is a rollback
_CALM_EVERY, _CALM_SECONDS = 25, 10.0
_LOOK, _PATIENCE = 0.05, 120.0  # seconds between two looks at /readyz; that a change may take
_LET_GO = 1.0  # seconds: the last replies of the old release take a tenth of that under this load


@dataclass(frozen=True)
class _SwapFindings:
    """swapping, calm: when there was a change of the release, and when none; resident: bytes after each change."""

    replies: Replies
    swapping: list[Window]
    calm: list[Window]
    resident: list[int]


def section(plan: ReliabilityPlan) -> str:
    """Swap releases in a loop, and report wrong replies, latency and memory."""
    found = _swapped(plan)
    replies, resident = found.replies, found.resident
    during, between = (
        [replies.milliseconds(p, found.swapping) for p in (50, 99)],
        [replies.milliseconds(p, found.calm) for p in (50, 99)],
    )
    took = sorted(end - begin for begin, end in found.swapping)
    rows = [
        ["between changes", *(f"{value:.1f}" for value in between)],
        ["during them", *(f"{value:.1f}" for value in during)],
    ]
    wanted = [
        Target("failed requests", replies.failed, at_most=0),
        Target("replies that mix two releases", replies.mixed, at_most=0),
        Target("memory after the last change over that after the first", resident[-1] / resident[0], at_most=1.1),
        Target("p99 during a change over p99 between them", during[1] / between[1], at_most=2),
    ]
    changes = len(found.swapping)
    return f"""\
The current release changes between one of {_SETS[0]} and one of {_SETS[1]}: {plan.swaps} promotions and {changes - plan.swaps} rollbacks, in float32. Meanwhile {_CLIENTS} clients ask new queries
in a closed loop. Each of the {len(replies):,} replies is checked: its documents and its threshold must be those of the release that it names.

A change takes {took[len(took) // 2]:.1f} s (median; at most {took[-1]:.1f}), from SIGHUP until a second after the new release is in service, when the old one is let go. In that
time the new release is verified, loaded and asked its golden queries, on the same two cores. Memory is {resident[0] / 1e6:,.0f} MB after the first
change, {resident[-1] / 1e6:,.0f} after the last, and {max(resident) / 1e6:,.0f} at most.

{table(["", "p50 ms", "p99 ms"], rows)}

{targets(wanted)}
"""


def _swapped(plan: ReliabilityPlan) -> _SwapFindings:
    with tempfile.TemporaryDirectory(dir=plan.work) as folder:
        releases = Path(folder)
        names = [_copied(plan, name, releases) for name in _SETS]
        promote(releases, names[0])
        swapping, calm, resident = [], [], []
        with Server(taugate(releases, "float32")) as server:
            load = CheckedLoad(
                server.port, _CLIENTS, sorted({*asked(plan.data, _SETS[0])}), [releases / name for name in names]
            )
            with load:
                time.sleep(_CALM_SECONDS)  # it warms up
                for number in range(plan.swaps * _IN_TURN // (_IN_TURN - 1)):
                    if number % _CALM_EVERY == 0:
                        began = time.monotonic()
                        time.sleep(_CALM_SECONDS)
                        calm.append((began, time.monotonic()))
                    if number % _IN_TURN == _IN_TURN - 1:
                        name = rollback(releases)
                    else:
                        (name,) = {*names} - {current_id(releases)}
                        promote(releases, name)
                    swapping.append(_change(server, name))
                    resident.append(server.resident_bytes)
    return _SwapFindings(load.replies, swapping, calm, resident)


def _copied(plan: ReliabilityPlan, name: str, releases: Path) -> str:
    """The release of a data set, among others."""
    released(plan.data, name, plan.kept)
    source = find(plan.kept / name)
    shutil.copytree(source, releases / source.name)
    return source.name


def _change(server: Server, name: str) -> Window:
    """Have the service look; from then until another release is in service and the one before was let go."""
    began = time.monotonic()
    server.signal(signal.SIGHUP)
    until_served(server, name)
    time.sleep(_LET_GO)
    return began, time.monotonic()


def until_served(server: Server, name: str) -> None:
    """Wait until a release is in service.

    Raises:
        TimeoutError: .
    """
    began = time.monotonic()
    while orjson.loads(server.get("/readyz"))["release"] != name:
        if time.monotonic() > began + _PATIENCE:
            raise TimeoutError(f"{name} did not come into service within {_PATIENCE:g} s")
        time.sleep(_LOOK)
