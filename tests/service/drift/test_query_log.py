"""Collecting traffic without a service: histograms, observations, judgements and the query log."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from prometheus_client import CollectorRegistry, Histogram

from taugate.drift.observations import hashed, query_key
from taugate.drift.query_log import LoggedJudgement, LoggedQuery, hashed_filter, read_query_log
from taugate.retrieval.documents.filter_schema import read_filter
from taugate.retrieval.query import Query
from taugate.retrieval.reader import Release
from taugate.service.drift import query_log
from taugate.service.drift.alarms import NO_DRIFT, BulkHistogram, drift_field
from taugate.service.drift.query_log import Judged, QueryLog, ServedReply, forget_old_texts, judgements, observations
from taugate.service.pipeline.record import RANDOM_DOCUMENTS, SearchRecord
from tests.prometheus_process import until
from tests.service.records import record
from tests.service_process import ServiceProcess


def seen(at: float, kept: int = 2, text: str = "a query") -> ServedReply:
    return reply(at, text, record([0.9, 0.5, 0.1, 0.2], kept))


def reply(at: float, text: str, answered: SearchRecord) -> ServedReply:
    return ServedReply(at, f"id{at}", Query(text, 5), None, answered)


def judgement(at: float, query_id: str | None, document_id: str, score: float, **fields: Any) -> LoggedJudgement:
    unset = {"query": None, "relevant": True, "rank": None, "key": None, "collection": "c", "release": "r"}
    return LoggedJudgement(at=at, query_id=query_id, document_id=document_id, score=score, **(unset | fields))


def test_bulk_histogram_counts_as_plain_histogram() -> None:
    values = np.random.default_rng(0).normal(0.5, 0.3, 1000).astype(np.float32)
    bounds = [0.1, 0.5, float(values[3]), 0.9]  # one that is equal to a bound
    registries = CollectorRegistry(), CollectorRegistry()
    bulk = BulkHistogram("h", "h", ["set"], buckets=bounds, registry=registries[0])
    plain = Histogram("h", "h", ["set"], buckets=bounds, registry=registries[1])
    bulk.labels("a").observe_all(values[:300].reshape(100, 3))
    bulk.labels("a").observe_all(values[300:])
    for value in values.tolist():
        plain.labels("a").observe(value)
    mine, theirs = (
        {(sample.name, sample.labels.get("le")): sample.value for family in each.collect() for sample in family.samples}
        for each in registries
    )
    mine.pop(("h_created", None), None)
    theirs.pop(("h_created", None), None)
    assert mine == pytest.approx(theirs, rel=1e-6)


def test_only_comparable_replies_become_observations() -> None:
    within_a_filter = reply(1.0, "q", record([]))
    cut_short = reply(1.5, "q", record([0.9]))
    complete = seen(2.0, kept=1)
    assert observations([within_a_filter, complete, cut_short], 2, 2).at.tolist() == [complete.at]
    columns = observations([seen(5.0), seen(3.0)], 2, 2)
    assert columns.at.tolist() == [5.0, 5.0]  # a clock that was set back
    assert columns.kept.tolist() == [2, 2]
    assert columns.top.tolist() == [[np.float32(0.9), 0.5]] * 2
    assert columns.random.shape == (2, 2)


def test_query_keys_differ_by_text() -> None:
    texts = ["one", "two", "one", "One", "one ", "två", "two"]
    keys = observations([seen(float(at), text=text) for at, text in enumerate(texts)], 2, 2).key
    assert keys.dtype == np.uint64
    assert keys[0] == keys[2]
    assert keys[1] == keys[6]
    assert len({*keys.tolist()}) == 5


def test_only_counted_judgements_become_columns() -> None:
    told = (
        judgement(1.0, "a", "d1", 0.9),
        judgement(2.0, "a", "d2", 0.8),
        judgement(3.0, "b", "d3", 0.7, relevant=False),
    )
    judged = zip(told, (5, 5, 6), (1.0, 20.0, None), (True, None, False), strict=True)
    correct, replies = judgements([Judged(*each) for each in judged])
    assert (correct.key.tolist(), correct.weight.tolist()) == ([5, 5], [1.0, 20.0])
    assert correct.correct.tolist() == [np.float32(0.9), np.float32(0.8)]
    assert (replies.at.tolist(), replies.key.tolist(), replies.relevant.tolist()) == ([1.0, 3.0], [5, 6], [1.0, 0.0])
    assert [*map(len, judgements([]))] == [0, 0]


def test_reply_json_fills_in_placeholders() -> None:
    answered = replace(record([]), body=b'{"results":[],"release":"r","drift":\x01,"query_id":"\x00"}')
    first, second = (
        orjson.loads(answered.to_json("f" * 32, drift)) for drift in (NO_DRIFT, drift_field(["roe", "canary"]))
    )
    assert first == {"results": [], "release": "r", "drift": {"alarm": False, "signals": []}, "query_id": "f" * 32}
    assert second == first | {"drift": {"alarm": True, "signals": ["roe", "canary"]}}


def logged(path: Path) -> list[LoggedQuery | LoggedJudgement]:
    return [line.record for line in read_query_log([path])]


def asked(release: Release, at: float, query: Query, key: str | None = None) -> ServedReply:
    """A query as the service answers it, on its way to the log."""
    (answer,) = release.retriever.search([query])
    answered = SearchRecord.of(query, answer, np.zeros(RANDOM_DOCUMENTS, np.float32), b"{}")
    return ServedReply(at, f"id{at}", query, key, answered)


@pytest.mark.parametrize("texts", [True, False])
def test_query_log_records_request_and_results(release: Release, tmp_path: Path, texts: bool) -> None:
    log = QueryLog(tmp_path / "queries.jsonl", release, texts=texts)
    plain, within = Query("What does a permit cost?", 5), {"category": ["a", "b"]}
    narrow = Query("What does a permit cost?", 2, threshold=-1.0, filter=read_filter(within), group_by="document")
    log.write([asked(release, 1.0, plain, "shop"), asked(release, 2.0, narrow)], [])
    first, second = logged(tmp_path / "queries.jsonl")
    assert isinstance(first, LoggedQuery)
    assert isinstance(second, LoggedQuery)
    (answer,) = release.retriever.search([plain])
    assert answer.uncut is not None
    assert (first.at, first.query_id, first.key, first.k, first.kept) == (1.0, "id1.0", "shop", 5, answer.uncut_kept)
    assert (first.release, first.collection) == (release.manifest.release_id, release.manifest.data.name)
    assert first.topk == answer.uncut.tolist()
    assert len(first.random) == RANDOM_DOCUMENTS
    assert [each.id for each in first.shown] == [release.documents[each].id for each in answer.positions.tolist()]
    assert [(each.rank, each.score) for each in first.shown] == list(
        zip(answer.ranks.tolist(), answer.scores.tolist(), strict=True)
    )
    assert {each.propensity for each in first.shown} <= {1.0}
    assert (first.filter, first.threshold, first.group_by, first.not_comparable) == (None,) * 4
    assert (second.threshold, second.group_by, second.k, second.not_comparable) == (-1.0, "document", 2, "filtered")
    assert second.filter == (within if texts else hashed_filter(within))
    assert (first.query == plain.text) is first.has_text is texts
    assert first.query_key == second.query_key == query_key(plain.text)
    written = (tmp_path / "queries.jsonl").read_text()
    assert ("permit" in written and "category" in written) is texts


def test_query_log_records_judgements(release: Release, tmp_path: Path) -> None:
    log = QueryLog(tmp_path / "queries.jsonl", release, texts=True)
    judged = [
        judgement(3.5, "id1", "d1", 0.5),
        judgement(4.5, "id1", "d2", 0.25, relevant=False, key="shop"),
        judgement(5.5, None, "d2", 0.25, query="What does a permit cost?", rank=2),
    ]
    log.write([], [Judged(line, 7, None, None) for line in judged])
    first, second, third = logged(tmp_path / "queries.jsonl")
    assert isinstance(first, LoggedJudgement)
    assert isinstance(second, LoggedJudgement)
    assert isinstance(third, LoggedJudgement)
    assert (third.query_id, third.query, third.rank) == (None, "What does a permit cost?", 2)
    assert (first.query_id, first.query, first.rank) == ("id1", None, None)
    assert (first.query_id, first.document_id, first.relevant, first.score, first.key) == ("id1", "d1", True, 0.5, None)
    assert (second.document_id, second.relevant, second.score, second.key) == ("d2", False, 0.25, "shop")


def test_moved_query_log_is_created_again(release: Release, tmp_path: Path) -> None:
    log = QueryLog(tmp_path / "queries.jsonl", release, texts=False)
    log.write([seen(1.0), seen(2.0)], [])
    (tmp_path / "queries.jsonl").rename(tmp_path / "rotated")
    log.write([seen(3.0)], [])
    assert [line.at for name in ("rotated", "queries.jsonl") for line in logged(tmp_path / name)] == [1.0, 2.0, 3.0]


def test_unwritable_query_log_is_reported_once(
    release: Release, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "logs"
    log = QueryLog(folder / "queries.jsonl", release, texts=False)
    for _ in range(3):
        log.write([seen(1.0)], [])
        log.write([], [])
    assert [record.message for record in caplog.records] == ["cannot write the query log"]
    folder.mkdir()
    log.write([seen(1.0)], [])
    assert len((folder / "queries.jsonl").read_bytes().splitlines()) == 1


DAY = 86400.0
NOW = 100 * DAY
HOUR = 3600.0


def line(at: float, query: str, query_filter: object = None) -> bytes:
    return orjson.dumps({"v": 2, "at": at, "query": query, "filter": query_filter, "release": "r"}) + b"\n"


def served(at: float, text: str) -> ServedReply:
    return ServedReply(at, "a" * 32, Query(text, 5), None, record([]))


def test_old_texts_are_hashed(tmp_path: Path) -> None:
    log, query_filter = tmp_path / "log", {"patient": "Ada"}
    recent, torn = line(NOW - 2 * DAY, "recent", query_filter), b'{"at": 5, "quer'
    log.write_bytes(line(NOW - 8 * DAY, "old", query_filter) + line(NOW - 9 * DAY, hashed("older")) + recent + torn)
    log.chmod(0o640)
    assert forget_old_texts(log, 7, NOW) == 1
    assert log.read_bytes() == (
        line(NOW - 8 * DAY, hashed("old"), hashed_filter(query_filter))
        + line(NOW - 9 * DAY, hashed("older"))
        + recent
        + torn
    )
    assert log.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == [".log.texts", "log"]


def test_old_texts_are_hashed_once_an_hour(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(line(1.0, "old"))
    assert forget_old_texts(log, 7, NOW) == 1
    log.write_bytes(line(1.0, "old"))
    assert forget_old_texts(log, 7, NOW + HOUR - 1) == 0
    assert forget_old_texts(log, 7, NOW + HOUR) == 1


def test_log_without_old_texts_is_unchanged(tmp_path: Path) -> None:
    assert forget_old_texts(tmp_path / "nothing", 7, NOW) == 0
    os.mkfifo(tmp_path / "pipe")
    assert forget_old_texts(tmp_path / "pipe", 7, NOW) == 0
    log = tmp_path / "log"
    log.write_bytes(line(NOW, "recent"))
    before = log.stat().st_ino
    assert forget_old_texts(log, 7, NOW) == 0
    assert log.stat().st_ino == before


def test_leftover_copy_is_deleted(tmp_path: Path) -> None:
    log, left = tmp_path / "log", tmp_path / ".log.copy"
    log.write_bytes(line(NOW, "recent"))
    left.write_bytes(line(1.0, "a text that nobody would look for"))
    assert forget_old_texts(log, 7, NOW) == 0
    assert not left.exists()


@pytest.mark.parametrize("how", ["cut", "cut and written to", "moved away"])
def test_log_rotated_during_copy_is_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """logrotate cuts a log (copytruncate) or moves it away, while its lines are copied."""
    log, recent = tmp_path / "log", line(NOW, "recent")
    log.write_bytes(b"".join(line(1.0, f"old {number}") for number in range(10_000)))
    expected = b"" if how == "cut" else recent

    def rotate(query: str) -> str:
        if query == "old 0":
            if how == "moved away":
                log.rename(tmp_path / "log.1")
            else:
                os.truncate(log, 0)
            with log.open("ab") as file:
                file.write(expected)
        return hashed(query)

    monkeypatch.setattr(query_log, "hashed", rotate)
    assert forget_old_texts(log, 7, NOW) == 0
    assert log.read_bytes() == expected


@pytest.mark.slow
def test_concurrent_writers_lose_no_line(release: Release, tmp_path: Path) -> None:
    path = tmp_path / "log"
    done = threading.Event()
    written = [0, 0]

    def write(number: int) -> None:
        log = QueryLog(path, release, texts=True)
        while not done.is_set():
            log.write([served(1.0, f"{number} {written[number]}")], [])
            written[number] += 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    hours = 0
    changed = 0
    until_then = time.monotonic() + 3
    while hours < 4 or time.monotonic() < until_then:  # a busy machine gets through few rounds in three seconds
        changed += forget_old_texts(path, 1, NOW + hours * HOUR)
        hours += 1
    done.set()
    for thread in threads:
        thread.join()
    changed += forget_old_texts(path, 1, NOW + hours * HOUR)
    texts = [orjson.loads(each)["query"] for each in path.read_bytes().splitlines()]
    assert sorted(texts) == sorted(hashed(f"{n} {each}") for n in range(2) for each in range(written[n]))
    assert changed == len(texts) > 100
    assert hours > 3


def test_service_hashes_old_texts(releases: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(line(time.time() - 2 * DAY, "an old question") + line(time.time(), "a recent question"))
    settings = {"TAUGATE_QUERY_LOG": str(log), "TAUGATE_QUERY_LOG_TEXTS": "true", "TAUGATE_QUERY_LOG_DAYS": "1"}
    with ServiceProcess(releases, **settings).ready() as service:
        until(lambda: "an old question" not in log.read_text())
        until(lambda: "replaced old texts in the query log by hashes" in service.log())
    assert "a recent question" in log.read_text()
