"""A data set, an encoder and a releases directory with a current release, and calibrations of it as processes."""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benchmarks.checkout import environment, quickstart
from taugate.data.location import write_sample
from taugate.registry.catalog import current_id, find
from taugate.release.layout import STAGING_PREFIX


@dataclass(frozen=True)
class CalibrationSite:
    """A data set, an encoder and a releases directory for calibrations run as processes.

    Attributes:
        seconds: That a calibration takes until it is promoted, and its part from the first file of the release on.
    """

    data: Path
    encoder: Path
    releases: Path
    seconds: tuple[float, float] = (0, 0)

    @classmethod
    def prepared(cls, work: Path) -> Self:
        """Prepare a site with two releases, the second of which was timed."""
        write_sample(work / "data")
        place = cls(work / "data", find(quickstart(work / "quickstart")) / "encoder", work / "releases")
        place.calibrate(0).wait()
        before = current_id(place.releases)
        began = time.perf_counter()
        process = place.calibrate(1)
        place.until_it_writes(process)
        writes = time.perf_counter()
        while current_id(place.releases) == before and process.poll() is None:
            time.sleep(0.0005)
        ended = time.perf_counter()
        process.wait()
        return cls(place.data, place.encoder, place.releases, (ended - began, ended - writes))

    def calibrate(self, seed: int) -> "subprocess.Popen[str]":
        """`taugate calibrate`, begun."""
        command = [sys.executable, "-m", "taugate", "calibrate", str(self.data), "--releases", str(self.releases)]
        command += ["--encoder", str(self.encoder), "--seed", str(seed)]
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True, env=environment()
        )

    def until_it_writes(self, process: "subprocess.Popen[str]") -> None:
        """Wait for the staging folder of a calibration."""
        before = set(self.releases.glob(f"{STAGING_PREFIX}*"))
        while set(self.releases.glob(f"{STAGING_PREFIX}*")) <= before and process.poll() is None:
            time.sleep(0.0005)
