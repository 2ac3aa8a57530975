"""A release whose score has a lexical part, as clients see it: searches, parts of scores, explanations, judgements."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taugate
from taugate.cli import main as cli
from taugate.registry.catalog import find
from taugate.retrieval.index.flat import score_all
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.reader import Release, load
from taugate.retrieval.vectors import shortest_decimal
from taugate_client import TaugateClient
from tests.prometheus_process import until
from tests.redis_process import RedisProcess
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess

WEIGHT = 0.7
QUERIES = ["What does a Building permit cost?", "Is an inspector insured?", "kitchen fan", "noise from a neighbour"]
FIELDS: list[dict[str, Any]] = [
    {},
    {"k": 40},
    {"filter": {"category": ["bygglov", "ventilation"]}},
    {"group_by": "document", "k": 8},
    {"group_by": "document", "k": 8, "filter": {"category": {"ne": "bygglov"}}},
]
KEEP_ALL = {"threshold": -2.0}


@pytest.fixture(scope="module")
def release(hybrid: Path) -> Release:
    return load(find(hybrid), 1)


def post(service: ServiceProcess, path: str, **body: Any) -> dict[str, Any]:
    reply = service.http.post(path, json=body)
    assert reply.status_code in (200, 202), reply.text
    return dict(reply.json())


def search(service: ServiceProcess, query: str, **fields: Any) -> dict[str, Any]:
    return post(service, "/search", query=query, **fields) | {"query_id": ""}


def ranking(release: Release, query: str, fields: dict[str, Any]) -> list[tuple[str, float]]:
    """Ids and scores of the best passages, found by scoring every document."""
    retriever, documents = release.retriever, release.documents
    assert isinstance(retriever.index, HybridIndex)
    encoded = retriever.encode([query])
    everything = np.arange(len(documents))
    cosines = score_all(retriever.index.vectors, retriever.vectors([query]), everything)
    shares = retriever.index.lexical.shares(encoded[:1].terms[0], everything)  # type: ignore[union-attr]
    scores = cosines + np.float32(WEIGHT) * shares
    found, shown = list[tuple[str, float]](), set[str]()
    for position in np.argsort(-scores, kind="stable").tolist():
        document = documents[position]
        category = document.metadata["category"]
        match fields.get("filter", {}).get("category"):
            case {"ne": excluded} if category == excluded:
                continue
            case list(permitted) if category not in permitted:
                continue
        if "group_by" in fields and document.document_id in shown:
            continue
        shown.add(document.document_id)
        found.append((document.id, shortest_decimal(scores[position])))
    return found[: fields.get("k", retriever.policy.k)]


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_search_equals_scoring_every_document(
    fields: dict[str, Any], chunked: ServiceProcess, release: Release
) -> None:
    for query in QUERIES:
        results = search(chunked, query, **fields, **KEEP_ALL)["results"]
        assert [(result["id"], result["score"]) for result in results] == ranking(release, query, fields)


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_parts_add_up_to_the_score(fields: dict[str, Any], chunked: ServiceProcess) -> None:
    for query in QUERIES:
        plain, explained = (search(chunked, query, **fields, explain=explain) for explain in (False, True))
        for result in explained["results"]:
            parts, words = result.pop("parts"), result.pop("matched_words")
            assert np.float32(parts["cosine"]) + np.float32(parts["lexical"]) == np.float32(result["score"])
            assert 0 <= parts["lexical"] <= WEIGHT
            assert bool(words) == (parts["lexical"] > 0)
            assert [word for word in query.strip("?").split() if word in words] == words
        assert explained == plain


def test_matched_words_are_spelled_as_in_the_query(chunked: ServiceProcess) -> None:
    best = search(chunked, "KITCHEN-Fan, ventilation and kitchen", explain=True, k=1)["results"][0]
    assert best["document_id"] == "vent-008"
    assert best["matched_words"][:2] == ["KITCHEN", "Fan"]
    assert "kitchen" not in best["matched_words"]  # a word counts once


def test_batch_equals_single_searches(chunked: ServiceProcess) -> None:
    bodies = [
        {"query": query, "explain": explain, **fields, **KEEP_ALL}
        for query in QUERIES
        for fields in FIELDS
        for explain in (True, False)
    ]
    batch = post(chunked, "/search/batch", queries=bodies)["responses"]
    assert [reply | {"query_id": ""} for reply in batch] == [search(chunked, **body) for body in bodies]


def test_empty_reply_has_no_parts(chunked: ServiceProcess) -> None:
    reply = search(chunked, QUERIES[0], threshold=WEIGHT + 1.1, explain=True)
    assert (reply["results"], reply["reason"]) == ([], "all_below_threshold")


def test_release_without_lexical_part_explains_the_cosine(cosines: Path) -> None:
    with ServiceProcess(cosines) as service:
        result = search(service.ready(), "kitchen fan", explain=True, **KEEP_ALL)["results"][0]
        assert result["parts"] == {"cosine": result["score"]}
        assert "matched_words" not in result
        explained = post(service, "/explain", query="kitchen fan", document_id="vent-008")
        assert not {"parts", "matched_words"} & {*explained}


def test_explanation_names_parts_and_words(chunked: ServiceProcess) -> None:
    (best,) = search(chunked, "kitchen fan", k=1, explain=True)["results"]
    explained = post(chunked, "/explain", query="kitchen fan", document_id="vent-008")
    assert [explained[name] for name in ("score", "parts", "matched_words")] == [
        best[name] for name in ("score", "parts", "matched_words")
    ]
    score, cosine, lexical = best["score"], best["parts"]["cosine"], best["parts"]["lexical"]
    assert f"its score {score:.4f} is" in explained["why"]
    words = f"Its score {score:.4f} is {cosine:.4f} similarity + {lexical:.4f} shared words (kitchen, fan)."
    assert explained["why"].endswith(words)
    unrelated = post(chunked, "/explain", query="xylophone", document_id="vent-008")
    assert unrelated["why"].endswith("is similarity alone: it has no word of the query.")


def test_rank_of_explanation_is_that_of_the_score(chunked: ServiceProcess, release: Release) -> None:
    ids = [name for name, _ in ranking(release, QUERIES[0], {"k": len(release.documents)})]
    for name in ids[:: len(ids) // 5]:
        assert post(chunked, "/explain", query=QUERIES[0], document_id=name)["rank"] == ids.index(name) + 1


def test_local_search_equals_service(hybrid: Path, chunked: ServiceProcess) -> None:
    with taugate.open(hybrid) as retriever:
        for explain in (True, False):
            local = retriever.search("kitchen fan", explain=explain).model_dump(mode="json", exclude_none=True)
            remote = search(chunked, "kitchen fan", explain=explain)
            for mine, theirs in zip(local["results"], remote["results"], strict=True):
                assert {name: mine.get(name) for name in theirs} == theirs
                assert ("parts" in mine) == explain


def test_judgement_of_score_above_one_is_accepted(chunked: ServiceProcess, release: Release) -> None:
    text = release.documents[0].encoded_text.strip()
    reply = post(chunked, "/search", query=text, **KEEP_ALL)
    assert reply["results"][0]["score"] > 1.2
    name = reply["results"][0]["id"]
    judged = {"document_id": name, "relevant": True}
    assert post(chunked, "/feedback", query_id=reply["query_id"], **judged) == {"status": "accepted"}
    assert post(chunked, "/feedback", query=text, **judged)["status"] in ("accepted", "repeated")


def test_replica_rescores_shared_results(hybrid: Path, release: Release, tmp_path: Path) -> None:
    text = release.documents[0].encoded_text.strip()
    with RedisProcess(tmp_path) as redis:
        settings = {"TAUGATE_REDIS_URL": redis.url, "TAUGATE_REDIS_TIMEOUT_MS": "500"}
        with ServiceProcess(hybrid, **settings) as first, ServiceProcess(hybrid, **settings) as second:
            first.ready()
            second.ready()
            bodies = [{"query": query, **fields} for query in QUERIES for fields in FIELDS[:3]]
            replies = [search(first, **body) for body in bodies]
            until(lambda: len(redis.client.keys("*:found:*")) == len(bodies))
            before = scrape(second)["taugate_cache_requests_total{hit}"]
            searches = scrape(second).get("taugate_stage_duration_seconds_count{search}", 0)
            assert [search(second, **body) for body in bodies] == replies
            explained = [search(second, **body, explain=True) for body in bodies]
            assert scrape(second)["taugate_cache_requests_total{hit}"] == before + 2 * len(bodies)
            assert scrape(second).get("taugate_stage_duration_seconds_count{search}", 0) == searches
            assert explained == [search(first, **body, explain=True) for body in bodies]
            # Another replica knows what a reply showed, with its score above 1.
            reply = post(first, "/search", query=text, **KEEP_ALL)
            judged = {"query_id": reply["query_id"], "document_id": reply["results"][0]["id"], "relevant": True}
            until(lambda: second.http.post("/feedback", json=judged).status_code == 202)


def test_list_and_diff_show_the_lexical_part(
    cosines: Path, hybrid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*command: str) -> list[str]:
        assert cli.main(["release", *command]) == 0
        return capsys.readouterr().out.splitlines()

    folder = tmp_path / "both"
    for name in (find(cosines), find(hybrid)):
        shutil.copytree(name, folder / name.name)
    old, new = find(cosines).name, find(hybrid).name
    rows = {
        row["release"]: row["lexical"]
        for row in json.loads(printed("list", "--json", "--releases", str(folder))[0])["releases"]
    }
    assert rows == {old: None, new: WEIGHT}
    assert f"(lexical {WEIGHT:g})" in printed("list", "--releases", str(hybrid))[0]
    lines = [line.split() for line in printed("diff", old, new, "--releases", str(folder))]
    assert ["lexical:", "weight", "–", "0.7000", "changed"] in lines
    assert [line[-1] for line in lines if line[:2] == ["policy:", "τ"]] == ["–"]  # the units differ


def test_command_explains_both_parts(hybrid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "kitchen fan", "vent-008", "--releases", str(hybrid)]) == 0
    printed = capsys.readouterr()
    assert "shared words (kitchen, fan)." in printed.out
    lines = dict(line.split(maxsplit=1) for line in printed.err.splitlines())
    assert (lines["score"], lines["words"]) == ("0.7533", "kitchen, fan")


def test_client_reads_parts(chunked: ServiceProcess) -> None:
    with TaugateClient(f"http://127.0.0.1:{chunked.port}") as client:
        best = client.search("kitchen fan", explain=True).results[0]
        explained = client.explain("kitchen fan", best.document_id)
        plain = client.search("kitchen fan").results[0]
    assert best.parts is not None
    assert best.parts.lexical is not None
    assert np.float32(best.parts.cosine) + np.float32(best.parts.lexical) == np.float32(best.score)
    assert best.matched_words == ["kitchen", "fan"]
    assert (explained.parts, explained.matched_words) == (best.parts, best.matched_words)
    assert (plain.parts, plain.matched_words) == (None, None)
