"""/metrics counts replies in a valid format, and unknown paths do not make it grow."""

import math
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from taugate.registry.catalog import find
from taugate.release.manifest import Manifest, RunManifest
from taugate.release.state import UpdateRecord
from taugate.release.verify import verify_searchable
from taugate.service.metrics import Metrics
from tests.servers import require
from tests.service_process import ServiceProcess

QUERY = "What does a building permit cost?"
# What one search in no cache moves, whatever becomes of its results.
SEARCHED = {
    "requests_total{/search,200}": 1,
    "cache_requests_total{miss}": 1,
    "request_duration_seconds_count{/search}": 1,
    "encode_batch_size_count{}": 1,
    "stage_duration_seconds_count{encode}": 1,
    "stage_duration_seconds_count{search}": 1,
    "stage_duration_seconds_count{filter}": 1,
}


@pytest.fixture(scope="module")
def service(releases: Path) -> Iterator[ServiceProcess]:
    """One that has had no other traffic."""
    with ServiceProcess(releases) as process:
        yield process.ready()


def scrape(service: ServiceProcess) -> Counter[str]:
    """Every series as `name{label values}`."""
    families = text_string_to_metric_families(service.http.get("/metrics").text)
    return Counter(
        {
            f"{each.name}{{{','.join(sorted(each.labels.values()))}}}": each.value
            for family in families
            for each in family.samples
        }
    )


def moved(service: ServiceProcess, path: str, body: object) -> dict[str, float]:
    """How much each series of our own but the histograms' sums and buckets moved with one POST.

    The gauge of connections moves whenever the client opens another one, or an earlier client's is closed, and those
    of the golden queries when they are run.
    """
    before = scrape(service)
    service.http.post(path, json=body)
    after = scrape(service)
    return {
        name.removeprefix("taugate_"): after[name] - before[name]
        for name in after
        if name.startswith("taugate_")
        and not any(part in name for part in ("/metrics", "_bucket", "_sum", "taugate_connections", "taugate_canary"))
        and after[name] != before[name]
        and not math.isnan(after[name])
    }


def test_promtool_accepts_metrics(service: ServiceProcess) -> None:
    service.http.post("/search", json={"query": QUERY, "threshold": 2.0})
    text = service.http.get("/metrics").text
    done = subprocess.run(
        [require("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_kept_results_are_counted(service: ServiceProcess) -> None:
    body = {"query": "asked for the first time", "k": 7, "threshold": -2.0}
    assert moved(service, "/search", body) == SEARCHED | {"results_total{kept}": 7}


def test_cached_search_counts_results(service: ServiceProcess) -> None:
    body = {"query": "asked twice", "k": 7, "threshold": -2.0}
    service.http.post("/search", json=body)
    assert moved(service, "/search", body) == {
        "requests_total{/search,200}": 1,
        "cache_requests_total{hit}": 1,
        "request_duration_seconds_count{/search}": 1,
        "results_total{kept}": 7,
    }


def test_dropped_results_are_counted(service: ServiceProcess) -> None:
    assert moved(service, "/search", {"query": "asked and dropped", "k": 7, "threshold": 2.0}) == SEARCHED | {
        "results_total{dropped}": 7,
        "empty_responses_total{all_below_threshold}": 1,
    }


def test_batch_counts_each_query(service: ServiceProcess) -> None:
    queries = [{"query": QUERY, "k": 3, "threshold": threshold} for threshold in (-2.0, 2.0, 2.0)]
    counted = moved(service, "/search/batch", {"queries": queries})
    assert counted["requests_total{/search/batch,200}"] == 1
    assert counted["results_total{kept}"] == 3
    assert counted["results_total{dropped}"] == 6
    assert counted["empty_responses_total{all_below_threshold}"] == 2


def test_invalid_search_counts_only_request(service: ServiceProcess) -> None:
    assert moved(service, "/search", {"query": ""}) == {
        "requests_total{/search,422}": 1,
        "request_duration_seconds_count{/search}": 1,
    }


def test_release_metrics_describe_release(service: ServiceProcess) -> None:
    reply = service.http.post("/search", json={"query": QUERY}).json()
    series = scrape(service)
    assert series[f"taugate_release_info{{{reply['release']},calibrated,fake,similarity}}"] == 1
    assert series["taugate_release_threshold{}"] == pytest.approx(reply["threshold"], abs=1e-7)
    assert series["taugate_release_rho{}"] == pytest.approx(reply["refusal"]["rho"], abs=1e-7)
    assert series["taugate_release_psi{}"] == 100
    assert series["taugate_queue_depth{}"] == 0
    created = datetime.strptime(reply["release"].partition("-")[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert series["taugate_release_created_timestamp_seconds{}"] == created.timestamp()
    for overlap in ("coe", "roe"):
        bounds = [series[f"taugate_{overlap}_reference{{{bound}}}"] for bound in ("lower", "mean", "upper")]
        assert bounds == sorted(bounds)


def test_psi_is_absent_if_rule_has_none(releases: Path) -> None:
    manifest = verify_searchable(find(releases))
    certified = manifest.model_copy(
        update={"release_id": "b", "policy": manifest.policy.model_copy(update={"psi": None})}
    )
    metrics = Metrics()
    shown = []
    for released in (manifest, certified, manifest):
        metrics.set_release(released, 0.0)
        text = generate_latest(metrics.scrape()).decode()
        shown.append(re.findall(r"^taugate_release_psi\S* (\S+)$", text, re.MULTILINE))
    assert shown == [["100.0"], [], ["100.0"]]


def test_unknown_paths_share_label(service: ServiceProcess) -> None:
    before = scrape(service)
    for number in range(20):
        service.http.get(f"/stranger-{number}")
    after = scrape(service)
    assert after["taugate_requests_total{404,unmatched}"] - before["taugate_requests_total{404,unmatched}"] == 20
    assert not [name for name in after if "stranger" in name]
    assert len(after) < 500


def test_openmetrics_is_negotiated(service: ServiceProcess) -> None:
    plain = service.http.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    asked = service.http.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert asked.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert asked.text.endswith("# EOF\n")
    assert "taugate_requests" in {family.name for family in openmetrics_families(asked.text)}


NAME = "taugate_release_documents_over_certified"


def grown(documents: int, certified: int | None) -> float:
    """The ratio of a release with so many documents, of an update of one with `certified`."""
    update = None if certified is None else Mock(spec=UpdateRecord, documents=certified)
    manifest = Mock(data=Mock(documents=documents), update=update, erasure=None)
    manifest.certified_documents = Manifest.certified_documents.fget(manifest)  # type: ignore[attr-defined]
    return float(Manifest.documents_over_certified.fget(manifest))  # type: ignore[attr-defined]


def test_update_tells_growth_since_calibration() -> None:
    assert grown(596, 149) == 4.0
    assert grown(596, None) == 1.0


def test_growth_of_run_is_absent_from_metrics() -> None:
    metrics = Metrics()
    metrics.release_documents_over_certified.set(2.5)
    assert f"{NAME} 2.5" in generate_latest(metrics.scrape()).decode()
    metrics.release_documents_over_certified.set(RunManifest.documents_over_certified.fget(None))  # type: ignore[attr-defined]
    assert NAME not in generate_latest(metrics.scrape()).decode()
