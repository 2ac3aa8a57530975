"""Peak memory of a calibration over an engine, for two corpus sizes.

What a calibration holds at once is bounded by a shard of 8,192 documents, and by the queries: the shard's vectors and
texts while they are uploaded, an exact index of it while the gate searches exactly, and a copy in float64 while its
moments are summed. So the smaller corpus has to have two whole shards: below that, the shards grow with the corpus, and
the peak with them. Beyond that, two runs on the same corpus differ by some MB, by what malloc keeps.

Per document there are 8 bytes, where its text begins, and 4 more in a corpus of chunks. While a corpus is read there
are its ids too, to find those that occur twice and those that are judged.
"""

import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engines.plan import EnginePlan
from benchmarks.engines.servers import fresh_postgres
from benchmarks.engines.tiled import DATA, QUERIES, TiledCorpus, tiled
from benchmarks.markdown import Target, table, targets
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.data.beir import read_dataset
from taugate.retrieval.encoder.encoder import ExportedEncoder

HEADING = "Memory of a calibration"
_POLL = 0.02  # seconds: a peak may last for less than a tenth of one
_MAX_GROWTH = 0.1  # of the vectors that are added, which a calibration in the process holds at least once


@dataclass(frozen=True)
class _Run:
    """One calibration.

    Attributes:
        anonymous: Peak bytes of what it allocated, and with the files that it has mapped.
        resident: Peak bytes of what it allocated, and with the files that it has mapped.
        reading: Peak bytes of reading its corpus alone.
    """

    documents: int
    anonymous: int
    resident: int
    reading: int
    seconds: float


def section(plan: EnginePlan) -> str:
    """Calibrate over PostgreSQL at both sizes, with vectors that were encoded before, and compare the peaks."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        small, large = (
            _calibrated(tiled(plan.data, Path(folder) / str(count), count), count) for count in (plan.small, plan.large)
        )
    encoder = ExportedEncoder.load(exported_encoder(DEFAULT_ENCODER))
    documents = large.documents - small.documents
    added = 4 * encoder.config.dimension * documents
    rows = [
        (f"{each.documents:,}", f"{each.anonymous / 1e6:,.0f}", f"{each.resident / 1e6:,.0f}", f"{each.seconds:.0f}")
        for each in (small, large)
    ]
    growth = (large.anonymous - small.anonymous) / added
    goals = [Target("growth, as a share of the vectors added", growth, at_most=_MAX_GROWTH)]
    return (
        f"{DATA}, tiled and jittered, {QUERIES:,} queries, pgvector, vectors given with `--embeddings`. *Allocated* is "
        "the peak of anonymous memory (RssAnon). *Resident* has the pages of mapped files too, the texts among them, "
        f"which the system takes back when it needs them. The vectors added are {added / 1e6:,.0f} MB.\n\n"
        f"{table(('documents', 'allocated, MB', 'resident, MB', 'seconds'), rows)}\n\n"
        f"While the corpus is read, before anything else, ids and offsets take "
        f"{(large.reading - small.reading) / documents:.0f} bytes a document; the offsets, 8 bytes, stay.\n\n"
        f"{targets(goals)}"
    )


def _calibrated(corpus: TiledCorpus, count: int) -> _Run:
    with fresh_postgres() as url:
        command = [sys.executable, "-m", "taugate", "calibrate", str(corpus.data)]
        command += ["--releases", str(corpus.folder / "r"), "--engine", "pgvector", "--embeddings", str(corpus.encoded)]
        began = time.perf_counter()
        with subprocess.Popen(
            [*command, "--no-promote", "--margin", "0.05"],
            env=os.environ | {"TAUGATE_ENGINE_URL": url},
            stdout=subprocess.DEVNULL,
            stderr=sys.stderr,
        ) as process:
            anonymous = resident = 0
            while process.poll() is None:
                used = _memory(process.pid)
                anonymous, resident = max(anonymous, used.get("RssAnon", 0)), max(resident, used.get("VmRSS", 0))
                time.sleep(_POLL)
        if process.returncode:
            raise RuntimeError(f"taugate calibrate ended with {process.returncode}")
        seconds = time.perf_counter() - began
    return _Run(count, anonymous, resident, _reading(corpus.data), seconds)


def _reading(data: Path) -> int:
    """Peak bytes that Python and NumPy allocate while a data set is read."""
    with tempfile.TemporaryDirectory() as spool:
        tracemalloc.start()
        try:
            read_dataset(data, "test", Path(spool))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def _memory(pid: int) -> dict[str, int]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:  # it has just ended
        return {}
    found = (line.split() for line in lines if line.startswith(("RssAnon", "VmRSS")))
    return {name.rstrip(":"): 1024 * int(kib) for name, kib, _ in found}
