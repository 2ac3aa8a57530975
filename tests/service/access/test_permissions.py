"""A key with a filter: documents outside it are not returned, counted, judged, cached or mentioned."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from taugate.errors import InputError
from taugate.registry.catalog import find
from taugate.registry.promotion import promote
from taugate.retrieval.documents.filters import OneOf, all_of
from taugate.retrieval.query import Query
from taugate.retrieval.reader import Release, load
from taugate.service.drift.alarms import drift_field
from taugate.service.http.exchange import may_judge, reply_id
from taugate.service.http.operation import ENDPOINTS
from taugate.service.lifecycle.active import ActiveRelease
from taugate.service.lifecycle.shadow import answer
from tests.prometheus_process import until
from tests.service.access.files import JUDGE, OPS, SCRAPER, bearer, entry, write
from tests.service.access.test_authorization import parse
from tests.service.process.test_process import refusal
from tests.service.with_metadata import with_metadata
from tests.service_process import ServiceProcess, by_label

A, ALSO_A, B, BOTH, YEARS, ALL = "key-a", "key-also-a", "key-b", "key-both", "key-years", "key-all"
TENANT_A, TENANT_B = {"category": "bygglov"}, {"category": "rot-avdrag"}
FILTERS: dict[str, dict[str, Any]] = {
    A: TENANT_A,
    ALSO_A: TENANT_A,
    B: TENANT_B,
    BOTH: {"category": ["bygglov", "rot-avdrag"]},
    YEARS: {"year": {"gte": 2000, "lt": 2010}, "checked": True},
}
ASKS = ("search", "feedback")
ENTRIES = [
    *(entry(key, key, *ASKS, filter=query_filter) for key, query_filter in FILTERS.items()),
    entry(ALL, "all", *ASKS),
    entry(OPS, "ops", "admin"),
    entry(SCRAPER, "scraper", "metrics"),
    entry(JUDGE, "judge", "feedback"),
]
QUERY = "What does a building permit cost?"
KEEP_ALL = -2.0


@pytest.fixture(scope="module")
def release(rich: Path) -> Release:
    return load(find(rich), threads=1)


@pytest.fixture(scope="module")
def permitting(rich: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    keys = write(tmp_path_factory.mktemp("keys") / "keys.json", ENTRIES)
    with ServiceProcess(rich, TAUGATE_KEYS_FILE=str(keys)) as process:
        yield process.ready()


def post(service: ServiceProcess, path: str, key: str, body: dict[str, Any]) -> httpx.Response:
    return service.http.post(path, json=body, headers=bearer(key))


def search(service: ServiceProcess, key: str, query: str = QUERY, **fields: Any) -> dict[str, Any]:
    reply = post(service, "/search", key, {"query": query, **fields})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def ids(reply: dict[str, Any]) -> list[str]:
    return [result["id"] for result in reply["results"]]


def holds(metadata: dict[str, Any], query_filter: dict[str, Any]) -> bool:
    for name, asked in query_filter.items():
        if isinstance(asked, dict):
            met = asked.get("gte", -1e9) <= metadata[name] < asked.get("lt", 1e9)
        else:
            met = metadata[name] in (asked if isinstance(asked, list) else [asked])
        if not met:
            return False
    return True


def test_random_filters_match_scan_within_key(permitting: ServiceProcess, release: Release) -> None:
    rng = random.Random(5)  # noqa: S311 (no secret)
    (every,) = release.retriever.search([Query(QUERY, len(release.documents), KEEP_ALL)])
    documents = [release.documents[position] for position in every.positions.tolist()]
    categories = sorted({document.metadata["category"] for document in documents})
    found = 0
    for key, permitted in {**FILTERS, ALL: {}}.items():
        filters = []
        for _ in range(60):
            year = rng.randint(1985, 2030)
            wishes = {
                "category": rng.choice([rng.sample(categories, 12), "bygglov", "nobody", ["rot-avdrag", "bygglov"]]),
                "year": rng.choice([year, {"gte": year}, {"gte": year - 20, "lt": year}]),
                "checked": rng.choice([True, False]),
            }
            filters.append({name: wishes[name] for name in rng.sample([*wishes], rng.randint(0, 2))})
        queries = [{"query": QUERY, "filter": query_filter, "k": 9, "threshold": KEEP_ALL} for query_filter in filters]
        replies = post(permitting, "/search/batch", key, {"queries": queries}).json()["responses"]
        for query_filter, reply in zip(filters, replies, strict=True):
            meeting = [
                each for each in documents if holds(each.metadata, permitted) and holds(each.metadata, query_filter)
            ]
            assert ids(reply) == [document.id for document in meeting[:9]]
            assert (reply["considered"], reply["dropped"]) == (len(meeting[:9]), 0)
            assert reply["reason"] == (None if meeting else "no_documents_match_filter")
            assert (reply["best_score"] is None) == (not meeting)
            found += len(meeting) > 0
    assert found > 100


def test_counts_stay_within_key_filter(permitting: ServiceProcess, release: Release) -> None:
    reply = search(permitting, A, k=30)
    assert reply["considered"] == 20 == len(reply["results"]) + reply["dropped"]
    assert not reply["calibrated"]
    (best,) = release.retriever.search([Query(QUERY, 1, KEEP_ALL, 0, all_of(OneOf.of("category", "bygglov")))])
    assert np.float32(reply["best_score"]) == np.float32(best.best_score)
    assert ids(search(permitting, BOTH, k=30, filter=TENANT_B, threshold=KEEP_ALL)) == ids(
        search(permitting, B, k=30, threshold=KEEP_ALL)
    )


def test_request_filter_cannot_widen_key(permitting: ServiceProcess) -> None:
    hidden, absent = (search(permitting, A, filter={"category": name}) for name in ("rot-avdrag", "nobody"))
    for reply in (hidden, absent):
        assert (reply["results"], reply["considered"], reply["best_score"]) == ([], 0, None)
        assert reply["reason"] == "no_documents_match_filter"
    assert ids(search(permitting, A, filter={})) == ids(search(permitting, A))
    wide = {"category": ["bygglov", "rot-avdrag"]}
    assert ids(search(permitting, A, filter=wide, k=50)) == ids(search(permitting, A, k=50))


def test_filter_errors_reveal_no_values(permitting: ServiceProcess) -> None:
    for query_filter in ({"owner": "x"}, {"category": {"gt": "rot-avdrag"}}, {"category": None}):
        reply = post(permitting, "/search", A, {"query": QUERY, "filter": query_filter})
        assert reply.status_code == 422
        assert "rot-avdrag" not in reply.text


def test_feedback_needs_reply_of_same_filter(permitting: ServiceProcess) -> None:
    def judge(key: str, query_id: str, document: str) -> tuple[int, str]:
        reply = post(permitting, "/feedback", key, {"query_id": query_id, "document_id": document, "relevant": True})
        return reply.status_code, reply.json().get("error", {}).get("message", "")

    unknown = judge(B, "0" * 32, "any")
    assert unknown[0] == 404
    for number, (judging, status) in enumerate([(A, 202), (ALSO_A, 202), (ALL, 202), (B, 404), (BOTH, 404)]):
        reply = search(permitting, A, f"{QUERY} {number}", threshold=KEEP_ALL)
        said = judge(judging, reply["query_id"], ids(reply)[0])
        assert said[0] == status
        assert said == unknown or status == 202
        assert judge(B, reply["query_id"], "not shown") == unknown
    of_all = search(permitting, ALL, threshold=KEEP_ALL)
    assert judge(A, of_all["query_id"], ids(of_all)[0]) == unknown


def test_query_feedback_stays_within_filter(permitting: ServiceProcess, release: Release) -> None:
    (own,) = (each for each in release.documents if each.id == ids(search(permitting, A, threshold=KEEP_ALL))[0])
    query = f"{own.title or ''} {own.text}"[:300]

    def judge(key: str) -> tuple[int, str]:
        reply = post(permitting, "/feedback", key, {"query": query, "document_id": own.id, "relevant": True})
        return reply.status_code, reply.json().get("status") or reply.json()["error"]["message"]

    assert own.id in ids(search(permitting, A, query))
    assert judge(A) == (202, "accepted")
    assert judge(A) == (202, "repeated")
    assert judge(ALL) == (202, "accepted"), "each key has its own judgement"
    status, message = judge(B)
    assert status == 422
    assert own.id not in message
    status, message = judge(JUDGE)
    assert status == 403
    assert "lacks the scope search" in message


def test_reply_id_encodes_filter() -> None:
    one, other = all_of(OneOf.of("tenant", "a")), all_of(OneOf.of("tenant", "b"))
    for_one = reply_id(one)
    assert len(for_one) == 32 and int(for_one, 16) >= 0 and for_one != reply_id(one)
    assert (may_judge(one, for_one), may_judge(other, for_one), may_judge((), for_one)) == (True, False, True)
    assert not may_judge(one, reply_id(()))
    assert not any(may_judge(one, text) for text in ("", "x", for_one[:16], for_one + "0", "å"))


def test_cache_is_separate_per_filter(permitting: ServiceProcess) -> None:
    """Neither the reply nor the query's vector: how fast an answer is would tell that somebody asked the same."""

    def outcomes() -> dict[str, float]:
        return by_label(permitting.metrics(**bearer(SCRAPER)), "taugate_cache_requests_total")

    def cached(key: str, **fields: Any) -> bool:
        before = outcomes()
        search(permitting, key, "Who pays for the scaffold?", **fields)
        after = outcomes()
        assert sum(after.values()) - sum(before.values()) == 1
        return after["hit"] > before["hit"]

    assert [cached(key) for key in (A, A, B, ALL, BOTH)] == [False, True, False, False, False]
    assert cached(ALSO_A), "which may see the same"
    assert cached(ALL, filter=TENANT_A), "the vector of what all may ask is known"
    assert cached(A, k=4), "and that of one's own query"


