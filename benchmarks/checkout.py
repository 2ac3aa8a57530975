"""The checkout that is measured: this one, or another one that `--root` names."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def python_path(root: Path = ROOT) -> str:
    """Return the PYTHONPATH by which a process imports a checkout's own `taugate` instead of the installed one.

    Args:
        root: The checkout. Old ones have `taugate.py` at the top and not below `src`.
    """
    return f"{root / 'src'}:{root}"


def environment(root: Path = ROOT) -> dict[str, str]:
    """Return this process's environment with the PYTHONPATH of a checkout.

    Args:
        root: As for `python_path`.
    """
    return os.environ | {"PYTHONPATH": python_path(root)}
