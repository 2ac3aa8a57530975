"""What images are installed from, as the tests read it: what each file pins, what it lacks, and what is left over."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "requirements"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "deploy" / "docker" / "Dockerfile").read_text(encoding="utf-8")


def locked(*names: str) -> dict[str, Requirement]:
    """Requirements of files, by name; of torch-cpu.txt as the version that it is a build of."""
    lines = [line for name in names for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]
    found = [Requirement(re.split(r" \\| --hash", line)[0]) for line in lines if line and line[0] not in "# "]
    return {canonicalize_name(item.name): item for item in found}


def version(requirement: Requirement) -> str:
    (pin,) = requirement.specifier
    assert pin.operator == "=="
    return pin.version


def needed(requirement: Requirement, extras: set[str]) -> bool:
    return requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras or {""})


def faults(direct: list[Requirement], lock: dict[str, Requirement]) -> tuple[set[str], set[str]]:
    """What a lock lacks or has in a wrong version, and what nothing asks for, as far as packages are installed."""
    wrong, reached = set(), set()
    waiting = [(item, "taugate") for item in direct]
    while waiting:
        requirement, asked_by = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in lock:
            wrong.add(f"{name}, of {asked_by}")
            continue
        at = version(lock[name])
        if not requirement.specifier.contains(at, prereleases=True):
            wrong.add(f"{name}{requirement.specifier}, not {at}")
        key = f"{name}[{','.join(sorted(requirement.extras))}]"
        if key in reached:
            continue
        reached |= {key, name}
        try:
            asked = [Requirement(item) for item in requires(name) or []]
        except PackageNotFoundError:
            continue
        waiting += [(item, name) for item in asked if needed(item, requirement.extras)]
    elsewhere = {name for name, each in lock.items() if each.marker and not each.marker.evaluate()}
    return wrong, set(lock) - reached - elsewhere
