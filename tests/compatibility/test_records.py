"""Query logs, key files, baselines and histories that earlier versions wrote, as today's commands read them."""

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
KEY = "taugate_1Fc0oONh9X40KaRuOIgFuIiJymJCXpUEd3gFz1PCMwQ"  # whose hash keys.json has


@pytest.mark.parametrize(
    ("log", "releases"), [("query-log-texts.jsonl", "schema-2-early"), ("query-log-hashes.jsonl", "schema-2-baseline")]
)
def test_an_earlier_query_log_is_refused(
    log: str, releases: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It does not say what was shown."""
    copy = shutil.copy(FOLDER / log, tmp_path)
    assert cli.main(["drift", "replay", str(copy), "--releases", str(RELEASES / releases), "--json"]) == 2
    assert f"{copy}:1: written by a version before 0.3" in capfd.readouterr().err


def test_a_key_file_lets_its_key_in() -> None:
    with ServiceProcess(RELEASES / "schema-2-baseline", TAUGATE_KEYS_FILE=str(FOLDER / "keys.json")).ready() as service:
        asked = {"json": {"query": "Who built the old bridge of Riga?"}}
        assert service.http.post("/search", **asked).status_code == 401
        bearer = {"Authorization": f"Bearer {KEY}"}
        assert service.http.post("/search", headers=bearer, **asked).status_code == 200
        assert service.http.get("/metrics", headers=bearer).status_code == 403, "a scope that the key has not"


def test_a_baseline_is_taken() -> None:
    """One that does not fit is a warning, and the service goes on without it."""
    releases = RELEASES / "schema-2-baseline"
    with ServiceProcess(releases, TAUGATE_DRIFT_BASELINE=str(releases)).ready() as service:
        metrics = service.http.get("/metrics").text
        lines = [json.loads(line) for line in service.log().splitlines()]
    assert "taugate_drift_baseline 1.0" in metrics
    assert [line for line in lines if line["level"] != "info"] == []


def test_a_history_is_read_and_continued(tmp_path: Path) -> None:
    copy = shutil.copytree(RELEASES / "schema-2-baseline", tmp_path / "releases")
    (first,) = history.read(copy).events
    assert (first.action, first.release, first.by) == ("promote", find(copy).name, "ops@host")
    assert cli.main(["release", "shadow", "--none", "--releases", str(copy)]) == 0
    assert history.read(copy).events[0] == first
