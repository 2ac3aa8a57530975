"""Replicas and workers: a reply can be judged through any, counters add up, and repeats raise no alarm."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from taugate.retrieval.reader import Release
from tests.prometheus_process import until
from tests.redis_process import RedisProcess
from tests.service.drift.traffic import (
    NO_ALARM,
    SIGNAL,
    FastDriftService,
    ask,
    by_signal,
    count_logged,
    foreign_queries,
    metrics,
    queries_until_alarm,
    send,
    told,
)
from tests.service.process.test_workers import pids
from tests.service_process import ServiceProcess

SEEN, COUNT, ABOVE = (
    f'taugate_{name}{{{{set="{{}}"}}}}' for name in ("overlap_samples", "overlap_compared_total", "overlap_above_total")
)


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


def ask_and_judge(service: ServiceProcess, labelled: list[tuple[str, str]], judge: ServiceProcess) -> None:
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


def counts(service: ServiceProcess, name: str) -> float:
    return service.metrics().get(name, 0.0)


@pytest.mark.slow
def test_replica_counters_add_up_in_prometheus(
    releases: Path, redis: RedisProcess, labelled: list[tuple[str, str]]
) -> None:
    """Judgements of one's replies are told to the other, which counts them; both go on without Redis."""
    with (
        FastDriftService(releases, TAUGATE_REDIS_URL=redis.url) as first,
        FastDriftService(releases, TAUGATE_REDIS_URL=redis.url) as second,
    ):
        replicas = (first.ready(), second.ready())
        # Not alike: the first answers questions that are not in the sample as well.
        strange = [(f"{text} and what else is there", document) for text, document in labelled[:150]]
        ask_and_judge(first, labelled[:250] + strange, judge=second)
        ask_and_judge(second, labelled[250:], judge=first)
        queries = (250 + len(strange), len(labelled) - 250)
        for service, own in zip(replicas, queries, strict=True):
            until(lambda service=service, own=own: counts(service, SEEN.format("topk")) == 5 * own)
            assert counts(service, COUNT.format("random")) == 4 * own
            until(lambda service=service: counts(service, SEEN.format("correct")) > 50)
            for name, above in (("random", "taugate_roe"), ("correct", "taugate_coe_expected")):
                share = counts(service, ABOVE.format(name)) / counts(service, COUNT.format(name))
                assert 0 <= share <= 1
                assert 0 <= counts(service, above) <= 1

        redis.kill()
        for service, own in zip(replicas, queries, strict=True):
            assert service.http.post("/search", json={"query": "after Redis"}).status_code == 200
            reply = service.http.post("/search", json={"query": labelled[0][0], "threshold": -2}).json()
            judged = {"query_id": reply["query_id"], "document_id": reply["results"][0]["id"], "relevant": True}
            assert service.http.post("/feedback", json=judged).status_code == 202
            until(lambda service=service, own=own: counts(service, SEEN.format("topk")) == 5 * (own + 2))


@pytest.mark.slow
def test_judgement_counts_once_among_replicas(releases: Path, redis: RedisProcess) -> None:
    with (
        FastDriftService(releases, TAUGATE_REDIS_URL=redis.url) as first,
        FastDriftService(releases, TAUGATE_REDIS_URL=redis.url) as second,
    ):
        first.ready()
        second.ready()
        reply = first.http.post("/search", json={"query": "permit", "threshold": -2}).json()
        judged = [
            {"query_id": reply["query_id"], "document_id": result["id"], "relevant": relevant}
            for result, relevant in zip(reply["results"], (True, False, False), strict=False)
        ]

        def told(service: ServiceProcess, judgement: dict) -> str:
            return str(service.http.post("/feedback", json=judgement).json().get("status"))

        until(lambda: told(second, judged[0]) != "None")
        for judgement in judged[1:]:
            assert told(second, judgement) == "accepted"
        assert [told(each, judgement) for each in (first, second) for judgement in judged] == ["repeated"] * 6


