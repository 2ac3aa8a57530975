"""`make engine-tests`: the contract suite with a Milvus server of its own beside milvus-lite and PostgreSQL."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from engines_tests.milvus_process import alone, milvus

_ROOM = Path(__file__).parent
_OUTSIDE, _INSIDE = "outside", "inside"


def main() -> int:
    """Arguments: the Python that has the package `milvus`, and those of pytest."""
    step, python, *arguments = sys.argv[1:] if sys.argv[1] == _INSIDE else [_OUTSIDE, *sys.argv[1:]]
    if step == _OUTSIDE:
        again = [sys.executable, "-m", "engines_tests.on_milvus", _INSIDE, python, *arguments]
        return subprocess.call(alone(again))
    with tempfile.TemporaryDirectory(prefix="tg-milvus-") as folder, milvus(python, Path(folder)) as server:
        environment = os.environ | {"TAUGATE_ENGINE_URL": server.url}
        return subprocess.call(
            [sys.executable, "-m", "pytest", "-n0", *map(str, sorted(_ROOM.glob("test_*.py"))), *arguments],
            env=environment,
        )


if __name__ == "__main__":
    sys.exit(main())
