"""Judgements: of clients, of replies by earlier releases, and found again by every worker."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import numpy as np
import pytest

from taugate.data.traffic import learn_from_traffic
from taugate.drift.query_log import LoggedJudgement, read_query_log
from taugate.registry.catalog import find
from taugate.retrieval.documents.store import Document, DocumentStore, DocumentWriter
from taugate.retrieval.query import NotComparable
from taugate.service.drift import worker_store as module
from taugate.service.drift.watch import _MAX_EARLIER, Feedback
from taugate.service.drift.worker_store import FILE, WorkerStore
from taugate.service.errors import Invalid, NotFound
from taugate.service.pipeline.record import ShownReply
from tests.prometheus_process import until
from tests.release.clones import clone
from tests.service import records
from tests.service.drift.processes import InFile
from tests.service.drift.traffic import Reloading, count_logged
from tests.service_process import ServiceProcess, by_label

QUERY = {"query": "What does a building permit cost?", "threshold": -2.0, "k": 3}


@pytest.fixture
def reply(service: ServiceProcess) -> dict:
    return service.http.post("/search", json=QUERY).json()


def judge(service: ServiceProcess, query_id: object, document_id: object, relevant: object = True) -> tuple[int, dict]:
    body = {"query_id": query_id, "document_id": document_id, "relevant": relevant}
    response = service.http.post("/feedback", json=body)
    return response.status_code, response.json()


def test_repeated_judgement_is_not_counted(service: ServiceProcess, reply: dict) -> None:
    document = reply["results"][0]["id"]
    assert judge(service, reply["query_id"], document) == (202, {"status": "accepted"})
    assert judge(service, reply["query_id"], document) == (202, {"status": "repeated"})


def test_results_of_one_reply_are_judged_separately(service: ServiceProcess, reply: dict) -> None:
    first, second, third = (result["id"] for result in reply["results"])
    assert judge(service, reply["query_id"], third, relevant=False) == (202, {"status": "accepted"})
    assert judge(service, reply["query_id"], third, relevant=False) == (202, {"status": "repeated"})
    assert judge(service, reply["query_id"], first) == (202, {"status": "accepted"})
    assert judge(service, reply["query_id"], second) == (202, {"status": "accepted"})
    assert judge(service, reply["query_id"], second, relevant=False) == (202, {"status": "accepted"})


def test_cached_reply_has_own_query_id(service: ServiceProcess, reply: dict) -> None:
    again = service.http.post("/search", json=QUERY).json()
    assert again["query_id"] != reply["query_id"]
    assert judge(service, again["query_id"], again["results"][0]["id"]) == (202, {"status": "accepted"})


def test_batch_reply_can_be_judged(service: ServiceProcess) -> None:
    (reply,) = service.http.post("/search/batch", json={"queries": [QUERY]}).json()["responses"]
    assert judge(service, reply["query_id"], reply["results"][0]["id"]) == (202, {"status": "accepted"})


def test_unknown_query_id_is_404(service: ServiceProcess) -> None:
    status, body = judge(service, "0" * 32, "d1")
    assert (status, body["error"]["code"]) == (404, "not_found")
    assert "feedback_seconds of TAUGATE_DRIFT" in body["error"]["message"]


def test_document_not_shown_is_422(service: ServiceProcess, reply: dict) -> None:
    status, body = judge(service, reply["query_id"], "elsewhere")
    assert (status, body["error"]["code"]) == (422, "invalid")
    assert reply["results"][0]["id"] in body["error"]["message"]


def test_empty_reply_cannot_be_judged(service: ServiceProcess) -> None:
    reply = service.http.post("/search", json=QUERY | {"threshold": 2.0}).json()
    status, body = judge(service, reply["query_id"], "d1")
    assert (status, body["error"]["message"]) == (422, "document_id: the reply did not show it; it showed nothing")


@pytest.mark.parametrize(
    ("field", "value"), [("query_id", ""), ("query_id", "x" * 65), ("document_id", 5), ("relevant", "yes")]
)
def test_malformed_field_is_422(service: ServiceProcess, reply: dict, field: str, value: object) -> None:
    body = {"query_id": reply["query_id"], "document_id": reply["results"][0]["id"], "relevant": True}
    response = service.http.post("/feedback", json=body | {field: value})
    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid")
    assert field in response.json()["error"]["message"]


def test_feedback_metric_counts_outcomes(service: ServiceProcess, reply: dict) -> None:
    def counts() -> dict[str, float]:
        return by_label(service.metrics(), "taugate_feedback_total")

    before = counts()
    for _ in range(2):
        judge(service, reply["query_id"], reply["results"][0]["id"])
    judge(service, reply["query_id"], reply["results"][1]["id"], relevant=False)
    judge(service, "nobody", "d1")
    moved = {name: value - before.get(name, 0) for name, value in counts().items()}
    assert moved == {"relevant": 1, "repeated": 1, "irrelevant": 1, "unknown": 1}


def judge_query(service: ServiceProcess, query: str, document_id: str, relevant: bool = True) -> tuple[int, dict]:
    body = {"query": query, "document_id": document_id, "relevant": relevant}
    response = service.http.post("/feedback", json=body)
    return response.status_code, response.json()


def test_query_text_can_be_judged(service: ServiceProcess) -> None:
    title = service.http.post("/search", json=QUERY).json()["results"][0]
    query = f"{title['title'] or ''} {title['text']}"[:300]  # which finds its own document
    (document, *_) = (each["id"] for each in service.http.post("/search", json={"query": query}).json()["results"])
    before = observed(service)
    assert judge_query(service, query, document) == (202, {"status": "accepted"})
    assert judge_query(service, query, document) == (202, {"status": "repeated"})
    status, body = judge_query(service, query, "elsewhere")
    assert (status, body["error"]["code"]) == (422, "invalid")
    assert body["error"]["message"].startswith("document_id: a search for this query does not show it; it shows ")
    assert document in body["error"]["message"]
    assert observed(service) == before, "feedback is no traffic"


def test_judged_new_query_is_searched_for(service: ServiceProcess) -> None:
    query = f"a permit for {time.time_ns()}"
    status, body = judge_query(service, query, "elsewhere")
    assert status == 422
    shown = [each["id"] for each in service.http.post("/search", json={"query": query}).json()["results"]]
    assert body["error"]["message"].endswith(f"it shows {', '.join(shown) or 'nothing'}")


def observed(service: ServiceProcess) -> list[str]:
    """Metrics that count searches and their results."""
    counted = ("taugate_results_total", "taugate_empty_responses_total")
    return [line for line in service.http.get("/metrics").text.splitlines() if line.startswith(counted)]


@pytest.mark.parametrize("given", [{}, {"query_id": "0" * 32, "query": "a permit"}, {"query_id": None, "query": None}])
def test_judgement_needs_query_id_or_query(service: ServiceProcess, given: dict) -> None:
    response = service.http.post("/feedback", json=given | {"document_id": "d1", "relevant": True})
    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid")
    assert "give either query_id or query" in response.json()["error"]["message"]


def test_judged_query_over_limit_is_422(service: ServiceProcess) -> None:
    status, body = judge_query(service, "permit " * 2000, "d1")
    assert (status, body["error"]["code"]) == (422, "invalid")
    assert "TAUGATE_MAX_QUERY_CHARS" in body["error"]["message"]


REPLY, SECONDS = "a" * 32, 60.0
Opener = Callable[[str], Feedback]


@pytest.fixture
def release(tmp_path: Path) -> Opener:
    """Opens the feedback of a release whose documents are named after it."""

    def opened(name: str) -> Feedback:
        folder = tmp_path / name
        folder.mkdir()
        writer = DocumentWriter(folder)
        for number in range(3):
            writer.append(Document(f"{name}-{number}", "text"))
        writer.close()
        manifest = SimpleNamespace(release_id=name, data=SimpleNamespace(name="sample"), max_score=1.0)
        watched = SimpleNamespace(documents=DocumentStore(folder), manifest=manifest)
        return Feedback(WorkerStore(None, name, SECONDS), None, watched, SECONDS, lambda: asyncio.sleep(0))  # type: ignore[arg-type]

    return opened


def remember(feedback: Feedback, at: float) -> None:
    for store in feedback._stores:
        store.remember(at, {REPLY: records.packed([2, 0])})


def judge_earlier_releases(feedback: Feedback, document: str) -> bool:
    async def judged() -> bool:
        taking, shown = await feedback.find(REPLY)
        return await taking.judge(REPLY, shown, document, relevant=True)

    return asyncio.run(judged())


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [1000.0]
    monkeypatch.setattr("time.time", lambda: moment[0])
    monkeypatch.setattr("time.monotonic", lambda: moment[0])
    monkeypatch.setattr("taugate.service.drift.watch.STORE_SECONDS", 0.0)
    return moment


def test_judgement_of_earlier_release_is_logged_with_it(release: Opener, now: list[float]) -> None:
    first, second, third = map(release, ("first", "second", "third"))
    remember(first, now[0])
    assert judge_earlier_releases(first, "first-0")
    second.succeed(first)
    assert judge_earlier_releases(second, "first-2")
    third.succeed(second)
    assert not judge_earlier_releases(third, "first-0"), "it was judged before the promotion"
    with pytest.raises(Invalid, match="it showed first-2, first-0"):
        judge_earlier_releases(third, "third-0")
    taken = [[(each.line.release, each.line.document_id, each.weight) for each in of.take()] for of in (first, second)]
    assert taken == [[("first", "first-0", 1.0)], [("first", "first-2", None)]]
    assert third.take() == []


def test_reply_of_earlier_release_is_forgotten_after_the_window(release: Opener, now: list[float]) -> None:
    first, second = release("first"), release("second")
    remember(first, now[0])
    now[0] += SECONDS - 1
    second.succeed(first)
    assert judge_earlier_releases(second, "first-0")
    now[0] += 2
    with pytest.raises(NotFound):
        judge_earlier_releases(second, "first-2")
    assert second.drop_expired() == []
    now[0] += SECONDS
    assert second.drop_expired() == [first]
    assert second.drop_expired() == []


def test_number_of_earlier_releases_is_bounded(release: Opener, now: list[float]) -> None:
    last = release("0")
    for number in range(1, _MAX_EARLIER + 3):
        following = release(str(number))
        following.succeed(last)
        last = following
    assert [each._manifest.release_id for each in last.drop_expired()] == ["1", "0"]


def test_reply_can_be_judged_after_a_promotion(releases: Path, sample: Path, tmp_path: Path) -> None:
    folder, log = shutil.copytree(releases, tmp_path / "releases"), tmp_path / "queries.jsonl"
    first, second = find(folder).name, clone(find(folder), minute=0)
    keys = {"TAUGATE_QUERY_LOG": str(log), "TAUGATE_QUERY_LOG_TEXTS": "true"}
    with Reloading(folder, **keys) as service:
        reply = service.ready().search(
            DocumentStore(find(folder))[0].encoded_text[:300]
        )  # which finds its own document
        body = {"query_id": reply["query_id"], "document_id": reply["results"][0]["id"], "relevant": True}
        assert service.reload(second) == "loaded"
        statuses = [service.http.post("/feedback", json=body).json() for _ in range(2)]
        assert statuses == [{"status": "accepted"}, {"status": "repeated"}]
        until(lambda: count_logged(log) == 2)
        assert 'taugate_feedback_total{outcome="relevant"} 1.0' in service.http.get("/metrics").text
        assert 'taugate_overlap_compared_total{set="correct"} 0.0' in service.http.get("/metrics").text
    (judgement,) = (line.record for line in read_query_log([log]) if isinstance(line.record, LoggedJudgement))
    assert (judgement.release, judgement.query_id) == (first, reply["query_id"])
    data = shutil.copytree(sample, tmp_path / sample.name)
    learned = learn_from_traffic([log], data, collection=judgement.collection, votes=1)
    assert (learned.judgements, learned.left_out.total()) == (1, 0)


RELEASE, SECONDS_WORKER_STORE = "20260101T000000Z-0123456789ab", 10.0
Opener_worker_store = Callable[[], WorkerStore]


@pytest.fixture(params=["alone", "in workers"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener_worker_store:
    return lambda: WorkerStore(tmp_path if request.param == "in workers" else None, RELEASE, SECONDS_WORKER_STORE)


@pytest.mark.parametrize("results", [0, 1, 5, 100])
def test_reply_of_any_length_is_remembered(opened: Opener_worker_store, results: int) -> None:
    store, query_id = opened(), uuid4().hex
    shown = records.packed([*range(1000, 1000 + results)])
    store.remember(1.0, {uuid4().hex: records.packed([1, 2]), query_id: shown})
    assert store.find(query_id, 2.0) == shown
    for unknown in (uuid4().hex, query_id[:16], ""):
        assert store.find(unknown, 2.0) is None


def test_old_reply_is_forgotten(opened: Opener_worker_store) -> None:
    store, query_id = opened(), uuid4().hex
    store.remember(5.0, {query_id: records.packed([1])})
    assert store.find(query_id, 15.0) is not None
    assert store.find(query_id, 15.1) is None


def test_oldest_replies_and_judgements_are_deleted(
    opened: Opener_worker_store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_ROWS", 30)
    monkeypatch.setattr(module, "_MAX_ROWS_IN_MEMORY", 30)
    store, ids = opened(), [uuid4().hex for _ in range(50)]
    for start in range(0, 50, 10):
        store.remember(1.0, {query_id: records.packed([1]) for query_id in ids[start : start + 10]})
    assert [store.find(query_id, 2.0) is not None for query_id in ids] == [False] * 20 + [True] * 30
    assert all(store.count(query_id) == 1 for query_id in ids)
    assert [store.count(query_id) for query_id in reversed(ids)] == [2] * 30 + [1] * 20


def test_workers_count_together_until_it_expires(tmp_path: Path) -> None:
    workers = [WorkerStore(tmp_path, RELEASE, SECONDS_WORKER_STORE) for _ in range(3)]
    assert [worker.count("a:1+") for worker in workers] == [1, 2, 3]
    assert WorkerStore(tmp_path, RELEASE, -1.0).count("a:1+") == 1


def test_workers_read_each_others_replies(tmp_path: Path) -> None:
    workers = [WorkerStore(tmp_path, RELEASE, SECONDS_WORKER_STORE) for _ in range(3)]
    elsewhere = WorkerStore(tmp_path, RELEASE.replace("2026", "2027"), SECONDS_WORKER_STORE)
    ids = [uuid4().hex for _ in workers]
    for worker, query_id in zip(workers, ids, strict=True):
        worker.remember(1.0, {query_id: records.packed([4, 5])})
    for query_id in ids:
        assert all(worker.find(query_id, 2.0) is not None for worker in workers)
        assert elsewhere.find(query_id, 2.0) is None
    workers[0].close()
    assert workers[0].find(ids[0], 2.0) is None
    assert workers[1].find(ids[0], 2.0) is not None
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_replies_of_killed_worker_are_found(tmp_path: Path) -> None:
    stored = records.packed([7]).hex()
    program = f"""
