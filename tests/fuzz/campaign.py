"""Every reader under atheris, each in a process with limits of memory and time."""

import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
MEMORY_MIB = 1024
INPUT_SECONDS = 5  # a thousand times the slowest input
LONGEST = 1 << 16  # bytes of an input, several times the largest seed
_STARTING = 180  # seconds for imports and seeds

# Last lines of libFuzzer: counts of its runs, and the code that it reached.
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_REACHED = re.compile(r"cov: (\d+) ft: (\d+)")


@dataclass(frozen=True)
class Fuzzed:
    """The outcome of fuzzing a reader.

    Attributes:
        reader: Name of the reader.
        executions: Number of inputs.
        reached: Number of reached edges of the code.
        features: Number of libFuzzer's features, by which it distinguishes runs.
        memory: Peak memory in MiB.
        finding: Output of a run that ended early, or an empty string.
        inputs: Inputs that ended it.
    """

    reader: str
    executions: int
    reached: int
    features: int
    memory: int
    finding: str
    inputs: tuple[bytes, ...]


def fuzz(reader: str, releases: Path, seconds: int, seed: int = 1) -> Fuzzed:
    """Fuzz one reader for so many seconds; `releases` is a directory with one release."""
    with TemporaryDirectory(prefix="taugate-fuzz-", dir="/dev/shm") as folder:
        work = Path(folder)
        for name in ("scratch", "corpus"):
            (work / name).mkdir()
        command = [sys.executable, "-m", "tests.fuzz.atheris_run", reader, str(releases), str(work)]
        command += [f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={LONGEST}"]
        command += [f"-rss_limit_mb={MEMORY_MIB}", f"-timeout={INPUT_SECONDS}"]
        code, memory, output = _watched(command, work / "output", seconds + _STARTING)
        inputs = tuple(path.read_bytes() for path in sorted(work.glob("*-*")) if path.is_file())
    reached = _REACHED.findall(output)
    executed = _EXECUTED.findall(output)
    finding = output[-4000:] if code or inputs or not (reached and executed) else ""
    edges, features = map(int, reached[-1] if reached else (0, 0))
    return Fuzzed(reader, int(executed[-1]) if executed else 0, edges, features, memory, finding, inputs)


def _watched(command: list[str], output: Path, seconds: int) -> tuple[int, int, str]:
    """Return exit code, peak memory in MiB, and output.

    libFuzzer's own figure of memory is at least that of the process that started it.
    """
    memory, deadline = 0, time.monotonic() + seconds
    with output.open("wb") as file, subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file) as process:
        while process.poll() is None and time.monotonic() < deadline:
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
            memory = max([memory, *(int(kib) // 1024 for kib in re.findall(r"VmHWM:\s*(\d+) kB", status))])
            time.sleep(0.2)
        process.kill()
    return process.returncode, memory, output.read_text(encoding="utf-8", errors="replace")