def test_filtered_key_lacks_unfiltered_paths(permitting: ServiceProcess) -> None:
    within = {endpoint.path for endpoint in ENDPOINTS.values() if endpoint.filtered}
    dialects = {"/dify/retrieval", "/v1/vector_stores/{vector_store_id}/search"}
    assert within == {"/explain", "/search", "/search/batch", "/feedback", *dialects}
    reply = permitting.http.get("/release", headers=bearer(A))
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "forbidden")
    assert "has a filter" in reply.json()["error"]["message"]
    assert permitting.http.get("/release", headers=bearer(ALL)).status_code == 200


def test_drift_is_hidden_from_filtered_key(release: Release) -> None:
    class Alarmed:
        report = drift_field(["topk_similarity"])

    active = ActiveRelease(serves=None, drift=Alarmed())  # type: ignore[arg-type]
    assert json.loads(active.drift_report(()))["alarm"]
    assert json.loads(active.drift_report(all_of(OneOf.of("tenant", "a")))) == {"alarm": False, "signals": []}


def test_shadow_respects_key_filter(release: Release) -> None:
    query = Query(QUERY, 30, permitted=all_of(OneOf.of("category", "bygglov")))
    top, _ = answer(query, release.retriever, release.documents)
    assert len(top) == 20
    categories = {document.id: document.metadata["category"] for document in release.documents}
    assert {categories[each] for each in top} == {"bygglov"}


