"""Live queries are drawn with all their results, and judgements of them become bounds of the loss."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from prometheus_client import CollectorRegistry

from taugate.cli import main as cli
from taugate.drift.drawn import DrawnLog, DrawnQuery, DrawnVerdict, append, drawn_log
from taugate.drift.observations import hashed
from taugate.retrieval.query import Answer, Query
from taugate.retrieval.reader import Release
from taugate.service.drift import judging
from taugate.service.drift.endpoint_judge import _numbers
from taugate.service.drift.judging import LiveJudging
from taugate.service.drift.query_log import QueryLog, ServedReply
from taugate.service.pipeline.record import RANDOM_DOCUMENTS, SearchRecord
from taugate.service.settings import Settings
from tests.prometheus_process import until
from tests.service.drift.traffic import foreign_queries, ordinary
from tests.service_process import ServiceProcess

DAY = 86400.0


class Shared:
    """The judgements that replicas share, without Redis."""

    def __init__(self) -> None:
        self.stored: bytes | None = None

    def change(self, _: str, work: Any) -> bool:
        new = work(self.stored)
        self.stored = self.stored if new is None else new
        return True


def settings(folder: Path, **values: Any) -> Settings:
    return Settings(
        releases=folder, query_log=folder / "queries.log", query_log_texts=True, **{"judge_share": 1.0, **values}
    )


def drawing(release: Release, folder: Path, fleet: Any = None, **values: Any) -> LiveJudging:
    return LiveJudging(release, release.retriever, settings(folder, **values), CollectorRegistry(), fleet)


def served(release: Release, queries: list[Query]) -> list[ServedReply]:
    answers: list[Answer] = release.retriever.search(queries)
    random = np.zeros(RANDOM_DOCUMENTS, dtype=np.float32)
    return [
        ServedReply(time.time(), f"{number:016x}" * 2, query, None, SearchRecord.of(query, answer, random, b""))
        for number, (query, answer) in enumerate(zip(queries, answers, strict=True), 1)
    ]


def drawn(folder: Path, release: Release) -> list[DrawnQuery]:
    log = DrawnLog(drawn_log(folder / "queries.log"), release.manifest.release_id)
    log.follow()
    return [*log.queries.values()]


def verdict(query: DrawnQuery, *, lost: bool = False, **values: Any) -> DrawnVerdict:
    relevant = [result.id for result in query.results if result.kept != lost][:1]
    return DrawnVerdict(at=time.time(), query_id=query.query_id, judge="ada", relevant=relevant, **values)


@pytest.fixture
def k(release: Release) -> int:
    return int(release.reference.top.shape[1])


def test_drawn_query_has_all_results_of_a_refused_query_too(
    release: Release, sample: Path, tmp_path: Path, k: int
) -> None:
    texts = [*ordinary(sample, 4), *foreign_queries(2)]
    judging_ = drawing(release, tmp_path)
    for _ in range(20):  # more than one stretch of traffic between two draws
        judging_.offer(served(release, [Query(text, k) for text in texts]))

    queries = drawn(tmp_path, release)
    assert {query.query for query in queries} == {*texts}
    for query in queries:
        (answer,) = release.retriever.search([Query(query.query, k)])
        shown = {document.id for document in answer.read(release.documents)}
        assert len(query.results) == k
        assert {result.id for result in query.results if result.kept} == shown
        assert 0 < query.propensity <= 1


@pytest.mark.parametrize("changed", [{"threshold": 0.5}, {"k": 1}], ids=lambda changed: next(iter(changed)))
def test_replies_that_the_certificate_does_not_cover_are_not_drawn(
    release: Release, tmp_path: Path, k: int, changed: dict[str, Any]
) -> None:
    replies = served(release, [Query(**{"text": "What does a permit cost?", "k": k, **changed})] * 40)
    drawing(release, tmp_path).offer(replies)

    assert not drawn(tmp_path, release)


def test_judgements_of_replicas_count_once_in_any_process(
    release: Release, sample: Path, tmp_path: Path, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "_EVERY_SECONDS", 0.0)
    folders, shared = (tmp_path / "one", tmp_path / "two"), Shared()
    replicas = []
    for place, folder in enumerate(folders):
        folder.mkdir()
        replica = drawing(release, folder, shared)
        texts = [Query(text, k) for text in ordinary(sample, 40, first=40 * place)]
        replies = [reply._replace(query_id=f"{place}{reply.query_id[1:]}") for reply in served(release, texts)]
        replica.offer(replies)
        append(replica.log.path, [verdict(query) for query in drawn(folder, release)])
        replicas.append(replica)
    for _ in range(2):
        for replica in replicas:
            replica.follow()
    restarted = drawing(release, folders[0], shared)
    restarted.follow()

    total = sum(len(drawn(folder, release)) for folder in folders)
    for replica in (*replicas, restarted):
        assert replica.live.judged == total
        assert replica.bounds == replicas[0].bounds


def test_many_lost_answers_break_the_promise(
    release: Release, sample: Path, tmp_path: Path, k: int, caplog: pytest.LogCaptureFixture
) -> None:
    judging_ = drawing(release, tmp_path)
    judging_._limit = judging_.live.limit = 0.05
    judging_.offer(served(release, [Query(text, k) for text in ordinary(sample, 150)]))
    append(judging_.log.path, [verdict(query, lost=True) for query in drawn(tmp_path, release)])
    judging_.follow()

    assert judging_.bounds.lower > 0.05
    assert [record.message for record in caplog.records].count(
        "promise broken: more answers are lost than promised"
    ) == 1


def test_old_texts_are_hashed_and_no_longer_judged(release: Release, sample: Path, tmp_path: Path, k: int) -> None:
    judging_ = drawing(release, tmp_path, query_log_days=1)
    (text,) = ordinary(sample, 1)
    judging_.offer([reply._replace(at=time.time() - 2 * DAY) for reply in served(release, [Query(text, k)] * 9)])
    assert {query.query for query in drawn(tmp_path, release)} == {text}
    judging_.forget_old_texts()
    judging_.follow()

    assert {query.query for query in drawn(tmp_path, release)} == {hashed(text)}
    assert not [*judging_.log.waiting(model=False)]


class _Endpoint(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert request["model"] == "judge"
        reply = orjson.dumps({"choices": [{"message": {"content": "1, 2"}}]})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Endpoint)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def test_endpoint_judges_drawn_queries_and_chooses_those_for_people(
    release: Release, sample: Path, tmp_path: Path, k: int, endpoint: str
) -> None:
    values: dict[str, Any] = {"judge_url": endpoint, "judge_model": "judge", "judge_calls_per_day": 86400 * 200}
    judging_ = drawing(release, tmp_path, **values)
    judging_.offer(served(release, [Query(text, k) for text in ordinary(sample, 40)]))
    many = len(drawn(tmp_path, release))
    judging_.follow()
    until(lambda: not [*judging_.log.waiting(model=True)])
    judging_.close()
    judging_.follow()

    of_model = [found for (_, model), found in judging_.log._verdicts.items() if model]
    assert len(of_model) == many > 10
    assert all(len(found.relevant) == 2 for found in of_model)
    for_people = [*judging_.log.waiting(model=False, directed=True)]
    assert 0 < len(for_people) < many
    assert judging_.live.judged == 0
    append(judging_.log.path, [verdict(query) for query in for_people])
    judging_.follow()
    assert judging_.live.judged == len(for_people)


def test_endpoint_that_names_no_passage_is_an_error() -> None:
    def reply(text: str) -> bytes:
        return orjson.dumps({"choices": [{"message": {"content": text}}]})

    assert _numbers(reply("2 and 5.")) == {2, 5}
    assert _numbers(reply("0")) == {0}
    with pytest.raises(ValueError, match="names no passage"):
        _numbers(reply("none of them"))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"judge_share": 0.1}, "TAUGATE_JUDGE_SHARE stores texts"),
        ({"judge_url": "http://127.0.0.1:1/v1", "judge_model": "m"}, "TAUGATE_JUDGE_URL needs"),
    ],
)
def test_settings_that_cannot_draw_are_refused(tmp_path: Path, values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Settings(releases=tmp_path, **values)


def test_replies_and_metrics_show_the_bounds(releases: Path, sample: Path, tmp_path: Path) -> None:
    log = tmp_path / "queries.log"
    environment = {"TAUGATE_QUERY_LOG": str(log), "TAUGATE_QUERY_LOG_TEXTS": "true", "TAUGATE_JUDGE_SHARE": "1"}
    with ServiceProcess(releases, **environment) as service:
        release = service.ready().http.get("/release").json()["release"]
        for text in ordinary(sample, 30):
            assert "loss" not in service.http.post("/search", json={"query": text}).json()["drift"]
        follower = DrawnLog(drawn_log(log), release)

        def some_are_drawn() -> bool:
            follower.follow()
            return len(follower.queries) > 15

        until(some_are_drawn)
        append(follower.path, [verdict(query) for query in follower.queries.values()])
        until(lambda: "loss" in service.http.post("/search", json={"query": "permit"}).json()["drift"])
        loss = service.http.post("/search", json={"query": "permit"}).json()["drift"]["loss"]
        assert 0 <= loss["lower"] < loss["upper"] <= 1
        metrics = service.http.get("/metrics").text
        for name in ('taugate_live_loss{bound="upper"}', 'taugate_live_unanswerable_answered{bound="recent_lower"}'):
            assert name in metrics
        assert "taugate_live_judgements_to_go" in metrics


def test_replay_prints_the_bounds_of_a_log(
    releases: Path, release: Release, sample: Path, tmp_path: Path, k: int, capsys: pytest.CaptureFixture[str]
) -> None:
    judging_, log = drawing(release, tmp_path), tmp_path / "queries.log"
    replies = served(release, [Query(text, k) for text in ordinary(sample, 60)])
    QueryLog(log, release, texts=True).write(replies, [])
    judging_.offer(replies)
    append(judging_.log.path, [verdict(query, lost=True) for query in drawn(tmp_path, release)])
    judging_.follow()

    assert cli.main(["drift", "replay", str(log), "--releases", str(releases), "--json"]) == 0
    loss = orjson.loads(capsys.readouterr().out)["loss"]
    assert loss["all"] == {"lower": judging_.bounds.lower, "upper": judging_.bounds.upper}
    assert loss["judgements"] == judging_.live.judged > 20
    assert cli.main(["drift", "replay", str(log), "--releases", str(releases)]) == 0
    assert "answers lost: " in capsys.readouterr().out
