"""The checkout that is measured: this one, or another one that `--root` names."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def python_path(root: Path = ROOT) -> str:
    """Return the PYTHONPATH by which a process imports a checkout's own packages instead of the installed ones.

    Checkouts of early versions have `taugate.py` at the top and not below `src`.
    """
    folders = [root / "src", *sorted(root.glob("plugins/*/src")), root]
    return ":".join(map(str, folders))


def environment(root: Path = ROOT) -> dict[str, str]:
    """Return this process's environment with the PYTHONPATH of a checkout."""
    return os.environ | {"PYTHONPATH": python_path(root)}


def quickstart(folder: Path, root: Path = ROOT) -> Path:
    """Calibrate the sample corpus with the default encoder, and return the releases directory."""
    command = [sys.executable, "-m", "taugate", "quickstart", "--no-serve", "--directory", str(folder)]
    subprocess.run(command, cwd=root, env=environment(root), check=True, stdout=sys.stderr)
    return folder / "releases"
