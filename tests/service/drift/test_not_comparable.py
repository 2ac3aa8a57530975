"""Judged replies of every kind that cannot be compared with the calibration: no reader takes them for one that can."""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.replay import read_log
from taugate.data.traffic import NothingLearnedError, learn_from_traffic
from taugate.drift.query_log import LoggedJudgement, LoggedQuery, read_query_log
from taugate.retrieval.documents.filter_schema import read_filter
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import Document
from taugate.retrieval.explanation import explain
from taugate.retrieval.query import NotComparable, Query
from taugate.retrieval.reader import Release
from taugate.retrieval.rerank.stage import SecondStage, SecondStageRule
from taugate.retrieval.retriever import Retriever
from taugate.service.drift.query_log import Judged, QueryLog, ServedReply, judgements, observations
from taugate.service.drift.watch import Feedback
from taugate.service.drift.worker_store import WorkerStore
from taugate.service.pipeline.record import RANDOM_DOCUMENTS, SearchRecord, ShownReply, search_fields
from tests.service.api.test_queries_not_read_whole import LONG, UNREADABLE

K = 5
PLAIN = Query("What does a building permit cost?", K)
SELECTED = {NotComparable.THRESHOLD, NotComparable.K, NotComparable.GROUPED}  # of comparable scores
KINDS: dict[NotComparable, Query] = {
    NotComparable.UNREADABLE: replace(PLAIN, text=UNREADABLE, min_results=K),
    NotComparable.TRUNCATED: replace(PLAIN, text=LONG),
    NotComparable.FILTERED: replace(PLAIN, filter=read_filter({"part": "a"})),
    NotComparable.VECTOR: replace(PLAIN, vector=np.eye(1, 128, dtype=np.float32).tobytes()),
    NotComparable.PRECISION: PLAIN,
    NotComparable.FALLBACK: PLAIN,
    NotComparable.THRESHOLD: replace(PLAIN, threshold=-1.0),
    NotComparable.K: replace(PLAIN, k=4 * K),
    NotComparable.GROUPED: replace(PLAIN, group_by="document"),
}


@pytest.fixture
def retriever(release: Release) -> Retriever:
    """The sample's, which keeps every result."""
    documents = len(release.documents)
    return replace(
        release.retriever,
        policy=replace(release.retriever.policy, tau=-2.0),
        abstention=None,
        metadata=Metadata.of([Document(str(number), "text", None, {"part": "a"}) for number in range(documents)]),
        parents=np.arange(documents, dtype=np.int32),
    )


def unavailable(release: Release, retriever: Retriever) -> SecondStage:
    rule = SecondStageRule(20, retriever.policy, None, None)
    second = SecondStage(rule, Silent(), release.documents)  # type: ignore[arg-type]  # it is not asked
    second.pause()
    return second


class Silent:
    parallel = 1


def served_as(kind: NotComparable | None, release: Release, retriever: Retriever) -> ServedReply:
    if kind is NotComparable.PRECISION:
        retriever = replace(retriever, other_encoder=True)
    if kind is NotComparable.FALLBACK:
        retriever = replace(retriever, second=unavailable(release, retriever))
    query = PLAIN if kind is None else KINDS[kind]
    (query,), vectors = retriever.read([query])
    (answer,) = retriever.answer([query], vectors)
    assert len(answer.positions) == query.k
    fields = search_fields(answer, answer.read(release.documents), release.manifest)
    assert fields.get("not_comparable") == kind
    covered = {None, NotComparable.FALLBACK}
    assert fields["calibrated"] is (kind in covered)
    record = SearchRecord.of(query, answer, np.zeros(RANDOM_DOCUMENTS, np.float32), b"{}")
    return ServedReply(1e9, "a" * 32, query, None, record)


def judged(release: Release, reply: ServedReply, verdicts: Callable[[int], bool]) -> list[Judged]:
    feedback = Feedback(WorkerStore(None, "r", 60.0), None, release, 60.0, lambda: asyncio.sleep(0))
    packed = ShownReply.of(reply.query, reply.record).pack()
    shown = ShownReply.read(packed, len(release.documents), release.manifest.max_score)

    async def judge() -> None:
        for row, position in enumerate(shown.results["position"].tolist()):
            name = release.documents[position].id
            assert await feedback.judge(reply.query_id, shown, name, relevant=verdicts(row))

    asyncio.run(judge())
    return feedback.take()


