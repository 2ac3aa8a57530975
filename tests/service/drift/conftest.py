"""The release that the services of these tests have, opened here."""

from pathlib import Path

import pytest

from taugate.registry.catalog import find
from taugate.retrieval.release.reader import Release, load


@pytest.fixture(scope="module")
def release(releases: Path) -> Release:
    return load(find(releases), 1)
