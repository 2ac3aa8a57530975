"""Every reader under atheris, one after another, each in a process of its own within its memory and its time."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
MEMORY_MIB = 1024
INPUT_SECONDS = 5  # a thousand times what the slowest of them takes
LONGEST = 1 << 16  # bytes of an input: several times the largest seed
_STARTING = 60  # seconds, to import and to make the seeds

# Of the last lines of libFuzzer: counts of what it did, and what of the code it reached.
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_MEMORY = re.compile(r"stat::peak_rss_mb:\s*(\d+)")
_REACHED = re.compile(r"cov: (\d+) ft: (\d+)")


@dataclass(frozen=True)
class Fuzzed:
    """executions; reached: edges of the code; features: what tells runs apart; memory: MiB at most.

    finding: what ended it before its time, empty where nothing did; inputs: that did.
    """

    reader: str
    executions: int
    reached: int
    features: int
    memory: int
    finding: str
    inputs: tuple[bytes, ...]


def fuzz(reader: str, releases: Path, seconds: int, seed: int = 1) -> Fuzzed:
    """Fuzz one reader for so many seconds; releases: a directory with one release."""
    with TemporaryDirectory(prefix="taugate-fuzz-", dir="/dev/shm") as folder:
        work = Path(folder)
        for name in ("scratch", "corpus"):
            (work / name).mkdir()
        command = [sys.executable, "-m", "tests.fuzz.atheris_run", reader, str(releases), str(work)]
        command += [f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={LONGEST}"]
        command += [f"-rss_limit_mb={MEMORY_MIB}", f"-timeout={INPUT_SECONDS}"]
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds + _STARTING,
            check=False,
        )
        inputs = tuple(each.read_bytes() for each in sorted(work.glob("*-*")) if each.is_file())
    said = done.stdout + done.stderr
    reached = _REACHED.findall(said)
    counts = [int(found[-1]) if (found := pattern.findall(said)) else 0 for pattern in (_EXECUTED, _MEMORY)]
    failed = done.returncode or not reached or inputs
    return Fuzzed(
        reader,
        counts[0],
        *map(int, reached[-1] if reached else (0, 0)),
        counts[1],
        said[-4000:] if failed else "",
        inputs,
    )
