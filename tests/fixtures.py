"""Fixtures: the sample data set, an encoder without PyTorch, a release of both, and a real service with it."""

import gc
import os
import time
from collections.abc import Iterator
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zaragoza_construction_faq
from hypothesis import HealthCheck, settings

from taugate.cli import main as cli
from taugate.data.location import write_sample
from tests.fake_encoder import write_fake_encoder
from tests.fork_server import shared_client
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Imports make a million objects that stay, and each search among them for garbage takes a second. So none is made while
# tests are collected, and later ones leave these objects out.
gc.disable()

# gRPC reads this at its first import. Otherwise its fork handlers run in every fork of this process that starts another
# user's program, such as PostgreSQL's initdb, and one fork in two hundred aborts.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

# The tests speak no TLS, but each HTTP client reads the certificates of all authorities, for 19 ms: here there is one.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("authority.pem"))

# As in a new environment: pip has compiled nothing (.ci/run), and no test has run.
_NO_BYTECODE = (torch := find_spec("torch")) is not None and not Path(cache_from_source(str(torch.origin))).exists()

# The longest files, which start first so that no process runs one of them while the others have finished.
_FIRST = (
    "tests/docs/test_pages_run.py",
    "tests/cli/test_home_folder.py",
    "tests/calibration/export/test_architectures.py",
    "tests/deploy/test_drift_end_to_end.py",
    "tests/service/process/test_draining.py",
)

# The same examples every time, so that only a change of the code breaks a test; --hypothesis-profile=search draws more.
settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.register_profile("search", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[object]:
    """Let one process of pytest-xdist import the tests first if there is no bytecode yet.

    All would import the same modules in the same order, and each would compile all of them, for 23 seconds.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or not _NO_BYTECODE:
        return (yield)
    assert session.config.cache is not None
    collected = session.config.cache.mkdir("collected") / worker["testrunuid"]
    if worker["workerid"] == "gw0":
        try:
            return (yield)
        finally:
            collected.touch()
    deadline = time.monotonic() + 600  # if that process was killed
    while not collected.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; the others keep their order."""
    items.sort(
        key=lambda item: _FIRST.index(file) if (file := item.nodeid.partition("::")[0]) in _FIRST else len(_FIRST)
    )


def pytest_collection_finish() -> None:
    """Make garbage collection cheap for all tests.

    By default, all objects made since then are searched after each 70,000 new ones, for a sixth of the tests' time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 10, 40)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the tests a new cache, and an environment without the machine's settings of Taugate.

    The processes of pytest-xdist share encoders and embeddings, so that the real encoder is exported once and encodes a
    text once. Each has its own copies of releases: these are cached by URL, and the URLs are the same in all processes.
    """
    settings_before = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("TAUGATE_")}
    cache = tmp_path_factory.mktemp("cache")
    for name in ("encoders", "embeddings") if "PYTEST_XDIST_WORKER" in os.environ else ():
        shared = tmp_path_factory.getbasetemp().parent / name
        shared.mkdir(exist_ok=True)
        (cache / name).symlink_to(shared)
    os.environ["TAUGATE_CACHE"] = str(cache)
    yield
    os.environ.update(settings_before)


_DATA = os.environ.get("TAUGATE_DATA")


@pytest.fixture(scope="session")
def public_data() -> Path:
    """Return the folder of the public data sets."""
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
    """A releases directory with one promoted release; tests that change it copy it first."""
    folder = tmp_path_factory.mktemp("releases")
    assert cli.main(["calibrate", str(sample), "--releases", str(folder), "--encoder", str(encoder)]) == 0
    return folder


@pytest.fixture(scope="session")
def taugate() -> Path | None:
    """A program that runs commands of `taugate` in forks of a process that has imported them; None on macOS."""
    return shared_client()


@pytest.fixture(scope="module")
def service(releases: Path) -> Iterator[ServiceProcess]:
    """A real `taugate serve`, ready."""
    with ServiceProcess(releases) as process:
        yield process.ready()


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Chromium, started for each module, because asyncio.run() is impossible in this thread while it runs."""
    from tests.browser import chromium

    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def cosines(sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of the sample whose scores are cosines alone."""
    folder = tmp_path_factory.mktemp("cosines")
    command = ["calibrate", str(sample), "--releases", str(folder), "--encoder", str(encoder), "--lexical", "off"]
    assert cli.main(command) == 0
    return folder