import sys, itertools
from pathlib import Path
from taugate.service.drift.worker_store import WorkerStore
store = WorkerStore(Path({str(tmp_path)!r}), {RELEASE!r}, {SECONDS_WORKER_STORE})
for number in itertools.count():
    store.remember(1.0, {{f"{{sys.argv[1]:0>16}}{{number:016}}": bytes.fromhex({stored!r})}})
    print(number, flush=True)
"""
    for start in range(5):
        with subprocess.Popen([sys.executable, "-c", program, str(start)], stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            while worker.stdout.readline() != f"{3 + start}\n":
                pass
            os.kill(worker.pid, signal.SIGKILL)
        after = WorkerStore(tmp_path, RELEASE, SECONDS_WORKER_STORE)
        assert all(after.find(f"{start:016}{number:016}", 2.0) is not None for number in range(3 + start)), start
        assert after.shared


def test_worker_without_usable_file_continues_alone(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    one, other = (WorkerStore(tmp_path, RELEASE, SECONDS_WORKER_STORE) for _ in range(2))
    query_id = uuid4().hex
    one.remember(1.0, {query_id: records.packed([1])})
    assert one.find(query_id, 2.0) is not None
    assert other.find(query_id, 2.0) is None
    assert not one.shared
    assert [one.count("a"), one.count("a")] == [1, 2]


def test_file_that_becomes_unusable_is_left(tmp_path: Path) -> None:
    one = WorkerStore(tmp_path, RELEASE, SECONDS_WORKER_STORE)
    one.remember(1.0, {uuid4().hex: records.packed([1])})
    (tmp_path / FILE).write_bytes(b"no database" * 10_000)
    query_id = uuid4().hex
    one.remember(1.0, {query_id: records.packed([1])})
    assert one.find(query_id, 2.0) is not None
    assert not one.shared
    assert not one.change("state", lambda state: b"new"), "no other worker sees it"


def test_locked_file_delays_no_worker_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUSY_SECONDS", 0.05)
    one, query_id = WorkerStore(tmp_path, RELEASE, SECONDS_WORKER_STORE), uuid4().hex
    with closing(InFile(tmp_path).open()) as other:
        other.execute("BEGIN IMMEDIATE")
        assert one.find(query_id, 2.0) is None
        assert one.count("a") == 1
        assert not one.change("state", lambda state: b"new")
    assert one.shared
    assert one.change("state", lambda state: b"new")


GOOD = records.packed([1])
STRANGE = {
    "half a number": b"abc",
    "a result too many": GOOD + bytes(4),
    "behind the last": records.packed([10]),
    "before the first": records.packed([-1]),
    "one twice": records.packed([1, 1]),
    "no similarity": GOOD.replace(np.float32(0.9).tobytes(), np.float32(np.nan).tobytes()),
    "a counter": GOOD.replace(np.float32(0.9).tobytes(), np.float32(1e19).tobytes()),
    "no probability": GOOD.replace(np.float32(1).tobytes(), np.float32(0).tobytes()),
    "another reason": GOOD[:8] + b"\xff" + GOOD[9:],
}


@pytest.mark.parametrize("content", STRANGE.values(), ids=STRANGE.keys())
def test_invalid_shown_results_are_refused(content: bytes) -> None:
    assert ShownReply.read(records.packed([9, 0, 3]), 10, 1.0).results["position"].tolist() == [9, 0, 3]
    with pytest.raises(ValueError):
        ShownReply.read(content, 10, 1.0)


def test_packed_reply_is_read_again() -> None:
    for stage in ("first", "second", None):
        for reason in (None, *NotComparable):
            reply = records.shown([3, 1], key=2**64 - 1, stage=stage, not_comparable=reason)
            read = ShownReply.read(reply.pack(), 10, 1.0)
            assert read.results.tolist() == reply.results.tolist()
            assert read[1:] == reply[1:]
