"""`python -m taugate.service.healthcheck`, as container images run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service_process import ServiceProcess


def check(port: int, host: str = "127.0.0.1") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TAUGATE_PORT": str(port), "TAUGATE_HOST": host}
    command = [sys.executable, "-m", "taugate.service.healthcheck"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_healthcheck_follows_readiness(releases: Path) -> None:
    with ServiceProcess(releases) as service:
        service.ready()
        for host in ("127.0.0.1", "0.0.0.0"):  # noqa: S104 (an address to listen on)
            healthy = check(service.port, host)
            assert healthy.returncode == 0
            assert '"status":"ready"' in healthy.stdout
        service.stop()
        gone = check(service.port)
    assert gone.returncode == 1
    assert f"127.0.0.1 port {service.port}: " in gone.stdout


def test_healthcheck_imports_no_slow_module() -> None:
    code = "import sys, taugate.service.healthcheck; print({'numpy', 'fastapi', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
