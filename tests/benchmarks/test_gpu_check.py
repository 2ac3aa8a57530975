"""The comparison of a GPU with processors, on a machine without one."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import gpu_check
from benchmarks.gpu_check import KINDS, Found, differences, search
from tests.vectors import unit


@pytest.fixture
def found() -> tuple[Found, np.ndarray]:
    rng = np.random.default_rng(0)
    documents, questions = unit(rng.standard_normal((50, 8))), unit(rng.standard_normal((4, 8)))
    positions = np.argsort(-(questions @ documents.T), axis=1)[:, :3]
    return Found(questions, dict.fromkeys(KINDS, positions), []), documents


def test_equal_results_have_no_differences(found: tuple[Found, np.ndarray]) -> None:
    same, documents = found
    assert set(differences(same, same, documents).values()) == {0}


def test_rank_or_score_that_differs_is_a_difference(found: tuple[Found, np.ndarray]) -> None:
    gpu, documents = found
    swapped = gpu.positions["ivf-flat"].copy()
    swapped[0] = swapped[0, ::-1]
    other = Found(gpu.vectors + np.float32(0.01), gpu.positions | {"ivf-flat": swapped}, [])
    differing = differences(gpu, other, documents)
    assert differing["questions ranked differently, ivf-flat"] == 0.25
    assert differing["questions ranked differently, flat"] == 0
    assert differing["largest difference of a score"] > 1e-3


def test_second_process_searches_indexes_of_first(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_check, "_LISTS", 2)
    texts = [f"the buyer of part {number} is liable" for number in range(200)]
    data, work = tmp_path / "data", tmp_path / "work"
    data.mkdir()
    work.mkdir()
    (data / "corpus.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (data / "queries.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[:9]))
    first, second = search(encoder, work, data), search(encoder, work, data)
    assert first.copied == []
    documents = np.zeros((200, first.vectors.shape[1]), dtype=np.float32)
    assert set(differences(first, second, documents).values()) == {0}


def test_without_gpu_script_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_check"])
    monkeypatch.setattr(gpu_check, "gpu_count", lambda: 0)
    with pytest.raises(SystemExit, match="2"):
        gpu_check.main()
    assert "no GPU" in capsys.readouterr().err
