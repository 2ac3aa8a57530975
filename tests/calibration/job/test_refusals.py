"""What `taugate calibrate` refuses, with one message and nothing written."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from taugate.release.encoder import MODEL
from tests.calibration.commands import arguments, refusal, small

# What is asked for, the option that the message names, and what it says of it.
SETTINGS = [
    (["--k", "504", "--max-loss", "0.05"], "--k 504", "only 503 documents"),
    (["--confidence", "1"], "--confidence 1.0", "below 1"),
    (["--confidence", "0.3"], "--confidence 0.3", "0.5 or more"),
    (["--max-loss", "-0.1"], "--max-loss -0.1", "above 0 and below 1"),
    (["--max-loss", "0"], "--max-loss 0.0", "above 0 and below 1"),
    (["--max-loss", "1"], "--max-loss 1.0", "above 0 and below 1"),
    (["--max-loss", "nan"], "--max-loss nan", "above 0 and below 1"),
    (["--max-loss", "0.01,2"], "--max-loss 2.0", "above 0 and below 1"),
    (["--max-loss", "0.01,0.02,0.01"], "--max-loss 0.01,0.02,0.01", "the same loss is given twice"),
    (["--max-loss", "0.05", "--max-empty", "0"], "--max-empty 0.0", "above 0 and below 1"),
    (["--method", "bootstrap", "--max-loss", "0.05"], "--max-loss", "certifies nothing"),
    (["--method", "bootstrap", "--policy", "relative"], "--policy relative", "certifies nothing"),
    (["--method", "non-inferiority", "--guarantee", "expected-loss"], "--guarantee", "risk-control"),
]


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: " ".join(row[0]))
def test_invalid_setting_is_rejected(
    row: tuple, sample: Path, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    more, named, says = row
    message = refusal(arguments(sample, tmp_path / "r", encoder, *more), tmp_path / "r", capfd)
    assert message.startswith(named)
    assert says in message
    assert list(tmp_path.iterdir()) == []


def test_too_few_queries_for_relevance_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data, encoder = small(tmp_path, 29)
    asked = arguments(data, tmp_path / "r", encoder, "--policy", "probability", "--max-loss", "0.2", "--holdout", "0")
    message = refusal(asked, tmp_path / "r", capfd)
    for part in ("--policy probability", "at least 30", "29", "--policy similarity"):
        assert part in message


@pytest.mark.parametrize("more", [[], ["--max-loss", "0.05"]], ids=["papers", "certified"])
def test_only_unanswerable_queries_are_rejected(
    more: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data, encoder = small(tmp_path, 40, grade=lambda row: 0)
    message = refusal(arguments(data, tmp_path / "r", encoder, *more), tmp_path / "r", capfd)
    assert message.startswith(f"{data / 'qrels' / 'test.tsv'}: ")
    assert "no query has a document with score 1 or more" in message


@pytest.mark.parametrize("policy", ["auto", "similarity"])
def test_queries_without_hits(policy: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data, encoder = small(tmp_path, 60)
    path = data / "qrels" / "test.tsv"
    header, *rows = path.read_text(encoding="utf-8").splitlines()
    wrong = [row.replace("\td", "\tx") for row in rows]  # every query is said to be answered by a text of unknown words
    with (data / "corpus.jsonl").open("a", encoding="utf-8") as corpus:
        corpus.writelines(json.dumps({"_id": f"x{row}", "text": f"unheard{row}"}) + "\n" for row in range(60))
    path.write_text("\n".join([header, *wrong]) + "\n", encoding="utf-8")
    asked = arguments(data, tmp_path / "r", encoder, "--policy", policy, "--max-loss", "0.1", "--k", "3")
    message = refusal(asked, tmp_path / "r", capfd)
    for part in ("none of the 42 calibration queries", "top 3", "qrels"):
        assert part in message


def with_weights(encoder: Path, change: Callable[[np.ndarray], np.ndarray]) -> Path:
    """The encoder with other word vectors."""
    model = onnx.load(encoder / MODEL)
    (weights,) = (each for each in model.graph.initializer if each.name == "weights")
    weights.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(weights).copy()), "weights"))
    onnx.save(model, encoder / MODEL)
    return encoder


def one_direction(weights: np.ndarray) -> np.ndarray:
    """Every text has the first unit vector, exactly."""
    weights[:] = 0
    weights[:, 0] = 1
    return weights


def one_vector(weights: np.ndarray) -> np.ndarray:
    """Every text has the same vector up to rounding: a sum of equal vectors, divided by its length."""
    weights[:] = weights[1]
    return weights


RULES = pytest.mark.parametrize("more", [[], ["--max-loss", "0.05"]], ids=["papers", "certified"])


@RULES
@pytest.mark.parametrize("weights", [one_direction, one_vector])
def test_equal_scores_are_handled(
    weights: Callable, more: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data, encoder = small(tmp_path, 100)
    with (data / "queries.jsonl").open("a", encoding="utf-8") as queries:  # texts of other lengths, other roundings
        queries.writelines(json.dumps({"_id": f"p{n}", "text": "word1 " * n}) + "\n" for n in range(1, 20))
    with (data / "qrels" / "test.tsv").open("a", encoding="utf-8") as qrels:
        qrels.writelines(f"p{n}\td{n}\t1\n" for n in range(1, 20))
    asked = arguments(data, tmp_path / "r", with_weights(encoder, weights), *more)
    message = refusal(asked, tmp_path / "r", capfd)
    assert "every similarity is 1" in message
    assert "no threshold can separate documents" in message


@RULES
def test_nan_embeddings_are_rejected(more: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data, encoder = small(tmp_path, 60)

    def one_word_is_nan(weights: np.ndarray) -> np.ndarray:
        weights[7] = np.nan
        return weights

    asked = arguments(data, tmp_path / "r", with_weights(encoder, one_word_is_nan), *more)
    message = refusal(asked, tmp_path / "r", capfd)
    assert "NaN" in message
    assert "fake" in message, "which encoder"
    wrong, _, remedy = message.partition("; ")
    assert wrong
    assert remedy, "what to do"
