"""A share of a processor, and so much memory, for a process and all it starts: a control group if one can be made.

Otherwise SIGSTOP and SIGCONT in turns, and SIGKILL for who takes more memory: coarser, and `ResourceLimits.kind` says so. By
itself, `python -m benchmarks.reliability.limits PROCESSORS BYTES COMMAND…` does the latter; 0 bytes are no limit.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.checkout import ROOT
from benchmarks.serving.processes import resident_bytes, tree

_PERIOD = 0.1  # seconds, as Kubernetes has it
_MICROSECONDS = round(_PERIOD * 1e6)
_ROOT = Path("/sys/fs/cgroup")
_ASIDE = "LIMITED_PYTHONPATH"
_END_SECONDS = 10.0  # in which a process that was killed leaves its group


class ResourceLimits:
    """Limits on processor time and memory for commands and all that they start.

    Attributes:
        processors: Share of one.
        most_bytes: Of memory, 0 for any. kind: "cgroup v1", "cgroup v2" or "signals".
    """

    def __init__(self, processors: float, most_bytes: int) -> None:
        self.processors, self.most_bytes = processors, most_bytes
        self.kind, self.groups = "signals", list[Path]()

    def wrap(self, command: Sequence[str]) -> list[str]:
        """The command, under the limits from its first instruction on."""
        if not self.groups:
            # The command's own PYTHONPATH may be another checkout's: it is put aside while this module is looked for.
            begin = f'exec env PYTHONPATH={shlex.quote(str(ROOT))} {_ASIDE}="$PYTHONPATH" "$@"'
            own = [
                sys.executable,
                "-P",
                "-m",
                "benchmarks.reliability.limits",
                str(self.processors),
                str(self.most_bytes),
            ]
            return ["sh", "-c", begin, "sh", *own, *command]
        enter = " ".join(f"echo $$ >{shlex.quote(str(group / 'cgroup.procs'))};" for group in self.groups)
        return ["sh", "-c", f'{enter} exec "$@"', "sh", *command]

    @property
    def out_of_memory(self) -> int:
        """Processes that the kernel killed for their memory, as far as it counts them."""
        for path in (group / name for group in self.groups for name in ("memory.oom_control", "memory.events")):
            with contextlib.suppress(OSError):
                return int(dict(line.split() for line in path.read_text().splitlines())["oom_kill"])
        return 0

    def write(self, name: str) -> None:
        """Make control groups of this name.

        Raises:
            OSError: If that is not permitted.
        """
        quota = round(self.processors * _MICROSECONDS)
        if (_ROOT / "cgroup.controllers").exists():
            self._group(_ROOT / name, {"cpu.max": f"{quota} {_MICROSECONDS}", "memory.max": self.most_bytes or "max"})
            self.kind = "cgroup v2"
        else:
            self._group(_ROOT / "cpu" / name, {"cpu.cfs_period_us": _MICROSECONDS, "cpu.cfs_quota_us": quota})
            self._group(_ROOT / "memory" / name, {"memory.limit_in_bytes": self.most_bytes or -1})
            self.kind = "cgroup v1"

    def remove(self) -> None:
        """Remove the control groups; what ran in them has been told to end."""
        deadline = time.monotonic() + _END_SECONDS
        for group in self.groups:
            while group.exists() and time.monotonic() < deadline:
                with contextlib.suppress(OSError):
                    group.rmdir()
                    break
                time.sleep(_PERIOD)

    def _group(self, path: Path, values: dict[str, object]) -> None:
        path.mkdir()
        self.groups.append(path)
        for name, value in values.items():
            (path / name).write_text(str(value))


@contextmanager
def limited(processors: float, most_bytes: int = 0) -> Iterator[ResourceLimits]:
    """Limits for commands that start and end within the block."""
    limits = ResourceLimits(processors, most_bytes)
    try:
        limits.write(f"taugate-{os.getpid()}")
    except OSError:
        limits.remove()
        limits = ResourceLimits(processors, most_bytes)
    try:
        yield limits
    finally:
        limits.remove()


def main() -> None:
    """Run a command by signals within the limits, and pass on what it is told."""
    processors, most_bytes = float(sys.argv[1]), int(sys.argv[2])
    aside = os.environ.pop(_ASIDE, "")
    if aside:
        os.environ["PYTHONPATH"] = aside
    else:
        os.environ.pop("PYTHONPATH", None)
    process = subprocess.Popen(sys.argv[3:])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda told, _: process.send_signal(told))
    while process.poll() is None:
        time.sleep(_PERIOD * processors)
        if most_bytes and resident_bytes(process.pid) > most_bytes:
            _tell(process.pid, signal.SIGKILL)
        _tell(process.pid, signal.SIGSTOP)
        time.sleep(_PERIOD * (1 - processors))
        _tell(process.pid, signal.SIGCONT)
    sys.exit(process.returncode if process.returncode >= 0 else 128 - process.returncode)


def _tell(process: int, number: signal.Signals) -> None:
    for each in tree(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, number)


if __name__ == "__main__":
    main()