WRONG: dict[str, tuple[Any, str]] = {
    "no condition": ({"filter": {}}, "entry 1: filter: permits all documents"),
    "null": ({"filter": None}, "entry 1: filter: permits all documents"),
    "no object": ({"filter": "a"}, "entry 1: filter: is not an object"),
    "an empty list": ({"filter": {"tenant": []}}, "entry 1: filter: tenant: the list is empty"),
    "metrics": (
        {"filter": TENANT_A, "scopes": ["search", "metrics"]},
        "entry 1: a has a filter, but the scope metrics",
    ),
    "admin": ({"filter": TENANT_A, "scopes": ["admin"]}, "entry 1: a has a filter, but the scope admin"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG.keys())
def test_overly_broad_key_filter_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse([entry(A, "a", "search") | change])
    assert message in str(refused.value)


def test_entry_filter_becomes_key_filter() -> None:
    (key,) = parse([entry(A, "a", "search", filter=TENANT_A)])
    assert key.filter == all_of(OneOf.of("category", "bygglov"))


def test_release_unfit_for_filter_is_refused(releases: Path, tmp_path: Path) -> None:
    keys = write(tmp_path / "keys.json", [entry(A, "shop", "search", filter={"category": {"gt": 1}})])
    message = refusal("--releases", str(releases), TAUGATE_KEYS_FILE=str(keys))
    assert (
        "the filter of the key shop does not fit the release: category holds texts, but the filter compares it with num"
        in message
    )


@pytest.mark.slow
def test_unfit_release_or_keys_replace_nothing(rich: Path, sample: Path, encoder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(rich, tmp_path / "releases")
    old = find(folder).name
    keys = write(tmp_path / "keys.json", ENTRIES)
    with ServiceProcess(folder, TAUGATE_KEYS_FILE=str(keys)) as service:
        before = ids(search(service.ready(), A))
        with_metadata(sample, encoder, tmp_path, None)
        promote(folder, next(each.name for each in folder.iterdir() if each.is_dir() and each.name != old))
        reply = service.http.post("/admin/reload", headers=bearer(OPS))
        assert (reply.status_code, reply.json()["error"]["code"]) == (409, "reload_failed")
        assert "the filter of the key key-a does not fit the release" in reply.json()["error"]["message"]
        assert (search(service, A)["release"], ids(search(service, A))) == (old, before)

        def failed() -> bool:
            return service.metrics(**bearer(SCRAPER))["taugate_keys_reload_failed"] == 1

        unfit = [entry(A, "a", "search", filter={"owner": "a"}), *ENTRIES[1:]]
        write(keys, unfit)
        until(failed)
        assert ids(search(service, A)) == before
        write(keys, [entry(A, "a", "search", filter=TENANT_B), *ENTRIES[1:]])
        until(lambda: not failed())
        now = search(service, A, threshold=KEEP_ALL)["results"]
        assert {result["metadata"]["category"] for result in now} == {"rot-avdrag"}
        _, log = service.stop()
    errors = [json.loads(line) for line in log.splitlines() if '"error"' in line]
    assert [line["message"] for line in errors] == [
        "cannot load the current release; keeping the previous one",
        "cannot reload API keys; keeping the previous ones",
    ]
    assert "no document has the field owner" in errors[1]["reason"]
