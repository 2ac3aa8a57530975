"""The second stage orders candidates, and lets the first stage answer while the reranker cannot."""

import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taugate.errors import EncoderError, InputError, ReleaseError, RerankerUnavailable
from taugate.policy.arrays import Float32
from taugate.policy.policy import Policy
from taugate.release.encoder import MODEL, TOKENIZER
from taugate.release.layout import TOKEN_VECTORS
from taugate.release.search_records import KnownPair
from taugate.retrieval.documents.store import Document, DocumentStore, DocumentWriter
from taugate.retrieval.encoder.bert import PRECISIONS
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.rerank import late_interaction
from taugate.retrieval.rerank.cross_encoder import CONFIG as CROSS_CONFIG
from taugate.retrieval.rerank.cross_encoder import CrossEncoder
from taugate.retrieval.rerank.endpoint import RerankerEndpoint, endpoint_at
from taugate.retrieval.rerank.late_interaction import (
    CONFIG,
    LateInteraction,
    StoredTokens,
    TokenEncoder,
    TokenVectors,
    coded,
    write_token_vectors,
)
from taugate.retrieval.rerank.stage import Ranked, SecondStage, SecondStageRule, TextReranker
from taugate.storage.tensors import read_tensors, write_tensors
from tests.fake_reranker import write_fake_reranker
from tests.fake_token_encoder import DIMENSION, write_fake_token_encoder
from tests.rerank_server import RerankServer

TEXTS = ["aaaa", "b", "ccc", "dd", "e"]
TOP = TopK(np.array([[0.9, 0.8, 0.7, 0.6, 0.5]], np.float32), np.array([[4, 3, 2, 1, 0]]))


@pytest.fixture
def documents(tmp_path: Path) -> DocumentStore:
    writer = DocumentWriter(tmp_path)
    for place, text in enumerate(TEXTS):
        writer.append(Document(f"d{place}", text))
    writer.close()
    return DocumentStore(tmp_path)


@pytest.fixture
def server() -> Iterator[RerankServer]:
    with RerankServer(lambda query, text: len(text)) as started:
        yield started


def stage(server: RerankServer, documents: DocumentStore, known: Sequence[KnownPair] = ()) -> SecondStage:
    rule = SecondStageRule(5, Policy("similarity", 2.0, 3), None, None)
    return SecondStage(rule, TextReranker(endpoint_at(None, server.url, None), documents), documents, known)


def outcome(second: SecondStage, query: str, seconds: float = 30.0) -> Ranked | str:
    ranked, skipped = second.rank([query], TOP, [time.monotonic() + seconds])
    return ranked[0] if ranked else skipped[0]


def test_candidates_are_in_the_order_of_scores_and_ties_in_that_of_the_first_stage(
    server: RerankServer, documents: DocumentStore
) -> None:
    ranked = outcome(stage(server, documents), "query")
    assert isinstance(ranked, Ranked)
    assert ranked.positions.tolist() == [0, 2, 3, 4, 1]
    assert ranked.scores.tolist() == [4, 3, 2, 1, 1]
    np.testing.assert_array_equal(ranked.first_scores[[2, 0]], np.array([0.8, 0.5], np.float32))


@pytest.mark.parametrize("fault", ["stall", "drip", "flood", "nan", "short", "status"])
def test_fault_of_the_reranker_skips_the_stage_within_the_deadline(
    server: RerankServer, documents: DocumentStore, fault: str
) -> None:
    second, server.fault = stage(server, documents), fault
    assert outcome(second, "query", 0.3) in {"failed", "deadline"}
    sent = len(server.requests)
    assert outcome(second, "another", 0.3) == "paused"
    assert len(server.requests) == sent


