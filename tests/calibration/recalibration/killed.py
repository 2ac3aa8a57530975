"""Run a command of `taugate` that is killed when it calls a function, before or after the function does its work.

python -m tests.calibration.recalibration.killed before|after MODULE NAME COMMAND…
"""

import os
import signal
import sys
from importlib import import_module
from typing import Any

from taugate.cli import main as cli


def main(when: str, module: str, name: str, *command: str) -> int:
    """Replace the function, then run the command."""
    place = import_module(module)
    original = getattr(place, name)

    def killed(*arguments: Any, **named: Any) -> None:
        if when == "after":
            original(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(place, name, killed)
    return cli.main([*command])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
