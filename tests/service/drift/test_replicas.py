"""Replicas on one Redis: one COE for all of them, and each its own when Redis is gone."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.prometheus_process import until
from tests.redis_process import RedisProcess
from tests.service.drift.traffic import Hurried
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
    relevant = []
    for start in range(0, len(labelled), 50):
        part = labelled[start : start + 50]
        queries = [{"query": text, "include_text": False} for text, _ in part]
        replies = service.http.post("/search/batch", json={"queries": queries}).json()["responses"]
        for (_, document), reply in zip(part, replies, strict=True):
            if any(result["id"] == document for result in reply["results"]):
                relevant.append({"query_id": reply["query_id"], "document_id": document, "relevant": True})
    # The other replica learns of the last of them with the next look, and of all others before.
    until(lambda: judge.http.post("/feedback", json=relevant[-1]).status_code == 202)
    for judged in relevant[:-1]:
        assert judge.http.post("/feedback", json=judged).status_code == 202


def test_two_replicas_report_one_coe_and_go_on_without_redis(
    releases: Path, redis: RedisProcess, labelled: list[tuple[str, str]]
) -> None:
    with (
        Hurried(releases, TAUGATE_REDIS_URL=redis.url) as first,
        Hurried(releases, TAUGATE_REDIS_URL=redis.url) as second,
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
            told = {each.get(judged, 0) for each in shown}
            return all(each.get(seen) == 5 * queries for each in shown) and len(told) == 1 and min(told) > 100

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
    with Hurried(releases, TAUGATE_REDIS_URL=redis.url) as service:
        assert service.ready().http.post("/search", json={"query": "permit"}).status_code == 200
        until(lambda: [*redis.client.scan_iter("taugate:drift:*:shown:*")])
        (bucket,) = redis.client.scan_iter("taugate:drift:*:shown:*")
        told = {b"not JSON": 404, b"[1]": 404, b'{"d": "near"}': 404, b'{"d": 0.5}': 202}  # the last one could be true
        for number, (shown, status) in enumerate(told.items()):
            redis.client.hset(bucket, f"strange{number}", shown)
            judged = {"query_id": f"strange{number}", "document_id": "d", "relevant": True}
            assert service.http.post("/feedback", json=judged).status_code == status
