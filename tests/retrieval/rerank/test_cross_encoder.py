"""An exported cross-encoder scores each pair alone, reads its clock, and refuses what is none."""

import time
from pathlib import Path

import numpy as np
import pytest

from taugate.errors import EncoderError, RerankerUnavailable
from taugate.release.encoder import MODEL, TOKENIZER
from taugate.retrieval.rerank.cross_encoder import CONFIG, CrossEncoder
from tests.fake_reranker import write_fake_reranker

TEXTS = ["a permit for a roof", "the roof of a house", "who pays", "a garden wall " * 90]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_fake_reranker(tmp_path / "reranker", TEXTS)


def test_scores_of_a_pair_do_not_depend_on_other_pairs(folder: Path) -> None:
    model = CrossEncoder(folder, 1)
    together = model.score("roof permit", TEXTS)
    alone = [model.score("roof permit", [text])[0] for text in TEXTS]
    np.testing.assert_allclose(together, alone, atol=1e-6)
    assert together.dtype == np.float32
    assert together.argmax() == 0
    np.testing.assert_array_equal(model.score("roof permit", TEXTS[::-1]), together[::-1])
    assert ((together > 0) & (together < 1)).all()


def test_scores_with_identity_are_log_odds(folder: Path, tmp_path: Path) -> None:
    logits = CrossEncoder(write_fake_reranker(tmp_path / "logits", TEXTS, activation="identity"), 1)
    scores = CrossEncoder(folder, 1).score("roof permit", TEXTS)
    np.testing.assert_allclose(1 / (1 + np.exp(-logits.score("roof permit", TEXTS))), scores, atol=1e-6)


def test_deadline_in_the_past_ends_scoring(folder: Path) -> None:
    with pytest.raises(RerankerUnavailable, match="deadline"):
        CrossEncoder(folder, 1).score("roof", TEXTS, time.monotonic() - 1)


def test_no_texts_have_no_scores(folder: Path) -> None:
    assert CrossEncoder(folder, 1).score("roof", []).shape == (0,)


@pytest.mark.parametrize("name", [MODEL, TOKENIZER, CONFIG])
def test_damaged_file_is_one_error(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"{}")
    with pytest.raises(EncoderError, match=r"model\.onnx|tokenizer\.json|configuration of a cross-encoder"):
        CrossEncoder(folder, 1)
