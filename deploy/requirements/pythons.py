"""Check that the versions of constraints.txt can be installed on every supported Python; `make requirements` runs it.

Resolves the packages of `make test` for the first patch release of each minor version of Python from 3.11 on. Only
wheels count, because a bare machine has no compiler. Exit status: 0 if every version resolves; otherwise 1, after uv's
message with the name of the package.
"""

import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

from packaging.specifiers import SpecifierSet

from deploy.requirements.generate import asked

ROOT = Path(__file__).resolve().parents[2]
# By folder, what `make test` installs, with extras.
FOLDERS = {
    ".": ["calibration", "torch", "sample"],
    "clients/python": ["langchain", "llamaindex", "haystack", "mcp"],
    **{f"plugins/{path.name}": [] for path in sorted((ROOT / "plugins").iterdir())},
}
GROUPS = ["test", "docs"]
MINORS = ["3.11", "3.12", "3.13", "3.14"]  # tests/machines runs them; the classifiers list those that passed
_MAX_PATCH = 30


def supported_pythons() -> list[str]:
    """Return every patch release, also future ones, that satisfies requires-python of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    supported = SpecifierSet(project["requires-python"])
    patches = [f"{minor}.{patch}" for minor in MINORS for patch in range(_MAX_PATCH)]
    return [version for version in patches if version in supported]


def main() -> int:
    """Resolve for each minor version; returns the exit status."""
    uv = [f"{sysconfig.get_path('scripts')}/uv", "pip", "compile", "-"]
    groups = [f"--group=pyproject.toml:{group}" for group in GROUPS]
    options = [
        "--system-certs",
        "--quiet",
        "--output-file=/dev/null",
        "--constraints=constraints.txt",
        "--only-binary=:all:",
        "--python-platform=x86_64-manylinux_2_28",
    ]
    failed = False
    for minor in MINORS:
        python = next(version for version in supported_pythons() if version.startswith(f"{minor}."))
        command = [*uv, *groups, *options, f"--python-version={python}"]
        listed = "\n".join(asked(FOLDERS))
        status = subprocess.run(command, cwd=ROOT, input=listed, text=True, check=False).returncode  # noqa: S603 (uv)
        sys.stdout.write(f"constraints.txt on Python {python}: {'installs' if status == 0 else 'does NOT install'}\n")
        failed |= status != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
