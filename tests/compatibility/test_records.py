"""Current commands on query logs, key files, baselines and histories of earlier versions."""

import json
import shutil
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.registry import history
from taugate.registry.catalog import find
from tests.compatibility.write import FOLDER
from tests.service_process import ServiceProcess

RELEASES = FOLDER / "releases"
KEY = "taugate_1Fc0oONh9X40KaRuOIgFuIiJymJCXpUEd3gFz1PCMwQ"  # keys.json has its hash


@pytest.mark.parametrize(
    ("log", "releases"), [("query-log-texts.jsonl", "schema-2-early"), ("query-log-hashes.jsonl", "schema-2-baseline")]
)
def test_earlier_query_log_is_refused(
    log: str, releases: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An earlier log does not list the shown documents."""
    copy = shutil.copy(FOLDER / log, tmp_path)
    assert cli.main(["drift", "replay", str(copy), "--releases", str(RELEASES / releases), "--json"]) == 2
    assert f"{copy}:1: written by a version before 0.3" in capfd.readouterr().err


def test_earlier_key_file_is_accepted() -> None:
    with ServiceProcess(RELEASES / "schema-2-baseline", TAUGATE_KEYS_FILE=str(FOLDER / "keys.json")).ready() as service:
        request = {"json": {"query": "Who built the old bridge of Riga?"}}
        assert service.http.post("/search", **request).status_code == 401
        bearer = {"Authorization": f"Bearer {KEY}"}
        assert service.http.post("/search", headers=bearer, **request).status_code == 200
        assert service.http.get("/metrics", headers=bearer).status_code == 403, "the key lacks this scope"


def test_earlier_baseline_is_accepted() -> None:
    """A baseline that does not fit would be a warning in the log."""
    releases = RELEASES / "schema-2-baseline"
    with ServiceProcess(releases, TAUGATE_DRIFT_BASELINE=str(releases)).ready() as service:
        metrics = service.http.get("/metrics").text
        lines = [json.loads(line) for line in service.log().splitlines()]
    assert "taugate_drift_baseline 1.0" in metrics
    assert [line for line in lines if line["level"] != "info"] == []


def test_earlier_history_is_continued(tmp_path: Path) -> None:
    copy = shutil.copytree(RELEASES / "schema-2-baseline", tmp_path / "releases")
    (first,) = history.read(copy).events
    assert (first.action, first.release, first.by) == ("promote", find(copy).name, "ops@host")
    assert cli.main(["release", "shadow", "--none", "--releases", str(copy)]) == 0
    assert history.read(copy).events[0] == first
