"""The processors and the memory that the scheduler and the control groups allow this process to use."""

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
_PROCESS_GROUPS = Path("/proc/self/cgroup")  # absent on macOS, which has no control groups
_NO_LIMIT = 1 << 60  # version 1 writes a number of this size if there is no limit


def processors(root: Path = CGROUP, process_groups: Path = _PROCESS_GROUPS) -> int:
    """Return the number of processors that this process may use, rounded down, at least 1.

    This is the minimum of the scheduler's mask and the quotas of the process's control groups. A fraction is left for
    work other than encoding.

    Args:
        root: Folder of the control groups.
        process_groups: File that lists the control groups of this process.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *(int(quota) for quota in _quotas(root, process_groups))]))


def memory_limit(root: Path = CGROUP, process_groups: Path = _PROCESS_GROUPS) -> int | None:
    """Return the bytes of memory that the control groups allow this process; None if they set no limit.

    Args:
        root: Folder of the control groups.
        process_groups: File that lists the control groups of this process.
    """
    unified, legacy = _groups(root, process_groups, "memory")
    texts = [_read(folder / "memory.max") for folder in unified]
    texts += [_read(folder / "memory.limit_in_bytes") for folder in legacy]
    limits = [int(text) for text in texts if text.strip().isdigit()]
    return min((limit for limit in limits if limit < _NO_LIMIT), default=None)


def _quotas(root: Path, process_groups: Path) -> list[float]:
    unified, legacy = _groups(root, process_groups, "cpu")
    quotas = [*map(_quota_v2, unified), *map(_quota_v1, legacy)]
    return [quota for quota in quotas if quota is not None]


def _groups(root: Path, process_groups: Path, controller: str) -> tuple[list[Path], list[Path]]:
    """Return the folders of this process's control groups, of versions 2 and 1, and of their parents."""
    groups = [line.split(":", 2) for line in _read(process_groups).splitlines() if line.count(":") >= 2]
    unified = [path for number, controllers, path in groups if number == "0" and not controllers]
    legacy = [path for _, controllers, path in groups if controller in controllers.split(",")]
    return (
        [folder for path in unified for folder in _upwards(root, path)],
        [folder for path in legacy for folder in _upwards(root / controller, path)],
    )


def _upwards(root: Path, path: str) -> list[Path]:
    """Return a group's folder and its parents, as the smallest quota applies; in a container the root is the group."""
    folder = root / path.lstrip("/")
    return [root, *(parent for parent in (folder, *folder.parents) if root in parent.parents)]


def _quota_v2(folder: Path) -> float | None:
    return _ratio(_read(folder / "cpu.max").split())


def _quota_v1(folder: Path) -> float | None:
    return _ratio([_read(folder / name).strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")])


def _ratio(numbers: list[str]) -> float | None:
    """Return quota divided by period; None without a quota: "max" in version 2, −1 in version 1, or no such file."""
    if len(numbers) != 2 or not all(number.isdigit() for number in numbers) or int(numbers[1]) == 0:
        return None
    return int(numbers[0]) / int(numbers[1])


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""
