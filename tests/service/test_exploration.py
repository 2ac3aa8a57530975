"""Exploration: a random few of the results below τ are returned, marked, and logged with their propensity."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.drift.query_log import LoggedQuery, read_query_log
from taugate.errors import InputError
from taugate.registry.catalog import find
from taugate.retrieval.query import Exploration, Query
from taugate.retrieval.reader import Release, load
from taugate.service.pipeline.record import SearchForm
from taugate.service.pipeline.reply import CacheKeys
from taugate.service.settings import read_settings
from tests.prometheus_process import until
from tests.service.drift.traffic import FastDriftService
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess

SHARE = 0.1
QUERIES = [f"What does permit number {number} cost?" for number in range(150)]


@pytest.fixture(scope="module")
def strict(sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A releases directory whose threshold drops about half of the results."""
    folder = tmp_path_factory.mktemp("strict")
    command = ["calibrate", str(sample), "--releases", str(folder), "--encoder", str(encoder), "--max-loss", "0.35"]
    assert cli.main([*command, "--policy", "similarity"]) == 0
    return folder


@pytest.fixture(scope="module")
def release(strict: Path) -> Release:
    return load(find(strict))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "queries.log"


@pytest.fixture(scope="module")
def exploring(strict: Path, log: Path) -> Iterator[ServiceProcess]:
    settings = {"TAUGATE_EXPLORE_SHARE": str(SHARE), "TAUGATE_QUERY_LOG": str(log), "TAUGATE_QUERY_LOG_TEXTS": "true"}
    with FastDriftService(strict, **settings) as process:
        yield process.ready()


def asked(service: ServiceProcess, query: str, **fields: object) -> dict:
    reply: dict = service.http.post("/search", json={"query": query, "include_text": False, **fields}).json()
    return reply


def explored(reply: dict) -> list[str]:
    return [each["id"] for each in reply["results"] if each.get("explored")]


def test_exploration_probability_equals_propensity(release: Release) -> None:
    shown, dropped = 0, 0
    for text in QUERIES:
        plain, whole, some = release.retriever.search(
            [
                Query(text, 5),
                Query(text, 5, threshold=-1.0),
                Query(text, 5, exploration=Exploration(SHARE, "a release")),
            ]
        )
        added = [row for row, each in enumerate(some.positions.tolist()) if each not in plain.positions]
        assert some.ranks.tolist() == sorted(some.ranks.tolist())
        assert [whole.positions[rank - 1] for rank in some.ranks.tolist()] == some.positions.tolist()
        assert some.below_threshold.tolist() == [row in added for row in range(len(some.positions))]
        assert some.propensities.tolist() == pytest.approx([SHARE if each else 1 for each in some.below_threshold])
        assert some.calibrated is (plain.calibrated and not added)
        assert some.uncut is not None
        assert plain.uncut is not None
        assert some.uncut_kept == plain.uncut_kept
        shown, dropped = shown + len(added), dropped + len(whole.positions) - len(plain.positions)
    assert dropped > 100
    assert abs(shown - SHARE * dropped) < 4 * (SHARE * (1 - SHARE) * dropped) ** 0.5


def test_exploration_is_stable_per_release(release: Release) -> None:
    def drawn(exploration: Exploration) -> list[list[int]]:
        queries = [Query(text, 5, exploration=exploration) for text in QUERIES]
        return [each.positions.tolist() for each in release.retriever.search(queries)]

    first = drawn(Exploration(SHARE, "one"))
    assert drawn(Exploration(SHARE, "one")) == first
    assert drawn(Exploration(SHARE, "two")) != first


def test_cached_query_explores_same_results(release: Release) -> None:
    for text in QUERIES[:50]:
        query = Query(text, 5, exploration=Exploration(SHARE, "a release"))
        (answer,) = release.retriever.search([query])
        assert answer.retrieved is not None
        again = release.retriever.rescore(query, release.retriever.vectors([text])[0], answer.retrieved)
        assert again.positions.tolist() == answer.positions.tolist()
        assert again.propensities.tolist() == answer.propensities.tolist()


def test_min_results_are_not_explored(release: Release) -> None:
    for text in QUERIES[:50]:
        query = Query(text, 5, min_results=5, exploration=Exploration(SHARE, "a release"))
        (answer,) = release.retriever.search([query])
        assert answer.propensities.tolist() == [1] * 5


@pytest.mark.slow
def test_explored_results_are_marked_and_logged(exploring: ServiceProcess, log: Path) -> None:
    replies = [asked(exploring, query) for query in QUERIES]
    shown = [explored(reply) for reply in replies]
    assert 0 < sum(map(len, shown)) < 100
    for reply in replies:
        for result in reply["results"]:
            assert "explored" not in result or (result["explored"] and result["below_threshold"])
        if explored(reply):
            assert not reply["calibrated"]
            assert reply["reason"] is None
    again = [asked(exploring, query) for query in QUERIES]
    assert [explored(reply) for reply in again] == shown, "from the cache"
    assert scrape(exploring)["taugate_explored_total{}"] == 2 * sum(map(len, shown))
    until(lambda: log.exists() and log.read_text().count(QUERIES[-1]) == 2)
    logged = {
        line.record.query_id: line.record for line in read_query_log([log]) if isinstance(line.record, LoggedQuery)
    }
    for reply in replies:
        line = logged[reply["query_id"]]
        assert [(each.id, each.rank) for each in line.shown] == [
            (each["id"], each["rank"]) for each in reply["results"]
        ]
        assert [each.id for each in line.shown if each.propensity < 1] == explored(reply)
        assert all(each.propensity in (1.0, pytest.approx(SHARE)) for each in line.shown)
        assert line.kept == sum(not each["below_threshold"] for each in reply["results"])


@pytest.mark.parametrize(
    "fields",
    [{"explore": False}, {"threshold": 0.9}, {"filter": {"category": "none of these"}}, {"group_by": "document"}],
    ids=["asked not to", "threshold", "filter", "grouped"],
)
def test_excluded_searches_explore_nothing(exploring: ServiceProcess, fields: dict) -> None:
    for query in QUERIES[:60]:
        assert not explored(asked(exploring, query, **fields))


def test_exploration_is_off_by_default_and_a_tenth_at_most() -> None:
    assert read_settings(releases="r").drift.explore_share == 0
    with pytest.raises(InputError, match="explore-share=0.2"):
        read_settings(releases="r", explore_share=0.2)


def test_explain_ignores_exploration(exploring: ServiceProcess) -> None:
    reply = next(reply for query in QUERIES if explored(reply := asked(exploring, query)) and (text := query))
    body = {"query": text, "document_id": explored(reply)[0]}
    said = exploring.http.post("/explain", json=body).json()
    assert (said["kept"], said["rule"]) == (False, "threshold"), json.dumps(said)


def test_cache_key_includes_exploration(release: Release) -> None:
    keys, plain = CacheKeys(release), Query("q", 5)
    explored = replace(plain, exploration=Exploration(SHARE, "r"))
    same = replace(plain, exploration=Exploration(SHARE, "r"))
    assert keys.reply(explored, SearchForm()) == keys.reply(same, SearchForm())
    assert keys.reply(explored, SearchForm()) != keys.reply(plain, SearchForm())
