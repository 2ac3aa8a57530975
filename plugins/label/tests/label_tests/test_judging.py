"""A sample is drawn, judged by one or two people, stopped and continued, and written to the split human."""

import json
import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from taugate.data.beir import read_dataset
from taugate.data.queries import DatasetBusy, sole_writer
from taugate.drift.observations import hashed
from taugate.drift.query_log import LoggedQuery, line_bytes
from taugate.errors import InputError
from taugate.registry.catalog import find
from taugate.retrieval.reader import Release, load
from taugate_label.judging import PATIENCE_SECONDS, Judging, SampleRequest, Sources, judging, sample_to_judge
from taugate_label.population import Population, population
from taugate_label.sample import Round
from tests.data import test_judgements as unanswerable


@pytest.fixture(scope="module")
def release(releases: Path) -> Release:
    return load(find(releases), 1)


@pytest.fixture
def data(sample: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sample, tmp_path / "zaragoza")


def drawn(data: Path, release: Release, n: int = 6, *, more: bool = False, logs: tuple[Path, ...] = ()) -> Round:
    remarks: list[str] = []
    return sample_to_judge(data, "human", SampleRequest(n, 0, more), Sources(lambda: release, logs), remarks.append)


def judge_all(work: Judging, relevant: Callable[[str, str], bool], limit: int = 1000) -> None:
    """Answer up to `limit` questions.

    Args:
        relevant: Whether a passage is relevant, by the ids of query and passage.
    """
    for _ in range(limit):
        question = work.session.question()
        if question is None:
            break
        work.session.judge(question, relevant=relevant(question.query.id, question.document.id))


def answers(query: str, document: str) -> bool:
    """Return whether a document answers a query of the sample: that of q-rot-001 is rot-001."""
    return query == f"q-{document}"


def rows(data: Path) -> list[list[str]]:
    header, *lines = (data / "qrels" / "human.tsv").read_text(encoding="utf-8").splitlines()
    assert header == "query-id\tcorpus-id\tscore\tweight"
    return [line.split("\t") for line in lines]


def log_line(query: str, collection: str = "zaragoza", topk: tuple[float, ...] = (0.5,)) -> bytes:
    logged = LoggedQuery(
        at=1.0, query_id="1", query=query, key=None, collection=collection, release="r", filter=None, k=5,
        threshold=None, group_by=None, kept=1, topk=[*topk], random=[0.1], shown=[],
    )  # fmt: skip
    return line_bytes(logged)


def test_judged_sample_can_be_calibrated_on(data: Path, release: Release, tmp_path: Path) -> None:
    sample = drawn(data, release)
    assert len({query.id for query in sample.queries}) == 6
    before = (data / "queries.jsonl").read_bytes()
    with judging(data, "human", sample, "ana") as work:
        judge_all(work, answers)
        written = work.write()
    assert (data / "queries.jsonl").read_bytes() == before
    (tmp_path / "spool").mkdir()
    read = read_dataset(data, "human", tmp_path / "spool")
    labelled = {query.id: query for query in (*read.answerable, *read.unanswerable)}
    assert labelled.keys() == {query.id for query in sample.queries}
    assert sum(query.weight for query in labelled.values()) == pytest.approx(503)
    for judged in written.judged:
        relevant = [read.documents[position].id for position in labelled[judged.query.id].relevant]
        assert relevant == [name for name in judged.grades if answers(judged.query.id, name)]
        assert [*judged.grades][:5] == judged.query.results  # all of them were judged


def test_same_seed_draws_same_sample(data: Path, release: Release, sample: Path, tmp_path: Path) -> None:
    other = shutil.copytree(sample, tmp_path / "other" / "zaragoza")
    assert drawn(data, release) == drawn(other, release)
    shutil.rmtree(other / "judgements")
    request, source = SampleRequest(6, 1), Sources(lambda: release)
    assert sample_to_judge(other, "human", request, source, print).queries != drawn(data, release).queries


