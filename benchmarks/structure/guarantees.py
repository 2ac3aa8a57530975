"""Breaks the guarantees of Taugate one at a time, and checks that a test fails each time.

`python -m benchmarks.structure.guarantees` takes the changes of guarantees.toml. Each is made in a copy of the package,
which its tests then import. The program ends with 1 if the tests pass in spite of a change, or cannot run.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checkout import ROOT

LIST = Path(__file__).with_suffix(".toml")
_PACKAGES = (ROOT / "src" / "taugate", *sorted(ROOT.glob("plugins/*/src/taugate_*")))
_TESTS_FAILED = 1  # pytest's exit code


@dataclass(frozen=True)
class Guarantee:
    """A guarantee with the change that breaks it.

    Attributes:
        promise: The guarantee in words.
        before: Text that stands once in the package, or in one of a plug-in.
        after: Text that takes its place.
        tests: Files or folders of tests that must notice.
    """

    promise: str
    before: str
    after: str
    tests: tuple[str, ...]

    def place(self) -> tuple[Path, Path]:
        """Return the package that has the text `before`, and the file in it.

        Raises:
            ValueError: If the text does not stand there exactly once.
        """
        places = [
            (package, path.relative_to(package))
            for package in _PACKAGES
            for path in package.rglob("*.py")
            for _ in range(path.read_text("utf-8").count(self.before))
        ]
        if len(places) != 1:
            raise ValueError(f"{self.promise}: its text stands {len(places)} times in src/taugate and the plug-ins")
        return places[0]

    def is_noticed(self, folder: Path) -> bool:
        """Copy the package into an empty folder, make the change there, and return whether a test fails on it."""
        package, file = self.place()
        copy = folder / package.name
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        broken = copy / file
        broken.write_text(broken.read_text("utf-8").replace(self.before, self.after), "utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *self.tests]
        environment = os.environ | {"PYTHONPATH": str(folder)}
        return (
            subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False).returncode
            == _TESTS_FAILED
        )


def guarantees() -> Iterator[Guarantee]:
    """Read the list."""
    for entry in tomllib.loads(LIST.read_text("utf-8"))["guarantee"]:
        yield Guarantee(entry["promise"], entry["before"], entry["after"], tuple(entry["tests"]))


def main() -> int:
    """Print whether the tests notice each change; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="?", default="", help="only guarantees with these words")
    words, missed = parser.parse_args().words, 0
    for guarantee in guarantees():
        if words in guarantee.promise:
            with tempfile.TemporaryDirectory() as folder:
                noticed = guarantee.is_noticed(Path(folder))
            missed += not noticed
            sys.stdout.write(f"{'noticed' if noticed else 'MISSED '}  {guarantee.promise}\n")
            sys.stdout.flush()
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
