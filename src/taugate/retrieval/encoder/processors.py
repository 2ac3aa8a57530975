"""How many processors this process may use: as the scheduler and its control groups allow."""

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")


def processors(root: Path = CGROUP, own: Path = _OWN_GROUP) -> int:
    """Return the whole processors that this process may use, at least one: 1.5 of a container count as 1.

    That is the smallest of what the scheduler's mask allows and the quotas of this process's control groups; a half is
    left for all but encoding.

    Args:
        root: Where the system shows the control groups.
        own: Where it shows which of them this process is in.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *(int(quota) for quota in _quotas(root, own))]))


def _quotas(root: Path, own: Path) -> list[float]:
    """Return the processors that the control groups above this process grant, of version 2 and of version 1."""
    groups = [line.split(":", 2) for line in _read(own).splitlines() if line.count(":") >= 2]
    unified = [path for number, controllers, path in groups if number == "0" and not controllers]
    legacy = [path for _, controllers, path in groups if "cpu" in controllers.split(",")]
    found = [_quota_v2(folder) for path in unified for folder in _upwards(root, path)]
    found += [_quota_v1(folder) for path in legacy for folder in _upwards(root / "cpu", path)]
    return [quota for quota in found if quota is not None]


def _upwards(root: Path, path: str) -> list[Path]:
    """Return a group's folder and those above it, as the tightest quota holds; in a container the root is the group."""
    folder = root / path.lstrip("/")
    return [root, *(each for each in (folder, *folder.parents) if root in each.parents)]


def _quota_v2(folder: Path) -> float | None:
    return _ratio(_read(folder / "cpu.max").split())


def _quota_v1(folder: Path) -> float | None:
    return _ratio([_read(folder / name).strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")])


def _ratio(numbers: list[str]) -> float | None:
    """Return quota over period; None for no quota: "max" in version 2, −1 in version 1, or no such file."""
    if len(numbers) != 2 or not all(number.isdigit() for number in numbers) or int(numbers[1]) == 0:
        return None
    return int(numbers[0]) / int(numbers[1])


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""
