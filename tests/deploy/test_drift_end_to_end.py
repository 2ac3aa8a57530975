"""Traffic, metric, alert in Alertmanager, and resolution after a rollback, all with real servers."""

import json
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.registry.catalog import find
from tests.loopback import free_port
from tests.prometheus_process import Alertmanager, Prometheus, until
from tests.service.drift.traffic import NO_ALARM, ordinary, send, told
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def questions(sample: Path) -> list[str]:
    """Three times as many as the alarm takes."""
    return ordinary(sample, 1000)


@pytest.fixture(scope="module")
def promoted(tmp_path_factory: pytest.TempPathFactory, releases: Path, sample: Path, encoder: Path) -> Path:
    """The good release, and a current one that was calibrated on unrealistic queries: whole documents."""
    folder = shutil.copytree(releases, tmp_path_factory.mktemp("promoted") / "releases")
    strange = shutil.copytree(sample, tmp_path_factory.mktemp("strange") / "strange")
    documents = {
        record["_id"]: record["text"]
        for record in map(json.loads, (sample / "corpus.jsonl").read_text(encoding="utf-8").splitlines())
    }
    (qrels,) = (sample / "qrels").glob("*.tsv")
    answers = dict(line.split("\t")[:2] for line in qrels.read_text(encoding="utf-8").splitlines()[1:])
    lines = (json.dumps({"_id": query, "text": documents[document]}) for query, document in answers.items())
    (strange / "queries.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    assert cli.main(["calibrate", str(strange), "--releases", str(folder), "--encoder", str(encoder)]) == 0
    return folder


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[Alertmanager]:
    (tmp_path / "alertmanager").mkdir()
    with Alertmanager(tmp_path / "alertmanager") as server:
        yield server


def test_drift_alert_fires_and_resolves(
    promoted: Path, releases: Path, questions: list[str], alertmanager: Alertmanager, tmp_path: Path
) -> None:
    bad, good = find(promoted).name, find(releases).name
    port = free_port()
    (tmp_path / "prometheus").mkdir()
    with (
        Prometheus(tmp_path / "prometheus", [port], alertmanager.port) as prometheus,
        ServiceProcess(promoted, port) as service,
    ):
        send(service.ready(), questions)
        until(lambda: ("TaugateDrift", "topk_similarity") in alertmanager.alerts())
        firing = alertmanager.alerts()
        alert = firing["TaugateDrift", "topk_similarity"]
        page = ("TaugateDrift", "empty_responses") in firing  # about the same shift
        state = "suppressed" if page else "active"
        assert (alert["status"]["state"], alert["labels"]["severity"]) == (state, "warning")
        said = r"the best similarity of a search is 0\.\d\d on average, \d\.\d\d at calibration"
        assert re.search(said, alert["annotations"]["summary"])
        assert alert["annotations"]["runbook_url"] == "docs/runbooks/TaugateDrift.md"
        (info,) = prometheus.query("taugate_release_info == 1")
        assert info["metric"]["release"] == bad
        assert "topk_similarity" in told(service)["signals"]

        assert cli.main(["release", "promote", "--releases", str(promoted), good]) == 0
        service.process.send_signal(signal.SIGHUP)
        until(lambda: service.http.get("/readyz").json()["release"] == good)
        send(service, questions)
        until(lambda: ("TaugateDrift", "topk_similarity") not in alertmanager.alerts(), seconds=90)
        until(lambda: prometheus.query(f'taugate_release_info{{release="{good}"}} == 1'))
        until(lambda: prometheus.query("taugate_drift_blocks_total >= 5"))  # all of them have been weighed
        assert prometheus.query("max(taugate_drift_alarm) == 0")
        assert told(service) == NO_ALARM
