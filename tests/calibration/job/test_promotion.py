"""What is promoted after a calibration, and what is refused before it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from taugate.calibration.encoding import source
from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.cli import main as cli
from taugate.registry import history
from taugate.registry.catalog import current_id, release_ids
from taugate.registry.history import CALIBRATION_LOCK, calibration_lock
from taugate.release.encoder import MODEL
from tests.calibration.commands import Printed, arguments, refusal, small
from tests.fake_encoder import write_fake_encoder


@pytest.fixture
def copy(releases: Path, tmp_path: Path) -> Path:
    return shutil.copytree(releases, tmp_path / "releases")


@pytest.fixture
def another(tmp_path: Path, sample: Path) -> Path:
    return write_fake_encoder(tmp_path / "another", texts(sample), seed=1)


def texts(sample: Path) -> list[str]:
    return (sample / "corpus.jsonl").read_text(encoding="utf-8").splitlines()


def failure(arguments: list[str], capfd: Printed) -> str:
    capfd.readouterr()
    assert cli.main(arguments) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    (said,) = [line for line in printed.err.splitlines() if line.startswith("taugate: ")]
    return said


@pytest.mark.slow
def test_named_encoder_may_replace_another(sample: Path, encoder: Path, another: Path, copy: Path) -> None:
    for named in (another, encoder):
        before = set(release_ids(copy))
        assert cli.main(arguments(sample, copy, named)) == 0
        assert {current_id(copy)} == set(release_ids(copy)) - before
    assert [event.forced for event in history.read(copy).events] == [(), ("new encoder",), ("new encoder",)]


def test_default_encoder_cannot_replace_another(
    sample: Path, copy: Path, capfd: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said before any work: nothing is exported, read or written."""
    monkeypatch.setattr(source, "_export", lambda *_: pytest.fail("exported"))
    before = sorted(path.name for path in copy.iterdir())
    said = failure(["calibrate", str(sample), "--releases", str(copy)], capfd)
    assert said == (
        f"taugate: {copy}: the current release was encoded by fake, not by {DEFAULT_ENCODER}; name the encoder to be "
        "used from now on with --encoder, or give --no-promote"
    )
    assert sorted(path.name for path in copy.iterdir()) == before


@pytest.fixture
def default(another: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An encoder that passes for the default one."""
    config = (another / "encoder.json").read_text(encoding="utf-8")
    (another / "encoder.json").write_text(config.replace('"fake"', f'"{DEFAULT_ENCODER}"'), encoding="utf-8")
    monkeypatch.setattr(source, "exported_encoder", lambda name, _: another if name == DEFAULT_ENCODER else Path(name))
    return another


def test_no_promote_accepts_any_encoder(sample: Path, copy: Path, default: Path) -> None:
    before = current_id(copy)
    assert cli.main(["calibrate", str(sample), "--releases", str(copy), "--no-promote"]) == 0
    assert len(release_ids(copy)) == 2
    assert current_id(copy) == before


@pytest.mark.slow
def test_different_export_is_rejected(sample: Path, tmp_path: Path, default: Path, capfd: Printed) -> None:
    plain = ["calibrate", str(sample), "--releases", str(tmp_path / "r")]
    assert cli.main(plain) == 0
    assert cli.main(plain) == 0, "the same export"
    write_fake_encoder(default, texts(sample), seed=2)
    config = (default / "encoder.json").read_text(encoding="utf-8")
    (default / "encoder.json").write_text(config.replace('"fake"', f'"{DEFAULT_ENCODER}"'), encoding="utf-8")
    before = release_ids(tmp_path / "r")
    said = failure(plain, capfd)
    assert f"another export of {DEFAULT_ENCODER}" in said
    assert "--encoder" in said
    assert release_ids(tmp_path / "r") == before
    assert cli.main([*plain, "--encoder", DEFAULT_ENCODER]) == 0


def test_refused_promotion_keeps_release(
    sample: Path, encoder: Path, copy: Path, capfd: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work took long; its release is there, and named."""
    before = current_id(copy)

    def full(*_: object) -> None:
        raise OSError("history.jsonl: cannot be written")

    monkeypatch.setattr("taugate.registry.history.record", full)
    assert cli.main(arguments(sample, copy, encoder, "--seed", "1")) == 1
    (name,) = set(release_ids(copy)) - {before}
    error = capfd.readouterr().err.splitlines()
    assert error[-2:] == [
        f"warning: {copy / name} is written but not promoted:",
        "taugate: history.jsonl: cannot be written",
    ]
    assert current_id(copy) == before
    monkeypatch.undo()
    assert cli.main(["release", "promote", "--releases", str(copy), name]) == 0


def test_concurrent_calibration_is_rejected(
    sample: Path, encoder: Path, copy: Path, tmp_path: Path, capfd: Printed
) -> None:
    before = sorted(path.name for path in copy.iterdir())
    with calibration_lock(copy):
        said = failure(arguments(sample, copy, encoder), capfd)
        assert f"process {os.getpid()} on " in said
        assert "is calibrating into it; wait until that is done" in said
        assert cli.main(arguments(sample, tmp_path / "elsewhere", encoder)) == 0
    assert sorted(path.name for path in copy.iterdir()) == before
    assert cli.main(arguments(sample, copy, encoder)) == 0


def holder(copy: Path) -> str:
    """Written once the lock is had."""
    try:
        return (copy / CALIBRATION_LOCK).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


@pytest.mark.slow
def test_killed_calibration_releases_lock(sample: Path, encoder: Path, copy: Path, capfd: Printed) -> None:
    command = [sys.executable, "-m", "taugate", *arguments(sample, copy, encoder, "--seed", "1")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not holder(copy):
            assert process.poll() is None, "it ended without a lock"
            time.sleep(0.001)
        process.send_signal(signal.SIGSTOP)
        said = failure(arguments(sample, copy, encoder), capfd)
        assert f"process {process.pid} on " in said
        process.send_signal(signal.SIGKILL)
    assert cli.main(arguments(sample, copy, encoder)) == 0


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
def test_invalid_setting_is_rejected(row: tuple, sample: Path, encoder: Path, tmp_path: Path, capfd: Printed) -> None:
    more, named, says = row
    message = refusal(arguments(sample, tmp_path / "r", encoder, *more), tmp_path / "r", capfd)
    assert message.startswith(named)
    assert says in message
    assert list(tmp_path.iterdir()) == []


def test_too_few_queries_for_relevance_model(tmp_path: Path, capfd: Printed) -> None:
    data, encoder = small(tmp_path, 29)
    asked = arguments(data, tmp_path / "r", encoder, "--policy", "probability", "--max-loss", "0.2", "--holdout", "0")
    message = refusal(asked, tmp_path / "r", capfd)
    for part in ("--policy probability", "at least 30", "29", "--policy similarity"):
        assert part in message


@pytest.mark.parametrize("policy", ["auto", "similarity"])
def test_queries_without_hits(policy: str, tmp_path: Path, capfd: Printed) -> None:
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
def test_equal_scores_are_handled(weights: Callable, more: list[str], tmp_path: Path, capfd: Printed) -> None:
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
def test_nan_embeddings_are_rejected(more: list[str], tmp_path: Path, capfd: Printed) -> None:
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
