"""An engine that goes away during an update: one error, and everything is as it was; servers are real."""

from pathlib import Path
from typing import NoReturn

import pytest

from engines_tests.calibration.conftest import OPTIONS, changed
from taugate.cli import main as cli
from taugate.errors import EngineUnavailable
from taugate.registry import promotion
from taugate.registry.catalog import current_id, release_ids
from taugate.retrieval.engines.engine import Engine
from taugate_engines.pgvector import PgvectorEngine
from tests.calibration.commands import arguments, failure
from tests.calibration.update.corpora import Updating, newer
from tests.loopback import HOST, free_port
from tests.postgres_process import postgres
from tests.retrieval.engines.corpus import soon

pytestmark = [pytest.mark.usefixtures("broad"), pytest.mark.slow]


def test_unreachable_engine_changes_nothing(
    data: tuple[Path, Path],
    there: Path,
    engine: Engine,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later = newer(
        data[0], tmp_path / "later", lambda documents: [*changed(documents), {"_id": "of-its-own", "text": "word5"}]
    )
    command = ["update", str(later), "--verbose", "--releases", str(there), "--margin", "0.2"]
    names, releases, first = engine.names(soon()), release_ids(there), current_id(there)

    def away(*_: object, **__: object) -> NoReturn:
        raise EngineUnavailable("the engine does not respond in time; check that it is up and reachable")

    with monkeypatch.context() as patch:
        patch.setattr(type(engine), "finish", away)
        assert "does not respond in time" in failure(command, capfd, 1)
    with monkeypatch.context() as patch:
        place = f"{HOST}:{free_port()}"
        url = f"postgresql://nobody@{place}/none" if engine.kind == "pgvector" else f"http://{place}"
        patch.setenv("TAUGATE_ENGINE_URL", url)
        assert f"at {place} does not respond in time" in failure(command, capfd, 1)
        patch.delenv("TAUGATE_ENGINE_URL")
        assert "TAUGATE_ENGINE_URL is not set" in failure(command, capfd)
    assert engine.names(soon()) == names
    assert (release_ids(there), current_id(there)) == (releases, first)
    monkeypatch.setattr(promotion, "promote", away)
    message = failure(command, capfd, 1)
    (made,) = {*release_ids(there)} - {*releases}
    assert f"{made} was written but not promoted: run taugate release promote {made}" in message
    assert current_id(there) == first


def test_killed_server_update_can_be_repeated(
    data: tuple[Path, Path],
    tmp_path: Path,
    update: Updating,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    releases, later = tmp_path / "releases", newer(data[0], tmp_path / "later", changed)
    with postgres() as (server,):
        monkeypatch.setenv("TAUGATE_ENGINE_URL", server.url)
        assert cli.main(arguments(data[0], releases, data[1], *OPTIONS, "--engine", "pgvector")) == 0
        first = current_id(releases)
        command = ["update", str(later), "--verbose", "--releases", str(releases), "--margin", "0.2"]
        finish = PgvectorEngine.finish

        def killed(self: PgvectorEngine, *arguments: object) -> None:
            server.kill()
            finish(self, *arguments)  # type: ignore[arg-type]  # what the caller gave

        with monkeypatch.context() as patch:
            patch.setattr(PgvectorEngine, "finish", killed)
            assert "pgvector at a local path does not respond" in failure(command, capfd, 1)
        assert (release_ids(releases), current_id(releases)) == ([first], first)
        server.start()
        code, printed, said = update(later, releases, "--margin", "0.2")
        assert code == 0, said
        assert "an earlier upload was interrupted; uploading again" in said
        assert current_id(releases) == printed["release"]
