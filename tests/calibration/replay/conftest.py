"""Fixtures: the service whose log is read, and the command on a log."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.cli import main as cli
from tests.calibration.commands import Printed
from tests.calibration.replay.records import Service, day

Command = Callable[..., dict]


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory, sample: Path, encoder: Path) -> Path:
    """One promoted release that refuses no query, so that only the threshold leaves a query empty."""
    folder = tmp_path_factory.mktemp("replayed")
    options = ["--releases", str(folder), "--encoder", str(encoder), "--refuse", "off", "--lexical", "off"]
    assert cli.main(["calibrate", str(sample), *options]) == 0
    return folder


@pytest.fixture
def service(releases: Path) -> Service:
    return Service(releases)


@pytest.fixture(scope="session")
def lines(releases: Path) -> list[dict]:
    """A day of queries with a change at noon, see `day`."""
    return day(Service(releases))


@pytest.fixture
def replayed(releases: Path, capsys: Printed) -> Command:
    """What `taugate drift replay LOG… --json` prints."""

    def run(*arguments: object) -> dict:
        capsys.readouterr()
        command = ["drift", "replay", *map(str, arguments), "--releases", str(releases), "--json"]
        assert cli.main(command) == 0
        found: dict = json.loads(capsys.readouterr().out)
        return found

    return run


@pytest.fixture
def refused(releases: Path, capsys: Printed) -> Callable[..., str]:
    """The one sentence with which `taugate drift ACTION …` ends."""

    def run(*arguments: object, releases: Path = releases) -> str:
        capsys.readouterr()
        assert cli.main(["drift", *map(str, arguments), "--releases", str(releases)]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        (sentence,) = (line for line in said.err.splitlines() if line.startswith("taugate: "))
        return sentence

    return run
