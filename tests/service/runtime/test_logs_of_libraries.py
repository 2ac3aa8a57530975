"""Libraries that report every request, or what is not wrong, are not in the log."""

import subprocess
import sys


def test_lines_of_libraries_are_left_out() -> None:
    code = (
        "import logging\n"
        "from taugate.service.runtime.logs import configure_logging\n"
        "configure_logging('info')\n"
        "import faiss\n"  # says at its import which builds are not installed
        "logging.getLogger('httpx2').info('HTTP Request: POST')\n"
        "logging.getLogger('taugate').info('own')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "own" in done.stderr
    assert "ModuleNotFoundError" not in done.stderr
    assert "HTTP Request" not in done.stderr
