"""Processor time and memory of a process and all it started, from /proc."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


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
    return sum(_resident(process) for process in tree(root))


def _ticks(process: int) -> int:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0
    # After the name, which may hold anything but ends at the last bracket; utime, stime, cutime and cstime.
    return sum(map(int, stat.rpartition(")")[2].split()[11:15]))


def _resident(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    kilobytes = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    return 1024 * int(kilobytes[0]) if kilobytes else 0
