"""Late interaction scores documents by stored vectors: MaxSim within the rounding of one byte per component."""

import time
from pathlib import Path

import numpy as np
import pytest

from taugate.errors import EncoderError, ReleaseError, RerankerUnavailable
from taugate.release.encoder import MODEL, TOKENIZER
from taugate.release.layout import TOKEN_VECTORS
from taugate.retrieval.encoder.bert import PRECISIONS
from taugate.retrieval.rerank import late_interaction
from taugate.retrieval.rerank.late_interaction import (
    CONFIG,
    LateInteraction,
    StoredTokens,
    TokenEncoder,
    TokenVectors,
    coded,
    write_token_vectors,
)
from taugate.storage.tensors import read_tensors, write_tensors
from tests.fake_token_encoder import DIMENSION, write_fake_token_encoder

TEXTS = ["A permit for a roof.", "?", "the roof of a house", "who pays " * 90, "unrelated words here"]


@pytest.fixture
def model(tmp_path: Path) -> LateInteraction:
    encoder = TokenEncoder(write_fake_token_encoder(tmp_path / "reranker", TEXTS[:4]), 1)
    write_token_vectors(tmp_path / TOKEN_VECTORS, [coded(text.vectors) for text in encoder.encode(TEXTS, "document")])
    return LateInteraction(encoder, TokenVectors(tmp_path / TOKEN_VECTORS, DIMENSION))


def test_scores_are_the_mean_of_largest_similarities(model: LateInteraction) -> None:
    query = model.encoder.encode(["roof permit"], "query")[0].vectors
    documents = [text.vectors for text in model.encoder.encode(TEXTS, "document")]
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
    write_token_vectors(tmp_path / "weighted", [model.vectors[place] for place in range(len(TEXTS))], weights)
    vectors = TokenVectors(tmp_path / "weighted", DIMENSION)
    np.testing.assert_allclose(vectors.similarities(query, np.array([0, 2])), 1, atol=1 / 127)
    with pytest.raises(ReleaseError, match="do not fit together"):
        LateInteraction(model.encoder, vectors)  # is not weighted
    vectors.save(tmp_path / "one", [2])
    assert len(TokenVectors(tmp_path / "one", DIMENSION)) == 1


def test_deadline_in_the_past_ends_scoring(model: LateInteraction) -> None:
    with pytest.raises(RerankerUnavailable, match="deadline"):
        model.score("roof", np.arange(2), time.monotonic() - 1)


@pytest.mark.parametrize("name", [MODEL, TOKENIZER, CONFIG])
def test_damaged_file_is_one_error(model: LateInteraction, name: str) -> None:
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
