"""Processor time and memory of a process and all it started, from /proc; and what all others took meanwhile."""

import os
import resource
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


class Others:
    """A meter of the processor time that other programs took since it was made."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.perf_counter(), _busy(), _own()

    def share(self) -> float:
        """Return the share of all processors taken by processes that this one has not started and waited for."""
        most = (time.perf_counter() - self._began) * (os.cpu_count() or 1)
        return max((_busy() - self._busy) - (_own() - self._own), 0.0) / most


def tree(root: int) -> list[int]:
    """Ids of a process and its descendants."""
    found = [root]
    for process in found:  # grows while it is walked
        try:
            for task in Path(f"/proc/{process}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
        except OSError:  # it ended meanwhile
            continue
    return found


def cpu_seconds(root: int) -> float:
    """User and system time of the tree so far, of children that ended as well."""
    return sum(_ticks(process) for process in tree(root)) / _TICKS


def resident_bytes(root: int) -> int:
    """Resident memory of the tree: own and mapped from files. Pages that two processes share count twice."""
    return sum(_bytes(Path(f"/proc/{process}/status"), "VmRSS:") for process in tree(root))


def _busy() -> float:
    """Return the busy seconds of the machine's processors, those that a hypervisor gave to others included."""
    user, nice, system, _idle, _waiting, irq, softirq, steal, *_ = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / _TICKS


def _own() -> float:
    """Return the processor seconds of this process and of the ended processes that it started."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _ticks(process: int) -> int:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0
    # After the name, which may hold anything but ends at the last bracket; utime, stime, cutime and cstime.
    return sum(map(int, stat.rpartition(")")[2].split()[11:15]))


def _bytes(path: Path, name: str) -> int:
    """Return a figure of a process in bytes; 0 if it has ended."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    found = [line.split()[1] for line in lines if line.startswith(name)]
    return 1024 * int(found[0]) if found else 0
