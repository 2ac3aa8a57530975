"""Every command, run once in an empty home folder, leaves nothing there but Taugate's cache, and asks no other host."""

from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.every_command import IMPORTS, MCP, CommandOutcome, command_names, run_every_command
from tests.network_trace import contacts, traced, unavailable

pytestmark = [pytest.mark.model, pytest.mark.timeout(900), pytest.mark.slow]

CACHE = ".cache/taugate/"  # TAUGATE_CACHE of docs/settings.md


UNTRACED = unavailable()


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the traces; it is empty if this machine has no strace."""
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, traces: Path) -> Sequence[CommandOutcome]:
    wrap = list if UNTRACED else traced(traces)
    return list(run_every_command(tmp_path_factory.mktemp("commands"), wrap, forked=True))


def test_every_command_is_covered(outcomes: Sequence[CommandOutcome]) -> None:
    assert {each.run.command for each in outcomes} == command_names() | {IMPORTS}
    scripts = {
        script.name
        for name in ("taugate", "taugate-client")
        for script in distribution(name).entry_points.select(group="console_scripts")
    }
    assert scripts == {"taugate", MCP}


def test_every_command_succeeds(outcomes: Sequence[CommandOutcome]) -> None:
    failed = [each for each in outcomes if each.status != each.run.status or "Traceback" in each.output]
    assert [(each.run.command, each.status, each.output[-9000:]) for each in failed] == []


def test_empty_home_gets_only_cache(outcomes: Sequence[CommandOutcome]) -> None:
    left = {(each.run.command, path) for each in outcomes for path in each.home if not path.startswith(CACHE)}
    assert left == set()
    cached = {Path(path).relative_to(CACHE).parts[0] for each in outcomes for path in each.home}
    assert cached == {"embeddings", "encoders", "replies"}, "the runs do fill it"


def test_temporary_folder_stays_empty(outcomes: Sequence[CommandOutcome]) -> None:
    assert {each.run.command: each.temporary for each in outcomes if each.temporary} == {}


@pytest.mark.skipif(UNTRACED is not None, reason=UNTRACED or "")
def test_commands_contact_no_other_host(outcomes: Sequence[CommandOutcome], traces: Path) -> None:
    assert all(path.stat().st_size > 0 for path in traces.iterdir())
    assert len([*traces.iterdir()]) > sum(each.run.command == MCP for each in outcomes)
    assert contacts(traces) == set()
