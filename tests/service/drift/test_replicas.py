"""Replicas on one Redis: one COE for all of them, and each its own when Redis is gone."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from retrieval.release.catalog import find
from tests.prometheus_process import until
from tests.redis_process import RedisProcess
from tests.service_process import ServiceProcess


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    with RedisProcess(tmp_path) as server:
        yield server


@pytest.fixture(scope="module")
def labelled(sample: Path) -> list[tuple[str, str]]:
    """Questions with the document that answers each."""
    lines = (sample / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    texts = {record["_id"]: record["text"] for record in map(json.loads, lines)}
    (qrels,) = (sample / "qrels").glob("*.tsv")
    pairs = (line.split("\t")[:2] for line in qrels.read_text(encoding="utf-8").splitlines()[1:])
    return [(texts[query], document) for query, document in pairs]


def gauges(service: ServiceProcess) -> dict[str, float]:
    lines = (line.split() for line in service.http.get("/metrics").text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines if name.startswith("taugate_")}


def ask(service: ServiceProcess, labelled: list[tuple[str, str]], judge: ServiceProcess) -> None:
    """Ask, and tell `judge`, which may be another replica, of every relevant result."""
    for start in range(0, len(labelled), 50):
        part = labelled[start : start + 50]
        queries = [{"query": text, "include_text": False} for text, _ in part]
        replies = service.http.post("/search/batch", json={"queries": queries}).json()["responses"]
        time.sleep(1.5)  # the other replica learns of them with the next look
        for (_, document), reply in zip(part, replies, strict=True):
            if any(result["id"] == document for result in reply["results"]):
                judged = {"query_id": reply["query_id"], "document_id": document, "relevant": True}
                assert judge.http.post("/feedback", json=judged).status_code == 202


def test_two_replicas_report_one_coe_and_go_on_without_redis(
    releases: Path, redis: RedisProcess, labelled: list[tuple[str, str]]
) -> None:
    with (
        ServiceProcess(releases, TAUGATE_REDIS_URL=redis.url) as first,
        ServiceProcess(releases, TAUGATE_REDIS_URL=redis.url) as second,
    ):
        replicas = (first.ready(), second.ready())
        # Not alike: the first answers questions that are not in the sample as well.
        strange = [(f"{text} and what else is there", document) for text, document in labelled[:150]]
        ask(first, labelled[:250] + strange, judge=second)
        ask(second, labelled[250:], judge=first)
        seen, judged = (f'taugate_overlap_samples{{set="{name}"}}' for name in ("topk", "correct"))
        queries = len(labelled) + len(strange)

        def everything() -> bool:
            shown = [gauges(each) for each in replicas]
            return all(each[seen] == 5 * queries and each[judged] == shown[0][judged] > 100 for each in shown)

        until(everything)
        one, other = (gauges(each) for each in replicas)
        assert one["taugate_drift_replicas"] == other["taugate_drift_replicas"] == 2
        for name in ("taugate_coe", "taugate_coe_expected", "taugate_roe"):
            assert one[name] == pytest.approx(other[name], abs=0.01)

        redis.kill()
        for service in replicas:
            assert service.http.post("/search", json={"query": "after Redis"}).status_code == 200
            reply = service.http.post("/search", json={"query": labelled[0][0], "threshold": -2}).json()
            judged = {"query_id": reply["query_id"], "document_id": reply["results"][0]["id"], "relevant": True}
            assert service.http.post("/feedback", json=judged).status_code == 202
        for service, own in ((first, 250 + len(strange)), (second, len(labelled) - 250)):
            until(lambda service=service: gauges(service)["taugate_drift_replicas"] == 1, seconds=40)
            until(lambda service=service, own=own: gauges(service)[seen] == 5 * (own + 2))
            assert gauges(service)["taugate_roe"] >= 0


def test_what_strangers_write_about_replies_is_not_believed(releases: Path, redis: RedisProcess) -> None:
    with ServiceProcess(releases, TAUGATE_REDIS_URL=redis.url) as service:
        service.ready()
        prefix = f"taugate:drift:1:{find(releases).name}:shown"
        for number, shown in enumerate((b"not JSON", b"[1]", b'{"d": "near"}')):
            redis.client.hset(f"{prefix}:{int(time.time() // 600)}", f"strange{number}", shown)
            judged = {"query_id": f"strange{number}", "document_id": "d", "relevant": True}
            assert service.http.post("/feedback", json=judged).status_code == 404
