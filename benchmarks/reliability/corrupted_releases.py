"""Open corrupted and forged releases, and count what goes unnoticed."""

import contextlib
import io
from pathlib import Path

from benchmarks.markdown import Target, table, targets
from benchmarks.reliability import corruption
from benchmarks.reliability.corruption import CorruptionRow, corrupted, forged
from benchmarks.reliability.plan import ReliabilityPlan
from taugate.cli import main as cli
from taugate.registry.catalog import find
from tests.sample_release import write_sample_release

HEADING = corruption.HEADING
_KINDS = (["--index", "hnsw", "--projection", "query-pca", "--retention", "0.5"], ["--index", "ivf-flat"])


def section(plan: ReliabilityPlan) -> str:
    """Corrupt and forge release files, one by one, and count what each reader notices."""
    releases = _releases(plan.work)
    (plan.work / "damaged").mkdir()
    broken = corrupted(releases, plan.corrupted, plan.work / "damaged", plan.seed)
    faked = forged(releases, plan.corrupted, plan.work / "damaged", plan.seed)
    wanted = [
        Target("corrupted releases", sum(row.releases for row in broken), at_least=plan.corrupted),
        Target("of these served", sum(row.served for row in broken), at_most=0),
        Target("crashes", sum(row.crashed for row in (*broken, *faked)), at_most=0),
        Target("refused without the name of a file", sum(row.unnamed for row in (*broken, *faked)), at_most=0),
        Target("peak memory", max(row.peak for row in (*broken, *faked)) / 2**20, at_most=1024, unit=" MiB"),
    ]
    header = ["damage", "releases", "served", "refused", "refused when read", "crashed", "without a name", "peak MiB"]
    return f"""\
Three releases of the sample data set, which together have a file of every kind, are copied. Each copy is damaged once, and opened by a
process as a service opens it. A forged copy has ids and digests that fit the damage, as an attacker who can write to the directory
would choose them. A forged release that does not contradict itself is served: only a signature keeps it out.

{table(header, [_cells(row) for row in (*broken, *faked)])}

{targets(wanted)}
"""


def _cells(row: CorruptionRow) -> list[object]:
    outcomes = [row.served, row.refused, row.refused_later, row.crashed, row.unnamed]
    return [row.kind, row.releases, *outcomes, f"{row.peak / 2**20:.0f}"]


def _releases(work: Path) -> list[Path]:
    """Write releases that have every kind of file between them."""
    found = [find(write_sample_release(work))]
    for number, options in enumerate(_KINDS):
        folder = work / f"releases-{number}"
        command = ["calibrate", str(work / "zaragoza"), "--releases", str(folder), "--encoder", str(work / "encoder")]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            if cli.main([*command, "--margin", "0.9", *options]):
                raise RuntimeError("the sample could not be calibrated")
        found.append(find(folder))
    return found
