"""Fixtures: the sample data set, an encoder without PyTorch, a release made of both, and a real service on it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zaragoza_construction_faq
from hypothesis import HealthCheck, settings

from taugate.cli import main as cli
from taugate.ingestion.dataset.sample import write_sample
from tests.fake_encoder import write_fake_encoder
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Else gRPC's handlers run in every copy of this process that is made to start a program as another user, such as
# PostgreSQL's initdb, and one in two hundred aborts. It is read when gRPC is first imported, which is later.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

# The longest files, in the order in which workers take them: begun last, one of them would have a worker wait.
_FIRST = ("tests/docs/test_pages_run.py", "tests/calibration/test_squad.py")

# The same examples every time, so that a red test is a change of ours; --hypothesis-profile=search looks further.
settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.register_profile("search", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files; the others keep their order."""
    items.sort(
        key=lambda item: _FIRST.index(file) if (file := item.nodeid.partition("::")[0]) in _FIRST else len(_FIRST)
    )


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither read nor fill the user's cache, and no setting of the machine reaches them.

    The workers of pytest-xdist share encoders and embeddings, so that the real encoder is exported once and encodes a
    text once. Copies of releases are kept by URL, and every worker has the same URLs.
    """
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("TAUGATE_")}
    cache = tmp_path_factory.mktemp("cache")
    for name in ("encoders", "embeddings") if "PYTEST_XDIST_WORKER" in os.environ else ():
        shared = tmp_path_factory.getbasetemp().parent / name
        shared.mkdir(exist_ok=True)
        (cache / name).symlink_to(shared)
    os.environ["TAUGATE_CACHE"] = str(cache)
    yield
    os.environ.update(kept)


_DATA = os.environ.get("TAUGATE_DATA")


@pytest.fixture(scope="session")
def public_data() -> Path:
    """The folder of public data sets."""
    if not _DATA:
        pytest.skip("TAUGATE_DATA is not set: it names the folder with the public data sets")
    return Path(_DATA)


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample data set: 503 real questions and answers."""
    folder = tmp_path_factory.mktemp("sample") / "zaragoza"
    write_sample(folder)
    return folder


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported encoder folder that knows the sample's words."""
    texts = [entry[field] for entry in zaragoza_construction_faq.load(lang="en") for field in ("q", "a")]
    return write_fake_encoder(tmp_path_factory.mktemp("encoder"), texts)


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory, sample: Path, encoder: Path) -> Path:
    """A releases directory with one promoted release. Tests that change it copy it first."""
    folder = tmp_path_factory.mktemp("releases")
    assert cli.main(["calibrate", str(sample), "--releases", str(folder), "--encoder", str(encoder)]) == 0
    return folder


@pytest.fixture(scope="module")
def service(releases: Path) -> Iterator[ServiceProcess]:
    """`taugate serve` as a process of its own, ready."""
    with ServiceProcess(releases) as process:
        yield process.ready()


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Chromium. No longer than a module: while it runs, asyncio.run() is refused in this thread."""
    from tests.browser import chromium

    with chromium() as started:
        yield started