def test_missed_passages_are_shown_without_relevant_results(data: Path, release: Release) -> None:
    sample = drawn(data, release)
    query = sample.queries[0]
    assert query.others
    assert not {*query.others} & {*query.results}
    with judging(data, "human", sample, "ana") as work:
        requests = []
        while (question := work.session.question()) is not None and question.query == query:
            requests.append((question.document.id, question.rank))
            work.session.judge(question, relevant=question.document.id == query.others[1])
        work.write()
    ranked = [(name, rank) for rank, name in enumerate(query.results, 1)]
    assert requests == [*ranked, (query.others[0], None), (query.others[1], None)]
    assert [(row[1], row[2]) for row in rows(data)] == [
        (name, "1" if name == query.others[1] else "0") for name, _ in requests
    ]


def test_stopped_judge_continues(data: Path, release: Release) -> None:
    sample = drawn(data, release)
    with judging(data, "human", sample, "ana") as work:
        judge_all(work, answers, 8)
        stopped = work.session.question()
    with judging(data, "human", drawn(data, release), "ana") as work:  # what a killed process left is written first
        complete = {row[0] for row in rows(data)}
        assert complete == {sample.queries[0].id}
        assert work.session.question() == stopped
        assert sum(float(row[3]) for row in rows(data)) == pytest.approx(503 * len(rows(data)))


def test_undo_retracts_written_judgements(data: Path, release: Release) -> None:
    sample = drawn(data, release)
    with judging(data, "human", sample, "ana") as work:
        first = work.session.question()
        judge_all(work, lambda _, document: document == first.document.id, 5)
        work.write()
        assert {row[0] for row in rows(data)} == {first.query.id}
        assert work.session.undo()
        work.write()
        assert not (data / "qrels" / "human.tsv").exists()
        for _ in range(4):
            assert work.session.undo()
        assert not work.session.undo()
        assert work.session.question() == first


def test_skipped_query_passes_its_weight_on(data: Path, release: Release) -> None:
    sample = drawn(data, release)
    with judging(data, "human", sample, "ana") as work:
        skipped = work.session.question()
        work.session.skip(skipped)
        judge_all(work, answers)
        work.write()
        assert work.session.progress().done == 6
    weights = {row[0]: float(row[3]) for row in rows(data)}
    assert skipped.query.id not in weights
    assert sum(weights.values()) == pytest.approx(503)


def test_agreement_of_two_judges_reported(data: Path, release: Release) -> None:
    sample = drawn(data, release)
    first, doubtful = sample.queries[0].id, sample.queries[0].results[0]
    with judging(data, "human", sample, "ana") as work:
        judge_all(work, answers)
    with judging(data, "human", sample, "ben") as work:
        judge_all(work, lambda query, document: answers(query, document) != ((query, document) == (first, doubtful)))
        verdicts = work.write()
    agreed = verdicts.agreements["ana", "ben"]
    (disputed,) = verdicts.disagreements
    assert agreed.results - agreed.equal == 1
    assert (disputed.query, disputed.document) == (sample.queries[0].id, doubtful)
    assert sorted([*disputed.relevant, *disputed.irrelevant]) == ["ana", "ben"]
    assert [row[2] for row in rows(data) if row[:2] == [disputed.query, doubtful]] == ["1"]  # at least half say so
    with judging(data, "human", sample, "dora", only_disputed=True) as work:
        work.session.skip(work.session.question())
        assert work.session.question() is None
        assert work.session.progress()[:3] == (1, 1, "disputed results")
    with judging(data, "human", sample, "cleo") as work:
        judge_all(work, lambda *_: False)
        work.write()
    assert [row[2] for row in rows(data) if row[:2] == [disputed.query, doubtful]] == ["0"]


