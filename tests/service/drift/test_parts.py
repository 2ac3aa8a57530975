"""The parts of the watch that need no service: what is remembered, counted and written."""

from pathlib import Path

import numpy as np
import orjson
import pytest
from prometheus_client import CollectorRegistry, Histogram

from taugate.service.drift.alarms import NO_DRIFT, drift_field
from taugate.service.drift.gauges import BulkHistogram
from taugate.service.drift.query_log import (
    PositiveFeedback,
    QueryLog,
    ServedReply,
    comparable,
    judgements,
    observations,
)
from taugate.service.pipeline.reply import Reply


def seen(at: float, kept: int = 2, text: str = "a query") -> ServedReply:
    observed = np.array([kept, 0.9, 0.5, 0.1, 0.2], dtype=np.float32).tobytes()
    return ServedReply(at, f"id{at}", text, observed, b"")


def test_many_values_count_as_one_after_the_other() -> None:
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


def test_only_what_can_be_compared_becomes_a_row() -> None:
    within_a_filter = ServedReply(1.0, "x", "q", b"", b"")
    cut_short = ServedReply(1.0, "y", "q", b"1234", b"")
    whole = seen(2.0, kept=1)
    assert comparable([within_a_filter, whole, cut_short], 2, 2) == [whole]
    columns = observations([seen(5.0), seen(3.0)], 2, 2)
    assert columns.at.tolist() == [5.0, 5.0]  # a clock that was set back
    assert columns.kept.tolist() == [2, 2]
    assert columns.top.tolist() == [[np.float32(0.9), 0.5]] * 2
    assert columns.random.shape == (2, 2)


def test_the_same_query_has_the_same_key_and_another_another() -> None:
    texts = ["one", "two", "one", "One", "one ", "två", "two"]
    keys = observations([seen(float(at), text=text) for at, text in enumerate(texts)], 2, 2).key
    assert keys.dtype == np.uint64
    assert keys[0] == keys[2]
    assert keys[1] == keys[6]
    assert len({*keys.tolist()}) == 5


def test_the_same_judgement_has_the_same_key_whoever_gave_it() -> None:
    """Of the same query, that is: its similarity with the document tells it from others."""
    told = [("a", "d1", 0.9), ("b", "d1", 0.9), ("a", "d2", 0.9), ("a", "d1", 0.8)]
    columns = judgements([PositiveFeedback(float(at), *each) for at, each in enumerate(told)])
    assert columns.key[0] == columns.key[1]
    assert len({*columns.key.tolist()}) == 3
    assert columns.correct.tolist() == [np.float32(each) for _, _, each in told]
    assert len(judgements([])) == len(judgements([]).key) == 0


def test_what_is_sent_has_what_is_kept_and_what_is_known_by_now() -> None:
    reply = Reply(b'{"results":[],"release":"r"', 0, 2, None, b"", b"")
    first, second = (
        orjson.loads(reply.to_json("f" * 32, drift)) for drift in (NO_DRIFT, drift_field(["roe", "canary"]))
    )
    assert first == {
        "results": [],
        "release": "r",
        "drift": {"alarm": False, "signals": []},
        "query_id": "f" * 32,
    }
    assert second == first | {"drift": {"alarm": True, "signals": ["roe", "canary"]}}


@pytest.mark.parametrize("texts", [True, False])
def test_the_log_holds_what_a_replay_needs_and_no_text_unless_asked(tmp_path: Path, texts: bool) -> None:
    log = QueryLog(tmp_path / "queries.jsonl", "release", texts=texts)
    rows = [seen(1.0), seen(2.0, kept=0, text="another"), seen(3.0)]
    log.write(rows[:2], observations(rows[:2], 2, 2), [])
    (tmp_path / "queries.jsonl").rename(tmp_path / "rotated")
    log.write(rows[2:], observations(rows[2:], 2, 2), [PositiveFeedback(3.5, "id1.0", "d1", 0.9)])
    first, second = (
        [orjson.loads(line) for line in (tmp_path / name).read_bytes().splitlines()]
        for name in ("rotated", "queries.jsonl")
    )
    assert [line["at"] for line in first + second] == [1.0, 2.0, 3.0, 3.5]
    assert (first[1]["kept"], first[1]["topk"], first[1]["release"]) == (0, pytest.approx([0.9, 0.5]), "release")
    assert second[1] == {"at": 3.5, "query_id": "id1.0", "document_id": "d1", "correct": 0.9, "release": "release"}
    assert (first[0]["query"] == "a query") is texts
    assert first[0]["query"] == second[0]["query"] != first[1]["query"]


def test_a_log_that_cannot_be_written_is_said_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "logs"
    log = QueryLog(folder / "queries.jsonl", "release", texts=False)
    rows = [seen(1.0)]
    for _ in range(3):
        log.write(rows, observations(rows, 2, 2), [])
    assert [record.message for record in caplog.records] == ["the query log cannot be written"]
    folder.mkdir()
    log.write(rows, observations(rows, 2, 2), [])
    assert len((folder / "queries.jsonl").read_bytes().splitlines()) == 1
