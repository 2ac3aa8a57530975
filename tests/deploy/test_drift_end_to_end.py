"""Traffic in, metric out, alert firing in Alertmanager; and resolved after a rollback. All of it real."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import taugate
from retrieval.release.catalog import find
from tests.prometheus_process import Alertmanager, Prometheus, free_port, until
from tests.service_process import ServiceProcess


@pytest.fixture(scope="module")
def questions(sample: Path) -> list[str]:
    return [json.loads(line)["text"] for line in (sample / "queries.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def promoted(tmp_path_factory: pytest.TempPathFactory, releases: Path, sample: Path, encoder: Path) -> Path:
    """The good release, and in front of it one that was calibrated on queries which nobody asks: whole documents."""
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
    assert taugate.main(["calibrate", str(strange), "--releases", str(folder), "--encoder", str(encoder)]) == 0
    return folder


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[Alertmanager]:
    (tmp_path / "alertmanager").mkdir()
    with Alertmanager(tmp_path / "alertmanager") as server:
        yield server


def ask(service: ServiceProcess, questions: list[str]) -> None:
    for start in range(0, len(questions), 50):
        queries = [{"query": text, "include_text": False} for text in questions[start : start + 50]]
        assert service.http.post("/search/batch", json={"queries": queries}).status_code == 200


def test_from_traffic_to_the_alert_and_back(
    promoted: Path, releases: Path, questions: list[str], alertmanager: Alertmanager, tmp_path: Path
) -> None:
    bad, good = find(promoted).name, find(releases).name
    port = free_port()
    (tmp_path / "prometheus").mkdir()
    with Prometheus(tmp_path / "prometheus", [port], alertmanager.port) as prometheus:
        with ServiceProcess(promoted, port) as service:
            ask(service.ready(), questions)
            until(lambda: "TaugateSimilarityDrift" in alertmanager.alerts(), seconds=120)  # a minute of it is `for`
            alert = alertmanager.alerts()["TaugateSimilarityDrift"]
            assert (alert["status"]["state"], alert["labels"]["severity"]) == ("active", "warning")
            assert alert["annotations"]["runbook_url"] == "docs/runbooks/TaugateSimilarityDrift.md"
            (info,) = prometheus.query("taugate_release_info == 1")
            assert info["metric"]["release"] == bad

        assert taugate.main(["release", "promote", "--releases", str(promoted), good]) == 0
        with ServiceProcess(promoted, port) as service:
            ask(service.ready(), questions)
            until(lambda: "TaugateSimilarityDrift" not in alertmanager.alerts(), seconds=90)
            until(lambda: prometheus.query(f'taugate_release_info{{release="{good}"}} == 1'))
            assert prometheus.query("max(taugate_drift_alarm) == 0")
