"""The README's two commands in containers that have only Python: `make test-machines`, before every release.

`--machine` selects images, `--tests` has arguments of pytest for `make test`. Exit status: 0 if both commands passed in
every container, else 1. The output of each container is in build/machines.
"""

import argparse
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tests.containers.engine import ROOT, engine
from tests.machines.pip_settings import container_options

LOGS = ROOT / "build" / "machines"
DEBIAN_PACKAGES = "make python3 python3-venv curl"  # as in the README


@dataclass(frozen=True)
class Machine:
    """An image, its Python, and the packages that the README requires and it lacks."""

    image: str
    python: str
    packages: str


# Debian 12 has 3.11.2, the oldest 3.11 of any distribution; Debian 13 has 3.13.
MACHINES = (
    Machine("debian:12", "3.11", DEBIAN_PACKAGES),
    Machine("python:3.12-slim", "3.12", "make curl"),
    Machine("debian:13", "3.13", DEBIAN_PACKAGES),
    Machine("python:3.14-slim", "3.14", "make curl"),
)


def main() -> int:
    """Run the containers in sequence and print the outcome of each; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.machines", description=__doc__)
    images = [machine.image for machine in MACHINES]
    parser.add_argument("--machine", action="append", choices=images, help="an image; default: all of them")
    parser.add_argument("--tests", default="", help="arguments of pytest; default: all tests")
    parser.add_argument("--skip-tests", action="store_true", help="run only make quickstart")
    arguments = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    write_source(LOGS / "source.tar")
    environment = {"TESTS": arguments.tests, "SKIP_TESTS": "1" if arguments.skip_tests else ""}
    failed = [machine for machine in selected(arguments.machine) if not passes(machine, environment)]
    return 1 if failed else 0


def selected(images: list[str] | None) -> list[Machine]:
    """Return the machines with these images, or all of them."""
    return [machine for machine in MACHINES if images is None or machine.image in images]


def passes(machine: Machine, environment: dict[str, str]) -> bool:
    """Run both commands in a new container, and return whether they passed."""
    log = LOGS / f"{machine.image.replace(':', '-')}.log"
    environment = environment | {"PACKAGES": machine.packages, "MINOR": machine.python}
    options = [f"--env={name}={value}" for name, value in environment.items()]
    mounts = [f"--volume={Path(__file__).parent / 'inside.sh'}:/machines/inside.sh:ro"]
    mounts.append(f"--volume={LOGS / 'source.tar'}:/machines/source.tar:ro")
    run = [engine(), "run", "--rm", *options, *mounts, *container_options(), machine.image]
    with log.open("wb") as output:
        status = subprocess.run(
            [*run, "sh", "/machines/inside.sh"], stdout=output, stderr=subprocess.STDOUT, check=False
        ).returncode
    sys.stdout.write(f"{machine.image}, Python {machine.python}: {'passed' if status == 0 else f'FAILED, see {log}'}\n")
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in [line for line in lines if line.startswith("== ")] + (lines[-15:] if status else []):
        sys.stdout.write(f"  {line}\n")
    sys.stdout.flush()
    return status == 0


def write_source(path: Path) -> None:
    """Write the files of the working tree that Git does not ignore, as a clone would have them."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    with tarfile.open(path, "w") as archive:
        for name in names:
            if name and (ROOT / name).exists():
                archive.add(ROOT / name, arcname=name)


if __name__ == "__main__":
    sys.exit(main())
