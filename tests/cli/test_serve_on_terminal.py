"""`taugate serve` on a terminal: release and address for people, and warnings as text; JSON stays elsewhere."""

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from taugate.registry.catalog import current_id
from tests.loopback import free_port

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("level", [None, "info"])
def test_terminal_shows_release_and_address(releases: Path, level: str | None) -> None:
    port, (leader, follower) = free_port(), pty.openpty()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TAUGATE_LOG")}
    environment |= {"NO_COLOR": "1", "TAUGATE_WORKERS": "1"} | ({"TAUGATE_LOG_LEVEL": level} if level else {})
    command = [sys.executable, "-m", "taugate", "serve", "--releases", str(releases), "--port", str(port)]
    with subprocess.Popen(command, env=environment, stderr=follower, stdout=subprocess.DEVNULL) as service:
        os.close(follower)
        shown = ""
        while "Open" not in shown or not shown.endswith("\n"):
            shown += os.read(leader, 65536).decode()
        service.send_signal(signal.SIGINT)
        assert service.wait(30) == 0
    os.close(leader)
    lines = shown.splitlines()
    rows = [line for line in lines if line.startswith(("Release ", "Open "))]
    assert [line.split()[1] for line in rows] == [current_id(releases), f"http://127.0.0.1:{port}/playground"]
    logged = [line for line in lines if line not in rows]
    assert bool(logged) == (level == "info")
    assert all(re.match(r"\d\d:\d\d:\d\d info: ", line) for line in logged)
