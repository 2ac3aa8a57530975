"""Kill `taugate update` at random moments, and check what it leaves behind."""

import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checkout import environment
from benchmarks.markdown import table, verdict
from benchmarks.reliability.place import CalibrationSite
from benchmarks.update.corpora import newer
from benchmarks.update.plan import UpdatePlan
from taugate.errors import ReleaseError
from taugate.registry.catalog import current_id, release_ids
from taugate.release.layout import STAGING_PREFIX
from taugate.release.verify import verify

HEADING = "kill -9"
_LATEST = 1.1  # of the time that an update takes: some take longer


@dataclass(frozen=True)
class UpdateSite:
    """Two versions of a corpus, each of which is an update of the other, and a releases directory."""

    versions: tuple[Path, Path]
    releases: Path

    def start(self, turn: int) -> "subprocess.Popen[str]":
        """`taugate update` to one of the versions, begun."""
        data = self.versions[turn % 2]
        command = [sys.executable, "-m", "taugate", "update", str(data), "--releases", str(self.releases)]
        return subprocess.Popen(
            [*command, "--force"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True, env=environment()
        )

    def until_it_writes(self, process: "subprocess.Popen[str]") -> None:
        """Wait until the update makes its staging folder, or ends."""
        before = {*self.releases.glob(f"{STAGING_PREFIX}*")}
        while {*self.releases.glob(f"{STAGING_PREFIX}*")} <= before and process.poll() is None:
            time.sleep(0.0005)


def section(plan: UpdatePlan) -> str:
    """Kill updates, half at any moment and half while the release is written, and verify every release afterwards."""
    rng = random.Random(plan.seed)  # noqa: S311 (no secret)
    prepared = CalibrationSite.prepared(plan.work)
    site = UpdateSite((newer(prepared.data, plan.work / "newer", 0.1, plan.seed), prepared.data), prepared.releases)
    began = time.perf_counter()
    process = site.start(0)
    site.until_it_writes(process)
    writes = time.perf_counter()
    process.wait()
    ended = time.perf_counter()
    turn, promoted, interrupted, verified, wrong = 1, 0, 0, 0, list[str]()
    for number in range(plan.kills):
        before, known = current_id(site.releases), {*release_ids(site.releases)}
        process = site.start(turn)
        whole = number % 2 == 0
        if not whole:
            site.until_it_writes(process)
        time.sleep(rng.uniform(0, _LATEST * (ended - (began if whole else writes))))
        process.send_signal(signal.SIGKILL)
        process.wait()
        interrupted += process.returncode == -signal.SIGKILL
        after = current_id(site.releases)
        if after != before:
            promoted += 1
            turn += 1
            if after in known:
                wrong.append(f"{after} was there before")
        for name in release_ids(site.releases):
            verified += 1
            try:
                verify(site.releases / name)
            except (ReleaseError, OSError) as error:
                wrong.append(str(error))
    code = site.start(turn).wait()
    header = ["kills", "while it ran", "new release current", "old release current", "releases verified", "faults", ""]
    row = [
        plan.kills,
        interrupted,
        promoted,
        plan.kills - promoted,
        f"{verified:,}",
        len(wrong),
        verdict(reached=not wrong and code == 0),
    ]
    return (
        f"{table(header, [row])}\n\n"
        "Half of the kills come at any moment of an update, half while it writes and promotes the release. After each, "
        "every release that is listed is verified, file by file, and the current one is the old release or the whole "
        f"new one. The next update after the last kill ends with exit code {code}."
        + "".join(f"\n- {each}" for each in wrong)
    )
