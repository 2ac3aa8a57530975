"""Programs that some tests start, such as Redis, nginx and Chromium; `make test-servers` installs them."""

import os
import shutil

import pytest

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Read once, because the tests' environment has no settings of Taugate.
_REQUIRED = os.environ.get("TAUGATE_TEST_SERVERS") == "required"
# Debian keeps nginx in a folder that only root has on PATH.
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])


def require(*names: str) -> str:
    """Return the path of a program, or skip the test if it is not installed.

    With TAUGATE_TEST_SERVERS=required, as in CI, the test fails instead.

    Args:
        names: Names that the program may have; the first is the one that `make test-servers` installs.
    """
    for name in names:
        if path := shutil.which(name, path=_PATH):
            return path
    message = f"{names[0]} is not installed: make test-servers"
    if _REQUIRED:
        pytest.fail(message, pytrace=False)
    pytest.skip(message)
