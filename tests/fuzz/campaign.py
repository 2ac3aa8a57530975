"""Every reader under atheris, one after another, each in a process of its own within its memory and its time."""

import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
MEMORY_MIB = 1024
INPUT_SECONDS = 5  # a thousand times what the slowest of them takes
LONGEST = 1 << 16  # bytes of an input: several times the largest seed
_STARTING = 180  # seconds, to import and to make the seeds

# Of the last lines of libFuzzer: counts of what it did, and what of the code it reached.
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_REACHED = re.compile(r"cov: (\d+) ft: (\d+)")


@dataclass(frozen=True)
class Fuzzed:
    """Executions.

    Attributes:
        reached: Edges of the code.
        features: What tells runs apart.
        memory: MiB at most.
        finding: What ended it before its time, empty where nothing did.
        inputs: That did.
    """

    reader: str
    executions: int
    reached: int
    features: int
    memory: int
    finding: str
    inputs: tuple[bytes, ...]


def fuzz(reader: str, releases: Path, seconds: int, seed: int = 1) -> Fuzzed:
    """Fuzz one reader for so many seconds.

    Args:
        releases: A directory with one release.
    """
    with TemporaryDirectory(prefix="taugate-fuzz-", dir="/dev/shm") as folder:
        work = Path(folder)
        for name in ("scratch", "corpus"):
            (work / name).mkdir()
        command = [sys.executable, "-m", "tests.fuzz.atheris_run", reader, str(releases), str(work)]
        command += [f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={LONGEST}"]
        command += [f"-rss_limit_mb={MEMORY_MIB}", f"-timeout={INPUT_SECONDS}"]
        code, memory, said = _watched(command, work / "said", seconds + _STARTING)
        inputs = tuple(each.read_bytes() for each in sorted(work.glob("*-*")) if each.is_file())
    reached = _REACHED.findall(said)
    executed = _EXECUTED.findall(said)
    finding = said[-4000:] if code or inputs or not (reached and executed) else ""
    edges, features = map(int, reached[-1] if reached else (0, 0))
    return Fuzzed(reader, int(executed[-1]) if executed else 0, edges, features, memory, finding, inputs)


def _watched(command: list[str], output: Path, seconds: int) -> tuple[int, int, str]:
    """Exit code, the most memory in MiB, and what was said.

    libFuzzer's own figure of its memory is at least that of the process which started it.
    """
    memory, deadline = 0, time.monotonic() + seconds
    with output.open("wb") as file, subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file) as process:
        while process.poll() is None and time.monotonic() < deadline:
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
            memory = max([memory, *(int(kib) // 1024 for kib in re.findall(r"VmHWM:\s*(\d+) kB", status))])
            time.sleep(0.2)
        process.kill()
    return process.returncode, memory, output.read_text(encoding="utf-8", errors="replace")
