"""`make engine-tests`: the contract suite with a Milvus server of its own beside milvus-lite and PostgreSQL.

Milvus 2.3.5 listens on all interfaces, whatever it is told. So all of it runs in a network namespace that has nothing
but a loopback interface.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.loopback import free_port

_ROOM = Path(__file__).parent
_OUTSIDE, _INSIDE = "outside", "inside"


def main() -> int:
    """Arguments: the Python that has the package `milvus`, and those of pytest."""
    step, python, *arguments = sys.argv[1:] if sys.argv[1] == _INSIDE else [_OUTSIDE, *sys.argv[1:]]
    if step == _OUTSIDE:
        rights = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
        up = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        again = [sys.executable, "-m", "tests.retrieval.engines.on_milvus", _INSIDE, python, *arguments]
        return subprocess.call(["unshare", *rights, "--net", *up, *again])
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="tg-milvus-") as folder,
        subprocess.Popen([python, _ROOM / "start_milvus.py", folder, str(port)], stdout=subprocess.PIPE) as server,
    ):
        try:
            if server.stdout is None or server.stdout.readline() != b"ready\n":
                print("Milvus did not start", file=sys.stderr)  # noqa: T201
                return 1
            environment = os.environ | {"TAUGATE_ENGINE_URL": f"http://127.0.0.1:{port}"}
            return subprocess.call([sys.executable, "-m", "pytest", "-n0", str(_ROOM), *arguments], env=environment)
        finally:
            server.terminate()


if __name__ == "__main__":
    sys.exit(main())
