"""How many processors this process may use, as a scheduler or a container's quota says."""

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")


def processors(root: Path = CGROUP, own: Path = _OWN_GROUP) -> int:
    """Whole processors, at least one: 1.5 of a container are 1, and the half is left for all but encoding.

    The smallest of what the scheduler's mask allows and the quotas of this process's control groups. root, own: where
    the system shows them.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *(int(quota) for quota in _quotas(root, own))]))


def _quotas(root: Path, own: Path) -> list[float]:
    """Processors that the control groups above this process grant, of version 2 and of version 1."""
    groups = [line.split(":", 2) for line in _read(own).splitlines() if line.count(":") >= 2]
    unified = [path for number, controllers, path in groups if number == "0" and not controllers]
    legacy = [path for _, controllers, path in groups if "cpu" in controllers.split(",")]
    found = [_unified(folder) for path in unified for folder in _upwards(root, path)]
    found += [_legacy(folder) for path in legacy for folder in _upwards(root / "cpu", path)]
    return [quota for quota in found if quota is not None]


def _upwards(root: Path, path: str) -> list[Path]:
    """A group's folder and those above it: the tightest quota holds. In a container the root is the group itself."""
    folder = root / path.lstrip("/")
    return [root, *(each for each in (folder, *folder.parents) if root in each.parents)]


def _unified(folder: Path) -> float | None:
    return _ratio(_read(folder / "cpu.max").split())


def _legacy(folder: Path) -> float | None:
    return _ratio([_read(folder / name).strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")])


def _ratio(numbers: list[str]) -> float | None:
    """Quota over period; None for no quota: "max" in version 2, −1 in version 1, or no such file."""
    if len(numbers) != 2 or not all(number.isdigit() for number in numbers) or int(numbers[1]) == 0:
        return None
    return int(numbers[0]) / int(numbers[1])


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""
