"""A release without an encoder over HTTP: requests have the vector of the query, and get what a text would get."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import taugate
from taugate.cli import main as cli
from taugate.errors import InputError, NoEncoder
from taugate.registry.catalog import find
from taugate.release.verify import verify_searchable
from taugate.retrieval.query import Query
from taugate_client import InvalidRequest, TaugateClient
from tests.fake_reranker import write_fake_reranker
from tests.own_vectors import texts_of, with_vectors
from tests.prometheus_process import until
from tests.redis_process import RedisProcess
from tests.sample_part import write_part
from tests.service.drift.traffic import FastDriftService
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess

ROWS = range(0, 300, 15)
CHANGING = {"query_id": "", "release": "", "policy": "", "refusal": None}
UNCHECKED = {"calibrated": False, "not_comparable": "vector"}  # the encoder of the calibration may not have made it


@pytest.fixture(scope="module")
def data(sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    return with_vectors(write_part(sample, folder / "part", len(ROWS) * ROWS.step), encoder, folder / "own")[0]


@pytest.fixture(scope="module")
def queries(data: Path) -> NDArray[np.float32]:
    return np.asarray(np.load(data / "queries.npy"))


@pytest.fixture(scope="module")
def texts(data: Path) -> list[str]:
    return texts_of(data, "queries.jsonl")


def calibrated(data: Path, folder: Path, *options: str) -> Path:
    assert cli.main(["calibrate", str(data), "--releases", str(folder), "--refuse", "off", *options]) == 0
    return folder


@pytest.fixture(scope="module")
def own_releases(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return calibrated(data, tmp_path_factory.mktemp("own"), "--lexical", "off")


@pytest.fixture(scope="module")
def encoded_releases(data: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = ("--encoder", str(encoder), "--lexical", "off", "--accept-vectors")
    return calibrated(data, tmp_path_factory.mktemp("encoded"), *options)


@pytest.fixture(scope="module")
def own(own_releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    log = tmp_path_factory.mktemp("log") / "queries.jsonl"
    with FastDriftService(own_releases, TAUGATE_QUERY_LOG=str(log), TAUGATE_EXPLORE_SHARE="0.1") as process:
        yield process.ready()
        process.stop()
    logged = {json.loads(line)["query"] for line in log.read_text().splitlines()} - {None}
    assert {len(query) for query in logged} == {16}, "digests, not texts"
    assert cli.main(["drift", "replay", str(log), "--releases", str(own_releases)]) == 0


def by_vector(service: ServiceProcess, vector: Any, **fields: Any) -> dict[str, Any]:
    reply = service.http.post("/search", json={"vector": np.asarray(vector).tolist(), "explore": False, **fields})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def error(service: ServiceProcess, path: str = "/search", **body: Any) -> tuple[int, str, str]:
    reply = service.http.post(path, json=body)
    return reply.status_code, reply.json()["error"]["code"], reply.json()["error"]["message"]


def test_vector_of_a_query_gets_the_reply_that_its_text_gets_from_the_encoder(
    own: ServiceProcess, encoded_releases: Path, queries: NDArray[np.float32], texts: list[str]
) -> None:
    with ServiceProcess(encoded_releases) as encoded:
        encoded.ready()
        for row in ROWS:
            from_vector = by_vector(own, queries[row]) | CHANGING
            assert from_vector == encoded.search(texts[row]) | CHANGING
            accepted = by_vector(encoded, queries[row])
            assert accepted | CHANGING == from_vector | UNCHECKED, "the option --accept-vectors"
        body = {"queries": [texts[0], {"vector": queries[1].tolist()}, texts[2]]}
        mixed = encoded.http.post("/search/batch", json=body).json()["responses"]
        alone = [encoded.search(texts[0]), encoded.search(texts[1]) | UNCHECKED, encoded.search(texts[2])]
        assert [reply | CHANGING for reply in mixed] == [reply | CHANGING for reply in alone]
    with taugate.open(encoded_releases) as retriever:
        searched = [Query(texts[0], 5), Query("", 5, vector=queries[1].tobytes()), Query(texts[2], 5)]
        together = retriever._release.retriever.search(searched)
        assert [np.float32(answer.best_score or 0) for answer in together] == [
            np.float32(reply["best_score"]) for reply in mixed
        ]


def test_vector_of_another_length_and_type_is_normalized(own: ServiceProcess, queries: NDArray[np.float32]) -> None:
    expected = by_vector(own, queries[7])
    scaled = by_vector(own, 300.0 * queries[7].astype(np.float64))
    assert [result["id"] for result in scaled["results"]] == [result["id"] for result in expected["results"]]
    assert scaled["best_score"] == pytest.approx(expected["best_score"], abs=1e-6)


def test_release_without_encoder_refuses_a_text_with_a_code_of_its_own(own: ServiceProcess) -> None:
    status, code, message = error(own, query="How do I pay?")
    assert (status, code) == (422, "no_encoder")
    assert "has no encoder" in message and "128 numbers" in message
    assert error(own, "/explain", query="How?", document_id="x")[1] == "no_encoder"
    assert error(own, "/feedback", query="How?", document_id="x", relevant=True)[1] == "no_encoder"
    assert error(own, "/search/batch", queries=["How?"])[1:] == (code, message.replace("query", "queries.0.query", 1))


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([1.0, 2.0], "vector: has 2 numbers, and those of the release have 128"),
        ([0.0] * 128, "vector: is zero"),
        ([1e400, *[0.0] * 127], "vector.0: Input should be a finite number"),
        ([], "vector: List should have at least 1 item after validation, not 0"),
    ],
)
def test_invalid_vector_is_refused_by_its_fault(own: ServiceProcess, vector: list[float], message: str) -> None:
    content = f'{{"vector": {vector}}}'.replace("inf", "1e400")
    reply = own.http.post("/search", content=content, headers={"Content-Type": "application/json"})
    assert reply.status_code == 422
    assert reply.json()["error"]["message"] == message


def test_release_with_encoder_refuses_a_vector_unless_it_accepts_them(service: ServiceProcess) -> None:
    assert error(service, vector=[1.0])[1:] == (
        "invalid",
        "vector: the release encodes queries itself; send `query`, or calibrate with accept-vectors = true",
    )
    assert error(service)[1:] == ("invalid", "query: Field required")


def test_batch_mixes_vectors_in_request_order(own: ServiceProcess, queries: NDArray[np.float32]) -> None:
    body = {"queries": [{"vector": queries[row].tolist(), "explore": False} for row in ROWS]}
    replies = own.http.post("/search/batch", json=body).json()["responses"]
    expected = [by_vector(own, queries[row]) for row in ROWS]
    assert [reply | CHANGING for reply in replies] == [reply | CHANGING for reply in expected]


def test_explanation_of_a_vector_names_the_rank_of_a_document(
    own: ServiceProcess, queries: NDArray[np.float32]
) -> None:
    second = by_vector(own, queries[3], min_results=2)["results"][1]
    with TaugateClient(str(own.http.base_url)) as client:
        explanation = client.explain(None, second["id"], vector=queries[3].tolist())
    assert (explanation.rank, explanation.score) == (2, second["score"])
    assert explanation.truncated is None


def test_client_searches_by_vector_and_judges_the_result(own: ServiceProcess, queries: NDArray[np.float32]) -> None:
    with TaugateClient(str(own.http.base_url)) as client:
        reply = client.search(vector=queries[4].tolist(), explore=False)
        assert [result.id for result in reply.results]
        assert client.feedback(reply.query_id, reply.results[0].id, relevant=True).status == "accepted"
        (same,) = client.search_batch([{"vector": queries[4].tolist(), "explore": False}])
        assert [result.id for result in same.results] == [result.id for result in reply.results]
        with pytest.raises(InvalidRequest, match="has no encoder"):
            client.search("How do I pay?")


def test_vectors_count_for_coe_roe_and_the_canary_as_texts_do(
    own: ServiceProcess, queries: NDArray[np.float32]
) -> None:
    for row in range(300):
        by_vector(own, queries[row])
    until(lambda: 0 <= scrape(own)["taugate_roe{}"] <= 1)
    assert scrape(own)["taugate_overlap_samples{topk}"] > 0


def test_equal_vectors_share_the_cache_of_replicas_and_others_do_not(
    own_releases: Path, queries: NDArray[np.float32], tmp_path: Path
) -> None:
    with RedisProcess(tmp_path) as redis:
        shared = {"TAUGATE_REDIS_URL": redis.url, "TAUGATE_REDIS_TIMEOUT_MS": "500", "TAUGATE_CACHE_BYTES": "0"}
        with ServiceProcess(own_releases, **shared) as one, ServiceProcess(own_releases, **shared) as two:
            one.ready()
            two.ready()

            # The first use of Redis may time out, after which nothing is written for a while.
            def is_shared() -> bool:
                by_vector(one, queries[0])
                return len(list(redis.client.scan_iter("taugate:*:found:*"))) == 1

            until(is_shared)
            first = by_vector(one, queries[0])
            assert not list(redis.client.scan_iter("taugate:*:vector:*")), "a vector that is sent need not be kept"
            assert by_vector(two, queries[0]) | CHANGING == first | CHANGING
            until(lambda: by_vector(two, queries[0]) and scrape(two)["taugate_cache_requests_total{hit}"] > 0)
            assert by_vector(two, queries[1]) | CHANGING != first | CHANGING


def test_shadow_with_vectors_of_the_same_length_is_compared(
    data: Path, own_releases: Path, encoder: Path, queries: NDArray[np.float32], tmp_path: Path
) -> None:
    releases = tmp_path / "releases"
    shutil.copytree(own_releases, releases)
    calibrated(data, releases, "--k", "3", "--no-promote")
    shadow = max(path.name for path in releases.glob("2*"))
    assert cli.main(["release", "shadow", shadow, "--releases", str(releases)]) == 0
    with ServiceProcess(releases, TAUGATE_SHADOW_SHARE="1") as service:
        service.ready()
        until(lambda: by_vector(service, queries[9]) and scrape(service)["taugate_shadow_queries_total{compared}"] > 0)
        assert scrape(service)["taugate_shadow_queries_total{failed}"] == 0


def test_python_retriever_searches_a_release_by_vector(own_releases: Path, queries: NDArray[np.float32]) -> None:
    with taugate.open(own_releases) as retriever:
        found = retriever.search(vector=queries[5].tolist())
        assert found.results
        with pytest.raises(NoEncoder, match="has no encoder"):
            retriever.search("How do I pay?")
        with pytest.raises(InputError, match="vector: Field required"):
            retriever.search()


def test_hybrid_release_needs_the_text_beside_the_vector(
    data: Path, encoder: Path, queries: NDArray[np.float32], texts: list[str], tmp_path: Path
) -> None:
    own = calibrated(data, tmp_path / "own", "--lexical", "0.5")
    encoded = calibrated(data, tmp_path / "encoded", "--lexical", "0.5", "--encoder", str(encoder))
    with taugate.open(own) as by_vectors, taugate.open(encoded) as by_texts:
        for row in ROWS:
            reply = by_vectors.search(texts[row], vector=queries[row].tolist())
            expected = by_texts.search(texts[row])
            assert reply.results == expected.results
        with pytest.raises(InputError, match="depends on words"):
            by_vectors.search(vector=queries[0].tolist())


def test_second_stage_reads_the_text_beside_the_vector(
    data: Path, encoder: Path, queries: NDArray[np.float32], texts: list[str], tmp_path: Path
) -> None:
    options = ("--lexical", "off", "--rerank", str(write_fake_reranker(tmp_path / "reranker", texts)))
    own, encoded = tmp_path / "own", calibrated(data, tmp_path / "encoded", *options, "--encoder", str(encoder))
    calibrated(data, own, *options)
    first = verify_searchable(find(own)).first_stage.policy
    with taugate.open(own) as by_vectors, taugate.open(encoded) as by_texts:
        for row in ROWS:
            reply, expected = by_vectors.search(texts[row], vector=queries[row].tolist()), by_texts.search(texts[row])
            assert (reply.stage, reply.threshold) == ("second", expected.threshold)
            assert reply.results == expected.results
            alone = by_vectors.search(vector=queries[row].tolist())
            assert (alone.stage, alone.threshold) == ("first", pytest.approx(first.tau))


def test_damaged_golden_vector_keeps_the_release_from_loading(own_releases: Path, tmp_path: Path) -> None:
    releases = tmp_path / "releases"
    shutil.copytree(own_releases, releases)
    golden = find(releases) / "golden.jsonl"
    golden.write_text(golden.read_text().replace('"vector":[', '"vector":[9.0,', 1))
    assert cli.main(["release", "verify", "--releases", str(releases)]) != 0
