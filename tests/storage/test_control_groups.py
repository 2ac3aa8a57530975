"""The quotas of the process's control groups and their parents limit its processors."""

import os
from pathlib import Path

import pytest

from taugate.retrieval.hardware import memory_limit, processors

ALLOWED = len(os.sched_getaffinity(0))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def grouped(tmp_path: Path, groups: str, **files: str) -> tuple[Path, Path]:
    for name, text in files.items():
        write(tmp_path / "cgroup" / name.replace("__", "/").replace("_dot_", "."), text)
    own = tmp_path / "own"
    write(own, groups)
    return tmp_path / "cgroup", own


def counted(tmp_path: Path, groups: str, **files: str) -> int:
    return processors(*grouped(tmp_path, groups, **files))


@pytest.mark.parametrize(("quota", "expected"), [("150000 100000", 1), ("50000 100000", 1), ("max 100000", ALLOWED)])
def test_group_quota_limits_processors(tmp_path: Path, quota: str, expected: int) -> None:
    assert counted(tmp_path, "0::/\n", cpu_dot_max=quota) == min(expected, ALLOWED)


def test_smallest_parent_quota_applies(tmp_path: Path) -> None:
    groups = "0::/pod/service\n"
    assert counted(tmp_path, groups, pod__service__cpu_dot_max="max 100000", pod__cpu_dot_max="100000 100000") == 1


def test_version_1_quota_is_read(tmp_path: Path) -> None:
    groups = "4:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n"
    quota = {"cpu__docker__x__cpu_dot_cfs_quota_us": "150000\n", "cpu__docker__x__cpu_dot_cfs_period_us": "100000\n"}
    assert counted(tmp_path, groups, **quota) == 1


def test_minus_one_is_no_quota(tmp_path: Path) -> None:
    quota = {"cpu__cpu_dot_cfs_quota_us": "-1\n", "cpu__cpu_dot_cfs_period_us": "100000\n"}
    assert counted(tmp_path, "4:cpu,cpuacct:/\n", **quota) == ALLOWED


def test_quota_above_processors_is_capped(tmp_path: Path) -> None:
    assert counted(tmp_path, "0::/\n", cpu_dot_max="6400000 100000") == ALLOWED


def test_missing_control_groups_are_ignored(tmp_path: Path) -> None:
    assert processors(tmp_path / "none", tmp_path / "none either") == ALLOWED
    assert 1 <= processors() <= ALLOWED


@pytest.mark.parametrize("text", ["", "abc", "100000", "100000 0", "0:", "::\n"])
def test_unreadable_quota_is_ignored(tmp_path: Path, text: str) -> None:
    assert counted(tmp_path, "0::/\nnonsense\n" if text == "abc" else "0::/\n", cpu_dot_max=text) == ALLOWED


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/pod/service\n", {"pod__memory_dot_max": "1073741824", "pod__service__memory_dot_max": "max"}, 1 << 30),
        ("4:memory:/pod\n", {"memory__pod__memory_dot_limit_in_bytes": "2147483648\n"}, 2 << 30),
        ("4:memory:/pod\n", {"memory__pod__memory_dot_limit_in_bytes": "9223372036854771712\n"}, None),
        ("0::/\n", {}, None),
    ],
    ids=["version 2, of a parent", "version 1", "version 1 without a limit", "no limit"],
)
def test_smallest_memory_limit_applies(
    tmp_path: Path, groups: str, limits: dict[str, str], expected: int | None
) -> None:
    assert memory_limit(*grouped(tmp_path, groups, **limits)) == expected
