"""A service with two stages: both scores in replies, and the first stage alone when the second is not in time."""

import asyncio
from pathlib import Path

import httpx
import pytest
import zaragoza_construction_faq

from taugate.cli import main as cli
from taugate.service.app import create_app
from taugate.service.settings import Settings
from tests.fake_reranker import write_fake_reranker
from tests.rerank_server import RerankServer
from tests.sample_part import write_part
from tests.service.inprocess import serving, status, until
from tests.service_process import by_label, read_metrics

FAQ = zaragoza_construction_faq.load(lang="en")
QUERY = {"query": FAQ[0]["q"]}
OUTCOMES = "taugate_rerank_replies_total"


def calibrated(folder: Path, sample: Path, encoder: Path, reranker: str) -> Path:
    command = ["calibrate", str(sample), "--releases", str(folder), "--encoder", str(encoder), "--rerank", reranker]
    assert cli.main(command) == 0
    return folder


@pytest.fixture(scope="module")
def two_stages(sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [entry[field] for entry in FAQ for field in ("q", "a")]
    reranker = write_fake_reranker(tmp_path_factory.mktemp("reranker"), texts)
    return calibrated(tmp_path_factory.mktemp("two-stages"), sample, encoder, str(reranker))


async def outcomes(http: httpx.AsyncClient) -> dict[str, float]:
    return by_label(read_metrics((await http.get("/metrics")).text), OUTCOMES)


def test_reply_has_the_scores_of_both_stages(two_stages: Path) -> None:
    async def run() -> None:
        async with serving(create_app(Settings(releases=two_stages, rerank_deadline_ms=60_000))) as http:
            await until(lambda: status(http, "/readyz", 200))
            reply = (await http.post("/search", json={**QUERY, "min_results": 5})).json()
            assert (reply["stage"], reply["considered"]) == ("second", 5)
            scores = [result["score"] for result in reply["results"]]
            assert scores == sorted(scores, reverse=True)
            assert all(-1 <= result["first_stage_score"] <= 2 for result in reply["results"])
            again = (await http.post("/search", json={**QUERY, "min_results": 5})).json()  # from memory
            assert again["results"] == reply["results"]
            explained = (await http.post("/explain", json={**QUERY, "document_id": FAQ[0]["id"]})).json()
            assert explained["first_stage_rank"] >= 1
            assert (await outcomes(http))["ranked"] >= 1

    asyncio.run(run())


def test_reply_that_is_late_is_the_first_stages_and_not_kept(two_stages: Path) -> None:
    async def run() -> None:
        app = create_app(Settings(releases=two_stages, rerank_deadline_ms=1))
        async with serving(app) as http:
            await until(lambda: status(http, "/readyz", 200))
            for _ in range(2):
                reply = (await http.post("/search", json=QUERY)).json()
                assert reply["stage"] == "first"
                assert all("first_stage_score" not in result for result in reply["results"])
            counted = await outcomes(http)
            assert counted["deadline"] + counted["paused"] + counted["failed"] == 2  # the second reply was not cached

    asyncio.run(run())


def test_endpoint_that_fails_costs_no_reply(
    sample: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RerankServer(lambda query, text: len({*query.split()} & {*text.split()}) / 100) as server:
        monkeypatch.setenv("TAUGATE_RERANK_URL", server.url)
        part = write_part(sample, tmp_path / "part", 120)
        releases = calibrated(tmp_path / "releases", part, encoder, "endpoint")

        async def run(fault: str) -> None:
            server.fault = ""
            waited = 50 if fault == "stall" else 500  # which ends by the deadline alone
            app = create_app(Settings(releases=releases, rerank_deadline_ms=waited, rerank_url=server.url))
            async with serving(app) as http:
                await until(lambda: status(http, "/readyz", 200))
                server.fault = fault
                for entry in FAQ[:10]:
                    reply = await http.post("/search", json={"query": entry["q"] + "?"})
                    assert (reply.status_code, reply.json()["stage"]) == (200, "first")

        for fault in ("stall", "flood", "status"):  # the others are tests/retrieval/rerank
            asyncio.run(run(fault))