@pytest.mark.parametrize("relevant", [True, False])
@pytest.mark.parametrize("kind", [*KINDS])
def test_no_reader_compares_such_a_reply(
    release: Release, retriever: Retriever, sample: Path, tmp_path: Path, kind: NotComparable, relevant: bool
) -> None:
    reply = served_as(kind, release, retriever)
    verdicts = judged(release, reply, lambda row: relevant)
    assert len(observations([reply], K, RANDOM_DOCUMENTS)) == (kind in SELECTED), "drift"
    assert [*map(len, judgements(verdicts))] == [0, 0], "COE, and the alarm on quality"
    log = tmp_path / "queries.jsonl"
    QueryLog(log, release, texts=True).write([served_as(None, release, retriever)._replace(query_id="b" * 32)], [])
    QueryLog(log, release, texts=True).write([reply], verdicts)
    records = [line.record for line in read_query_log([log])][1:]
    assert {record.not_comparable for record in records} == {kind}
    assert {record.stage for record in records} == {"first" if kind is NotComparable.FALLBACK else None}
    assert len([record for record in records if isinstance(record, LoggedJudgement)]) == reply.query.k
    replayed = read_log([log], release.manifest.release_id, K)
    assert (len(replayed.queries), len(replayed.judged)) == (1 + (kind in SELECTED), 0)
    with pytest.raises(NothingLearnedError, match=f"no judgement can be used: {reply.query.k} "):
        learn_from_traffic([log], shutil.copytree(sample, tmp_path / sample.name), votes=1)


@pytest.mark.parametrize(
    ("verdicts", "decided"),
    [([True] * 5, [1.0]), ([False] * 4, []), ([False] * 5, [0.0]), ([False] * 4 + [True], [1.0])],
    ids=["relevant", "some irrelevant", "all irrelevant", "last relevant"],
)
def test_comparable_reply_is_decided_once_it_is_known(
    release: Release, retriever: Retriever, tmp_path: Path, verdicts: list[bool], decided: list[float]
) -> None:
    reply = served_as(None, release, retriever)
    taken = judged(release, reply, lambda row: verdicts[row] if row < len(verdicts) else True)[: len(verdicts)]
    correct, replies = judgements(taken)
    assert replies.relevant.tolist() == decided
    assert len(correct) == any(verdicts)
    log = tmp_path / "queries.jsonl"
    QueryLog(log, release, texts=False).write([reply], taken)
    replayed = read_log([log], release.manifest.release_id, K).judged
    assert replayed.relevant.tolist() == decided
    assert replayed.key.tolist() == replies.key.tolist()


def test_first_reason_that_applies_is_given(release: Release, retriever: Retriever) -> None:
    """A cut of a request's own, within a filter: its scores are not comparable, either."""
    query = replace(KINDS[NotComparable.FILTERED], threshold=-1.0, k=2)
    (answer,) = retriever.search([query])
    assert (answer.not_comparable, answer.uncut, answer.calibrated) == (NotComparable.FILTERED, None, False)
    assert explain(retriever, release.documents, query, release.documents[0].id).not_comparable == "filtered"


def test_fewer_results_of_the_same_list_are_labels(
    release: Release, retriever: Retriever, sample: Path, tmp_path: Path
) -> None:
    (answer,) = retriever.search([replace(PLAIN, k=2)])
    assert (answer.not_comparable, answer.calibrated) == (NotComparable.K, True)
    record = SearchRecord.of(PLAIN, answer, np.zeros(RANDOM_DOCUMENTS, np.float32), b"{}")
    reply = ServedReply(1e9, "a" * 32, replace(PLAIN, k=2), None, record)
    log = tmp_path / "queries.jsonl"
    QueryLog(log, release, texts=True).write([reply], judged(release, reply, lambda row: row == 1))
    learned = learn_from_traffic([log], shutil.copytree(sample, tmp_path / sample.name), votes=1)
    assert (learned.judgements, learned.left_out.total()) == (2, 0)


def test_explored_results_weigh_in_coe_alone(release: Release, retriever: Retriever) -> None:
    """One in twenty dropped results is shown, so it stands for twenty; the reply is judged by what is kept."""
    reply = served_as(None, release, retriever)
    reply.record.results["kept"][1:], reply.record.results["propensity"][1:] = False, 0.05
    (taken,) = judged(release, reply, lambda row: row == 1)[1:2]
    correct, replies = judgements([taken])
    assert (correct.weight.tolist(), len(replies)) == ([20.0], 0)
    correct, replies = judgements(judged(release, reply, lambda row: row == 1))
    assert (correct.weight.tolist(), replies.relevant.tolist()) == ([20.0], [0.0])


def test_old_lines_are_read_with_a_reason(release: Release, retriever: Retriever, tmp_path: Path) -> None:
    log = tmp_path / "queries.jsonl"
    reply = served_as(None, release, retriever)
    QueryLog(log, release, texts=True).write([reply], [])
    line = log.read_bytes().replace(b',"stage":null,"not_comparable":null', b"")
    top = line[line.index(b'"topk"') : line.index(b',"random"')]
    old = {
        None: line,
        NotComparable.FILTERED: line.replace(top, b'"topk":[]'),
        NotComparable.TRUNCATED: line.replace(top, b'"topk":[],"truncated":true'),
        NotComparable.UNREADABLE: line.replace(top, b'"topk":[],"unreadable":true'),
        NotComparable.THRESHOLD: line.replace(b'"threshold":null', b'"threshold":0.5'),
        NotComparable.GROUPED: line.replace(b'"group_by":null', b'"group_by":"document"'),
    }
    log.write_bytes(b"".join(old.values()))
    records = [line.record for line in read_query_log([log])]
    assert [record.not_comparable for record in records if isinstance(record, LoggedQuery)] == [*old]
