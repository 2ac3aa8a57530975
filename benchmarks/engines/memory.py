"""Peak memory of a calibration over an engine, for two corpus sizes."""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engines.plan import EnginePlan
from benchmarks.engines.tiled import DATA, QUERIES, tiled
from benchmarks.markdown import Target, table, targets
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.retrieval.encoder.encoder import OnnxEncoder
from tests.retrieval.engines.servers import engine_url

HEADING = "Memory of a calibration"
_POLL = 0.1
_MOST_GROWTH = 0.1  # of the vectors that are added, which a calibration in the process holds at least once


@dataclass(frozen=True)
class _Run:
    """One calibration; anonymous, resident: peak bytes of what it allocated, and with the files that it has mapped."""

    documents: int
    anonymous: int
    resident: int
    seconds: float


def section(plan: EnginePlan) -> str:
    """Calibrate over PostgreSQL at both sizes, with vectors that were encoded before, and compare the peaks."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        small, large = (_calibrated(plan, Path(folder) / str(count), count) for count in plan.sizes)
    encoder = OnnxEncoder.load(exported_encoder(DEFAULT_ENCODER))
    added = 4 * encoder.config.dimension * (large.documents - small.documents)
    growth = large.anonymous - small.anonymous
    rows = [
        (f"{each.documents:,}", f"{each.anonymous / 1e6:,.0f}", f"{each.resident / 1e6:,.0f}", f"{each.seconds:.0f}")
        for each in (small, large)
    ]
    goals = [Target("growth, as a share of the vectors added", growth / added, at_most=_MOST_GROWTH)]
    return (
        f"{DATA}, tiled and jittered, {QUERIES:,} queries, pgvector, vectors given with `--embeddings`. *Allocated* is "
        "the peak of anonymous memory (RssAnon). *Resident* has the pages of mapped files too, the texts among them, "
        f"which the system takes back when it needs them. The vectors added are {added / 1e6:,.0f} MB.\n\n"
        f"{table(('documents', 'allocated, MB', 'resident, MB', 'seconds'), rows)}\n\n{targets(goals)}"
    )


def _calibrated(plan: EnginePlan, folder: Path, count: int) -> _Run:
    corpus = tiled(plan.data, folder, count)
    with engine_url("pgvector") as (kind, url):
        command = [sys.executable, "-m", "taugate", "calibrate", str(corpus.data), "--releases", str(folder / "r")]
        command += ["--engine", kind, "--embeddings", str(corpus.encoded), "--no-promote", "--margin", "0.05"]
        began = time.perf_counter()
        with subprocess.Popen(
            command, env=os.environ | {"TAUGATE_ENGINE_URL": url}, stdout=subprocess.DEVNULL, stderr=sys.stderr
        ) as process:
            anonymous = resident = 0
            while process.poll() is None:
                used = _memory(process.pid)
                anonymous, resident = max(anonymous, used.get("RssAnon", 0)), max(resident, used.get("VmRSS", 0))
                time.sleep(_POLL)
        if process.returncode:
            raise RuntimeError(f"taugate calibrate ended with {process.returncode}")
        return _Run(count, anonymous, resident, time.perf_counter() - began)


def _memory(pid: int) -> dict[str, int]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:  # it has just ended
        return {}
    found = (line.split() for line in lines if line.startswith(("RssAnon", "VmRSS")))
    return {name.rstrip(":"): 1024 * int(kib) for name, kib, _ in found}