@pytest.mark.parametrize("fault", [OverflowError("too large"), KeyError("x"), RuntimeError(), MemoryError()], ids=repr)
def test_exception_of_the_reranker_skips_the_stage(
    server: RerankServer,
    documents: DocumentStore,
    fault: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def score(*_: object) -> Float32:
        raise fault

    monkeypatch.setattr(TextReranker, "score", score)
    assert outcome(stage(server, documents), "query") == "failed"
    (record,) = caplog.records
    assert record.message.startswith("second stage skipped")
    assert record.exc_info, "a fault of the program is logged with its place"


def test_stage_returns_after_a_pause(server: RerankServer, documents: DocumentStore) -> None:
    second, server.fault = stage(server, documents), "nan"
    assert outcome(second, "query") == "failed"
    server.fault = ""
    ranked: Ranked | str = "paused"
    end = time.monotonic() + 60
    while ranked == "paused" and time.monotonic() < end:
        ranked = outcome(second, "query")
    assert isinstance(ranked, Ranked)


def test_other_model_after_a_failure_is_noticed(server: RerankServer, documents: DocumentStore) -> None:
    second, server.fault = stage(server, documents, [KnownPair("query", "d0", 4.0)]), "status"
    assert outcome(second, "query", 0.3) in {"failed", "deadline"}
    server.fault, server.score = "", lambda query, text: -len(text)
    with pytest.raises(RerankerUnavailable, match="another model"):
        second.check()
    end, ranked = time.monotonic() + 60, outcome(second, "query")
    while ranked == "paused" and time.monotonic() < end:
        ranked = outcome(second, "query")
    assert ranked == "failed"


def test_query_without_time_left_costs_no_request(server: RerankServer, documents: DocumentStore) -> None:
    assert outcome(stage(server, documents), "query", -1.0) == "deadline"
    assert not server.requests


PAIRED = ["a permit for a roof", "the roof of a house", "who pays", "a garden wall " * 90]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_fake_reranker(tmp_path / "reranker", PAIRED)


def test_scores_of_a_pair_do_not_depend_on_other_pairs(folder: Path) -> None:
    model = CrossEncoder(folder, 1)
    together = model.score("roof permit", PAIRED)
    alone = [model.score("roof permit", [text])[0] for text in PAIRED]
    np.testing.assert_allclose(together, alone, atol=1e-6)
    assert together.dtype == np.float32
    assert together.argmax() == 0
    np.testing.assert_array_equal(model.score("roof permit", PAIRED[::-1]), together[::-1])
    assert ((together > 0) & (together < 1)).all()


def test_scores_with_identity_are_log_odds(folder: Path, tmp_path: Path) -> None:
    logits = CrossEncoder(write_fake_reranker(tmp_path / "logits", PAIRED, activation="identity"), 1)
    scores = CrossEncoder(folder, 1).score("roof permit", PAIRED)
    np.testing.assert_allclose(1 / (1 + np.exp(-logits.score("roof permit", PAIRED))), scores, atol=1e-6)


def test_deadline_in_the_past_ends_scoring(folder: Path) -> None:
    with pytest.raises(RerankerUnavailable, match="deadline"):
        CrossEncoder(folder, 1).score("roof", PAIRED, time.monotonic() - 1)


def test_no_texts_have_no_scores(folder: Path) -> None:
    assert CrossEncoder(folder, 1).score("roof", []).shape == (0,)


@pytest.mark.parametrize("name", [MODEL, TOKENIZER, CROSS_CONFIG])
def test_damaged_file_is_one_error(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"{}")
    with pytest.raises(EncoderError, match=r"model\.onnx|tokenizer\.json|configuration of a cross-encoder"):
        CrossEncoder(folder, 1)


SENT = [f"text {'long ' * number}" for number in range(40)]


@pytest.fixture
def endpoint_server() -> Iterator[RerankServer]:
    with RerankServer(lambda query, text: len(text) / 1000) as started:
        yield started


def endpoint(endpoint_server: RerankServer, model: str | None = None, key_file: Path | None = None) -> RerankerEndpoint:
    return endpoint_at(model, endpoint_server.url, key_file)


@pytest.mark.parametrize("model", [None, "reranker-v1"])
def test_scores_in_both_dialects_are_in_the_order_of_texts(endpoint_server: RerankServer, model: str | None) -> None:
    scores = endpoint(endpoint_server, model).score("query", SENT)
    np.testing.assert_allclose(scores, [len(text) / 1000 for text in SENT], rtol=1e-6)
    assert sorted(len(body.get("documents") or body["texts"]) for body, _ in endpoint_server.requests) == [8, 32]
    assert {body.get("model") for body, _ in endpoint_server.requests} == {model}


def test_known_pairs_are_not_requested_again(endpoint_server: RerankServer) -> None:
    asked = endpoint(endpoint_server)
    asked.score("query", SENT[:3])
    asked.score("query", [*SENT[:3], "another"])
    assert [body["texts"] for body, _ in endpoint_server.requests] == [SENT[:3], ["another"]]
    asked.forget()
    asked.score("query", SENT[:1])
    assert len(endpoint_server.requests) == 3


def test_key_is_read_from_its_file(endpoint_server: RerankServer, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("secret\n")
    endpoint(endpoint_server, None, file).score("query", ["text"])
    assert endpoint_server.requests[0][1] == "Bearer secret"
    file.write_text("two words")
    with pytest.raises(InputError, match="TAUGATE_RERANK_KEY_FILE"):
        endpoint(endpoint_server, None, file)


@pytest.mark.parametrize("url", ["", "ftp://host", "http://user:word@host", "http://host/?a=b"])
def test_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="TAUGATE_RERANK_URL"):
        endpoint_at(None, url, None)


@pytest.mark.parametrize("fault", ["stall", "drip", "flood", "nan", "short", "status"])
def test_fault_of_the_server_ends_by_the_deadline(endpoint_server: RerankServer, fault: str) -> None:
    endpoint_server.fault = fault
    asked, began = endpoint(endpoint_server), time.monotonic()
    with pytest.raises(RerankerUnavailable):
        asked.score("query", SENT[:3], began + 0.3)
    endpoint_server.fault = ""
    assert asked.score("query", SENT[:3]).shape == (3,)


def test_failure_that_passes_is_tried_again(endpoint_server: RerankServer, monkeypatch: pytest.MonkeyPatch) -> None:
    reply, endpoint_server.fault = endpoint_server.reply, "status"

    def failing_once(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        reply(handler, body)
        endpoint_server.fault = ""

    monkeypatch.setattr(endpoint_server, "reply", failing_once)
    assert endpoint(endpoint_server).score("query", ["text"]).shape == (1,)
    assert len(endpoint_server.requests) == 2


TOKENIZED = ["A permit for a roof.", "?", "the roof of a house", "who pays " * 90, "unrelated words here"]


@pytest.fixture
def model(tmp_path: Path) -> LateInteraction:
    encoder = TokenEncoder(write_fake_token_encoder(tmp_path / "reranker", TOKENIZED[:4]), 1)
    write_token_vectors(
        tmp_path / TOKEN_VECTORS, [coded(text.vectors) for text in encoder.encode(TOKENIZED, "document")]
    )
    return LateInteraction(encoder, TokenVectors(tmp_path / TOKEN_VECTORS, DIMENSION))


def test_scores_are_the_mean_of_largest_similarities(model: LateInteraction) -> None:
    query = model.encoder.encode(["roof permit"], "query")[0].vectors
    documents = [text.vectors for text in model.encoder.encode(TOKENIZED, "document")]
    assert len(query) == 8  # with the tokens of the expansion
    assert [len(document) for document in documents] == [6, 1, 6, 128, 4]  # without punctuation
    expected = [(document @ query.T).max(axis=0).mean() for document in documents]
    scores = model.score("roof permit", np.arange(5))
    np.testing.assert_allclose(scores, expected, atol=1 / 127)
    assert scores.dtype == np.float32
    order = np.array([4, 0, 3])
    np.testing.assert_allclose(model.score("roof permit", order), scores[order], atol=1e-6)
    assert model.score("roof permit", order[:0]).shape == (0,)
    assert not list(Path(model.encoder.folder.parent).glob("*.codes"))


def test_products_have_the_bits_of_plain_c_by_every_path_and_are_those_of_numpy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Documents of one token, of as many as the kernel takes at once, and of more; queries beyond one panel."""
    kernel = pytest.importorskip("taugate_kernel.kernel", reason="needs a compiler at installation")
    rng = np.random.default_rng(0)
    offsets = np.cumsum([0, 1, 64, 65, 200, 3])
    query, tokens = (rng.normal(size=(rows, 192)).astype(np.float32) for rows in (50, offsets[-1]))
    stored, positions = StoredTokens(*coded(tokens), offsets), np.array([4, 0, 2, 1, 3, 2])
    exact = [(tokens[offsets[place] : offsets[place + 1]] @ query.T).max(axis=0) for place in positions]
    results = []
    for path in range(len(kernel.paths(PRECISIONS["int8"]))):
        monkeypatch.setattr(late_interaction, "_FASTEST", path)
        results.append(late_interaction.largest_products(query, stored, positions))
    assert len({result.tobytes() for result in results}) == 1
    np.testing.assert_allclose(results[0], exact, atol=0.5)  # of products of length 14 · 14
    monkeypatch.setattr(late_interaction, "kernel", lambda: None)
    by_numpy = late_interaction.largest_products(query, stored, positions)
    np.testing.assert_allclose(by_numpy, results[0], rtol=1e-5, atol=1e-4)


def test_weights_of_tokens_decide_how_much_each_counts(model: LateInteraction, tmp_path: Path) -> None:
    (query,) = model.encoder.encode(["roof permit"], "query")
    roof = query.ids[1]
    weights = np.full(model.encoder.vocabulary, 1e-6, np.float32)
    weights[roof] = 1
    write_token_vectors(tmp_path / "weighted", [model.vectors[place] for place in range(len(TOKENIZED))], weights)
    vectors = TokenVectors(tmp_path / "weighted", DIMENSION)
    np.testing.assert_allclose(vectors.similarities(query, np.array([0, 2])), 1, atol=1 / 127)
    with pytest.raises(ReleaseError, match="do not fit together"):
        LateInteraction(model.encoder, vectors)  # is not weighted
    vectors.save(tmp_path / "one", [2])
    assert len(TokenVectors(tmp_path / "one", DIMENSION)) == 1


def test_deadline_in_the_past_ends_late_interaction(model: LateInteraction) -> None:
    with pytest.raises(RerankerUnavailable, match="deadline"):
        model.score("roof", np.arange(2), time.monotonic() - 1)


@pytest.mark.parametrize("name", [MODEL, TOKENIZER, CONFIG])
def test_damaged_token_encoder_is_one_error(model: LateInteraction, name: str) -> None:
    (model.encoder.folder / name).write_bytes(b"{}")
    with pytest.raises(EncoderError, match=r"model\.onnx|tokenizer\.json|configuration of a late"):
        TokenEncoder(model.encoder.folder, 1)


def test_token_vectors_that_do_not_fit_are_refused(model: LateInteraction, tmp_path: Path) -> None:
    path = tmp_path / TOKEN_VECTORS
    with pytest.raises(ReleaseError, match="65 dimensions"):
        TokenVectors(path, 65)
    arrays = read_tensors(path)
    for changed in ({"offsets": arrays["offsets"][:-1]}, {"steps": arrays["steps"][1:]}, {"codes": arrays["steps"]}):
        write_tensors(path, arrays | changed)
        with pytest.raises(ReleaseError, match="calibrate again"):
            TokenVectors(path, DIMENSION)
    path.write_bytes(b"")
    with pytest.raises(ReleaseError, match="safetensors"):
        TokenVectors(path, DIMENSION)