def test_forged_replies_in_redis_are_ignored(releases: Path, redis: RedisProcess) -> None:
    with FastDriftService(releases, TAUGATE_REDIS_URL=redis.url) as service:
        (result, *_) = service.ready().http.post("/search", json={"query": "permit", "threshold": -2}).json()["results"]
        until(lambda: [*redis.client.scan_iter("taugate:drift:*:shown:*")])
        (bucket,) = redis.client.scan_iter("taugate:drift:*:shown:*")
        ((_, true),) = redis.client.hgetall(bucket).items()
        behind = np.array([10**6], dtype=np.int32).tobytes() + np.array([0.5], dtype=np.float32).tobytes()
        # The last one could be true.
        for number, (shown, status) in enumerate({b"not one": 404, b"[1]": 404, behind: 404, true: 202}.items()):
            redis.client.hset(bucket, f"{number:032x}", shown)
            judged = {"query_id": f"{number:032x}", "document_id": result["id"], "relevant": True}
            assert service.http.post("/feedback", json=judged).status_code == status


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "queries.jsonl"


@pytest.fixture
def workers(releases: Path, log: Path) -> Iterator[FastDriftService]:
    with FastDriftService(releases, forked=False, TAUGATE_WORKERS="2", TAUGATE_QUERY_LOG=str(log)) as service:
        service.ready()
        until(lambda: service.log().count('"ready"') == 2)
        yield service


@contextmanager
def only(worker: int, service: FastDriftService) -> Iterator[None]:
    """The others stand still, for less time than their supervisor bears."""
    others = [pid for pid in pids(service) if pid != worker]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


def batch(service: FastDriftService, texts: list[str]) -> list[dict]:
    """On one connection of its own."""
    answer = httpx.post(f"http://127.0.0.1:{service.port}/search/batch", json={"queries": texts}, timeout=30)
    return [reply["drift"] for reply in answer.json()["responses"]]


@pytest.mark.slow
def test_workers_raise_alarm_as_one_process(workers: FastDriftService, release: Release, log: Path) -> None:
    needed = queries_until_alarm(release)
    questions = foreign_queries(needed)
    both = pids(workers)
    assert len(both) == 2
    for start in range(0, needed - 1, 64):
        with only(both[start // 64 % 2], workers):
            replies = batch(workers, questions[start : min(start + 64, needed - 1)])
        assert replies == [NO_ALARM] * len(replies)
    until(lambda: count_logged(log) == needed - 1)
    assert set(by_signal(workers, "alarm").values()) == {0}
    assert metrics(workers)["shared"] == 1
    assert batch(workers, questions[-1:]) == [NO_ALARM]
    for worker in both:

        def says_so(worker: int = worker) -> bool:
            with only(worker, workers):
                return SIGNAL in ask(workers, "permit")["drift"]["signals"]

        until(says_so)
    assert by_signal(workers, "alarm")[SIGNAL] == 1
    assert metrics(workers)["blocks_total"] == 1
    assert metrics(workers)["shared"] == 1


@pytest.mark.slow
def test_replacement_workers_take_over_alarm(workers: FastDriftService) -> None:
    for start in range(0, 640, 64):
        batch(workers, foreign_queries(64, first=start))
    # A worker that cannot lock the file in time tells the others with its next update; until then only it knows.
    until(lambda: by_signal(workers, "alarm")[SIGNAL] == 1 and metrics(workers)["shared"] == 1)
    before = pids(workers)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(pids(workers)) == 2 and not {*pids(workers)} & {*before})
    until(lambda: SIGNAL in ask(workers, "permit")["drift"]["signals"])


def test_repeated_queries_raise_no_alarm(releases: Path, tmp_path: Path) -> None:
    log = tmp_path / "queries.jsonl"
    with FastDriftService(releases, TAUGATE_QUERY_LOG=str(log)) as service:
        service.ready()
        for asked in (foreign_queries(1) * 5000, foreign_queries(10, first=1) * 500):
            assert all(drift == NO_ALARM for drift in send(service, asked))
        until(lambda: count_logged(log) == 10_000)
        assert told(service) == NO_ALARM
        assert metrics(service)["blocks_total"] == 0
        assert set(by_signal(service, "alarm").values()) == {0}
        assert all(0 <= evidence < 1e-9 for evidence in by_signal(service, "evidence").values())
        send(service, foreign_queries(500, first=11))
        until(lambda: told(service)["alarm"])