def test_further_sample_joined_to_first(data: Path, release: Release) -> None:
    sample = drawn(data, release)
    first = {query.id for query in sample.queries}
    with judging(data, "human", sample, "ana") as work:
        judge_all(work, answers)  # a process that is killed now has written nothing
    second = drawn(data, release, more=True)
    assert second.number == 2
    assert not first & {query.id for query in second.queries}
    with judging(data, "human", second, "ana") as work:
        judge_all(work, answers)
        work.write()
    weights = {row[0]: float(row[3]) for row in rows(data)}
    assert weights.keys() == first | {query.id for query in second.queries}
    assert sum(weights.values()) == pytest.approx(503)


def test_judged_log_queries_join_data_set(data: Path, release: Release, tmp_path: Path) -> None:
    earlier = json.loads((data / "queries.jsonl").read_text(encoding="utf-8").splitlines()[0])
    for path in (data / "qrels").iterdir():  # all that the data set has is judged
        path.rename(path.with_name("human.tsv"))
    log = tmp_path / "queries.log"
    log.write_bytes(
        b"".join(
            [
                *(log_line(text) for text in ("how high may a fence be", "what is ROT", "how high may a fence be")),
                log_line(earlier["text"]),
                log_line("elsewhere", "other"),
                log_line("within a filter", topk=()),
                log_line(hashed("secret")),
            ]
        )
    )
    remarks: list[str] = []
    sources = Sources(lambda: release, [log])
    sample = sample_to_judge(data, "human", SampleRequest(6), sources, remarks.append)
    assert {query.text for query in sample.queries} == {"how high may a fence be", "what is ROT"}
    assert [remark for remark in remarks if remark.startswith("warning:")] == [
        f"warning: {log}: left out 1 of another collection, 1 within a filter, 1 without a text; "
        "TAUGATE_QUERY_LOG_TEXTS=true logs texts from now on"
    ]
    before = (data / "queries.jsonl").read_bytes()
    with judging(data, "human", sample, "ana") as work:
        judge_all(work, lambda *_: False)
        work.write()
        work.write()
    added = (data / "queries.jsonl").read_bytes().removeprefix(before).splitlines()
    assert sorted(map(json.loads, added), key=lambda query: query["text"]) == [
        {"_id": f"traffic:{hashed(text)}", "text": text, "origin": "traffic"}
        for text in ("how high may a fence be", "what is ROT")
    ]


def test_log_without_texts_is_refused(data: Path, release: Release, tmp_path: Path) -> None:
    log = tmp_path / "queries.log"
    log.write_bytes(log_line(hashed("secret")))
    with pytest.raises(InputError, match="no query that can be judged .1 without a text.; TAUGATE_QUERY_LOG_TEXTS"):
        drawn(data, release, logs=(log,))


