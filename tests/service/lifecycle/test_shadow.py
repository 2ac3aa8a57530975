"""The shadow release: differences are counted, and replies are unaffected."""

import signal
from pathlib import Path
from types import SimpleNamespace

from prometheus_client import CollectorRegistry

from taugate.registry.promotion import promote
from taugate.release.layout import MANIFEST
from taugate.retrieval.documents.filters import OneOf, all_of
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from taugate.service.lifecycle.shadow import Shadow, answer, kept_of, overlap
from taugate.service.pipeline.search import SearchPipeline
from tests.prometheus_process import until
from tests.service.conftest import Two
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess

QUERIES = [f"What does a permit for a {thing} cost?" for thing in ("roof", "wall", "window", "bridge", "garage")]


def point(folder: Path, name: str | None) -> None:
    (folder / "shadow").write_text(f"{name}\n") if name else (folder / "shadow").unlink()


def shadow_of(service: ServiceProcess) -> str | None:
    return service.http.get("/release").json()["shadow"]


def told(service: ServiceProcess, name: str | None) -> None:
    service.process.send_signal(signal.SIGHUP)
    until(lambda: shadow_of(service) == name)


def test_shadow_metrics_count_differences(two: Two) -> None:
    """Against both releases asked directly."""
    point(two.folder, two.new)
    with ServiceProcess(two.folder, TAUGATE_SHADOW_SHARE="1") as service:
        service.ready()
        until(lambda: shadow_of(service) == two.new)
        replies = [service.http.post("/search", json={"query": query}).json() for query in QUERIES]
        assert {reply["release"] for reply in replies} == {two.old}
        until(lambda: scrape(service)["taugate_shadow_queries_total{compared}"] == len(QUERIES))
        series = scrape(service)
    old, new = (load(two.folder / name, 1) for name in (two.old, two.new))
    pairs = [
        (
            answer(Query(query, 5), old.retriever, old.documents)[0],
            answer(Query(query, 3), new.retriever, new.documents)[0],
        )
        for query in QUERIES
    ]
    assert [kept_of(side) for side, _ in pairs] == [[result["id"] for result in reply["results"]] for reply in replies]
    assert series["taugate_shadow_results_total{current,kept}"] == sum(sum(side.values()) for side, _ in pairs)
    assert series["taugate_shadow_results_total{kept,shadow}"] == sum(sum(side.values()) for _, side in pairs)
    assert series["taugate_shadow_results_total{dropped,shadow}"] == sum(3 - sum(side.values()) for _, side in pairs)
    assert series["taugate_shadow_changed_responses_total{}"] == sum(kept_of(a) != kept_of(b) for a, b in pairs)
    assert series["taugate_shadow_overlap_sum{}"] == sum(overlap(a, b) for a, b in pairs) == 0.6 * len(QUERIES)
    assert series["taugate_shadow_duration_seconds_count{shadow}"] == len(QUERIES)
    assert series["taugate_shadow_threshold{}"] == new.manifest.policy.tau
    assert sum(new.manifest.release_id in key for key in series if key.startswith("taugate_shadow_release_info")) == 1


def test_shadow_is_loaded_removed_and_promoted(two: Two) -> None:
    with ServiceProcess(two.folder, TAUGATE_SHADOW_SHARE="1") as service:
        service.ready()
        assert shadow_of(service) is None
        assert not [key for key in scrape(service) if key.startswith("taugate_shadow")]
        point(two.folder, two.new)
        told(service, two.new)
        promote(two.folder, two.new)
        told(service, None)  # it is in service itself
        assert service.http.get("/readyz").json()["release"] == two.new
        promote(two.folder, two.old)
        told(service, two.new)
        point(two.folder, None)
        told(service, None)
        until(lambda: not [key for key in scrape(service) if key.startswith("taugate_shadow")])  # once it is closed


def test_damaged_shadow_does_not_affect_service(two: Two) -> None:
    (two.folder / two.new / MANIFEST).write_bytes(b"{}")
    point(two.folder, two.new)
    with ServiceProcess(two.folder, TAUGATE_RELOAD_SECONDS="0.1", TAUGATE_SHADOW_SHARE="1") as service:
        service.ready()
        assert service.http.post("/search", json={"query": "permit"}).json()["release"] == two.old
        assert shadow_of(service) is None
        assert scrape(service)["taugate_reload_failed{}"] == 0
        _, log = service.stop()
    assert log.count("cannot load the shadow release") == 1


def test_shadow_is_not_loaded_without_share(two: Two) -> None:
    point(two.folder, two.new)
    with ServiceProcess(two.folder, TAUGATE_RELOAD_SECONDS="0.1", TAUGATE_SHADOW_SHARE="0") as service:
        service.ready()
        assert service.http.post("/search", json={"query": "permit"}).status_code == 200
        assert shadow_of(service) is None
        _, log = service.stop()
    assert log.count('"ready"') == 1
    assert "shadow release" not in log


def test_failed_queries_are_not_compared(two: Two) -> None:
    """A filter on a field that no document has, a query that breaks, and more queries than it can keep up with."""
    registry = CollectorRegistry()
    release = load(two.folder / two.new, 1)
    pipeline = SearchPipeline(load(two.folder / two.old, 1))
    shadow = Shadow(release, pipeline, 1, registry)

    def count(outcome: str) -> float:
        return registry.get_sample_value("taugate_shadow_queries_total", {"outcome": outcome}) or 0.0

    shadow.offer(Query("permit", 5, filter=all_of(OneOf.of("no such field", "x"))))
    shadow.offer(Query(None, 5))
    shadow.offer(Query("permit", 5))
    until(lambda: count("compared") == 1)
    assert count("failed") == 2
    for _ in range(1000):
        shadow.offer(Query("permit", 5))
    assert count("skipped") > 0
    shadow.close()
    pipeline.close()
    assert count("compared") + count("skipped") < 1000


def test_query_that_means_another_score_in_the_shadow_is_skipped(two: Two) -> None:
    """A threshold for another score, and a vector of another encoder although one reranker scores both releases."""
    old, new = (load(two.folder / name, 1) for name in (two.old, two.new))
    pipeline = SearchPipeline(old)
    shadow = Shadow(new, pipeline, 1, CollectorRegistry())
    vector = Query("permit", 5, vector=old.retriever.vectors(["permit"])[0].tobytes())
    with_threshold = Query("permit", 5, threshold=0.4)
    assert shadow._can_answer(vector)
    assert shadow._can_answer(with_threshold)
    policy, encoder = new.manifest.policy, new.manifest.encoder
    shadow.release = SimpleNamespace(
        manifest=new.manifest.model_copy(update={"policy": policy.model_copy(update={"kind": "probability"})})
    )
    assert not shadow._can_answer(with_threshold)
    other, second = encoder.model_copy(update={"sha256": "f" * 64}), SimpleNamespace(name="reranker", sha256="0" * 64)
    shadow.release = SimpleNamespace(
        manifest=new.manifest.model_copy(update={"encoder": other, "second_stage": second})
    )
    pipeline.release = SimpleNamespace(manifest=old.manifest.model_copy(update={"second_stage": second}))
    assert not shadow._can_answer(vector)
    shadow.release = pipeline.release = new
    shadow.close()
    pipeline.close()


def test_shadow_counts_all_results_of_a_query_with_its_own_threshold(two: Two) -> None:
    release = load(two.folder / two.old, 1)
    top, _ = answer(Query(QUERIES[0], 5, threshold=2.0), release.retriever, release.documents)
    assert [*top.values()] == [False] * 5
