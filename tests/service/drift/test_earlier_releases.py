"""Judgements of replies from before a promotion: logged with their own release, and left out of drift."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from taugate.data.traffic import learn_from_traffic
from taugate.drift.query_log import LoggedJudgement, read_query_log
from taugate.registry.catalog import find
from taugate.retrieval.documents.store import Document, DocumentStore, DocumentWriter
from taugate.service.drift.watch import _MAX_EARLIER, Feedback
from taugate.service.drift.worker_store import WorkerStore
from taugate.service.errors import Invalid, NotFound
from tests.prometheus_process import until
from tests.release.clones import clone
from tests.service import records
from tests.service.drift.traffic import Reloading, count_logged

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


def judge(feedback: Feedback, document: str) -> bool:
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
    assert judge(first, "first-0")
    second.succeed(first)
    assert judge(second, "first-2")
    third.succeed(second)
    assert not judge(third, "first-0"), "it was judged before the promotion"
    with pytest.raises(Invalid, match="it showed first-2, first-0"):
        judge(third, "third-0")
    taken = [[(each.line.release, each.line.document_id, each.weight) for each in of.take()] for of in (first, second)]
    assert taken == [[("first", "first-0", 1.0)], [("first", "first-2", None)]]
    assert third.take() == []


def test_reply_of_earlier_release_is_forgotten_after_the_window(release: Opener, now: list[float]) -> None:
    first, second = release("first"), release("second")
    remember(first, now[0])
    now[0] += SECONDS - 1
    second.succeed(first)
    assert judge(second, "first-0")
    now[0] += 2
    with pytest.raises(NotFound):
        judge(second, "first-2")
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