def test_generated_queries_are_judged_only_alone(data: Path, release: Release) -> None:
    queries = [json.loads(line) for line in (data / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = [json.dumps(query | {"origin": "crop" if place else "human"}) for place, query in enumerate(queries)]
    (data / "queries.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    only = drawn(data, release)
    assert [query.id for query in only.queries] == [queries[0]["_id"]]
    (data / "queries.jsonl").write_text("\n".join(lines[1:]) + "\n", encoding="utf-8")
    remarks: list[str] = []
    request = SampleRequest(6, another=True)
    crops = sample_to_judge(data, "human", request, Sources(lambda: release), remarks.append)
    assert {query.origin for query in crops.queries} == {"crop"}
    assert remarks[0].startswith("warning: all queries are generated, and say little about real queries")


def test_changed_corpus_keeps_judgements(data: Path, release: Release) -> None:
    sample = drawn(data, release)
    with judging(data, "human", sample, "ana") as work:
        judge_all(work, answers, 4)
        before = (data / "corpus.jsonl").read_bytes()
        (data / "corpus.jsonl").write_bytes(before + b'{"_id": "new", "text": "new"}\n')
        with pytest.raises(InputError, match="corpus.jsonl: has changed since sample 1 was drawn; all judgements are"):
            work.write()
    with pytest.raises(InputError, match="has changed since sample 1 was drawn"):
        drawn(data, release)
    with pytest.raises(InputError, match="release .* was made of another corpus; make a release of this one first"):
        drawn(data, release, more=True)
    (data / "corpus.jsonl").write_bytes(before)
    again = drawn(data, release, more=True)  # the same queries with the same texts: nothing is asked twice
    assert [query.id for query in again.queries] == [query.id for query in sample.queries]
    with judging(data, "human", again, "ana") as work:
        assert work.session.question().rank == 5


def test_changed_query_requires_new_sample(data: Path, release: Release) -> None:
    name = drawn(data, release).queries[0].id
    queries = (data / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    changed = [line if json.loads(line)["_id"] != name else json.dumps({"_id": name, "text": "?"}) for line in queries]
    (data / "queries.jsonl").write_text("\n".join(changed) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=f"query '{name}' was changed or removed after sample 1 was drawn"):
        drawn(data, release)


def test_removed_query_leaves_no_judgement(data: Path, release: Release) -> None:
    sample = drawn(data, release)
    with judging(data, "human", sample, "ana") as work:
        judge_all(work, answers)
        lines = (data / "queries.jsonl").read_bytes().splitlines(keepends=True)
        name = sample.queries[0].id
        kept = [line for line in lines if json.loads(line)["_id"] != name]
        (data / "queries.jsonl").write_bytes(b"".join(kept))
        with pytest.raises(InputError, match=f"queries.jsonl: query '{name}' was changed or removed"):
            work.write()
    assert not (data / "qrels" / "human.tsv").exists()
    assert len((data / "judgements" / "human" / "ana.jsonl").read_bytes().splitlines()) >= 6 * 5
    again = drawn(data, release, more=True)
    assert name not in {query.id for query in again.queries}


def test_sample_continues_without_size_and_seed(data: Path, release: Release) -> None:
    sample = drawn(data, release, 6)
    sources = Sources(lambda: release)
    assert sample_to_judge(data, "human", SampleRequest(), sources, print) == sample
    more = sample_to_judge(data, "human", SampleRequest(another=True), sources, print)
    assert (more.number, more.n, more.seed) == (2, 50, 0)


def test_changed_size_or_seed_requires_new_sample(data: Path, release: Release) -> None:
    drawn(data, release, 6)
    with pytest.raises(InputError, match="sample 1 was drawn with --n 6 --seed 0; leave both out to continue it"):
        drawn(data, release, 7)


def test_judging_waits_for_another_writer(data: Path, release: Release) -> None:
    sample = drawn(data, release)
    with judging(data, "human", sample, "ana") as work:
        judge_all(work, answers, 12)
        with sole_writer(data), pytest.raises(DatasetBusy, match="is writing to it; wait until it ends"):
            work.write()
        with ExitStack() as other:
            other.enter_context(sole_writer(data))
            ends = threading.Timer(0.3, other.close)
            ends.start()
            work.write(PATIENCE_SECONDS)  # once the other has ended
            ends.join()
    assert rows(data)


@pytest.mark.parametrize("content", [b"", b"{", b'{"number": 1}'])
def test_damaged_sample_is_refused(data: Path, release: Release, content: bytes) -> None:
    drawn(data, release)
    (data / "judgements" / "human" / "round-1.json").write_bytes(content)
    with pytest.raises(InputError, match="round-1.json: not a sample of `taugate judge`, or a damaged one"):
        drawn(data, release)


def test_query_called_unanswerable_is_not_judged_again(tmp_path: Path) -> None:
    data = unanswerable.data_set(tmp_path / "masonry", unanswerable.QUERIES, unanswerable.ROWS)
    assert [query.id for query in population(data, {"q1"}, Population([], [])).queries] == ["q3"]
