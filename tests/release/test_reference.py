"""The reference file of a release: only what calibration wrote is accepted."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from taugate.errors import ReleaseError
from taugate.registry.catalog import find
from taugate.release.queries import Reference
from taugate.retrieval.reader import load
from tests.drift.similarities import reference


def test_reference_agrees_with_manifest(releases: Path) -> None:
    release = load(find(releases))
    calibration, measured = release.reference, release.manifest.metrics["calibration"]
    assert calibration.kept.mean() / calibration.top.shape[1] == pytest.approx(measured.kept_fraction)
    assert (calibration.kept == 0).mean() == pytest.approx(measured.abstention.answerable_empty)
    assert calibration.correct_kept.mean() == pytest.approx(measured.accuracy_at_tau.mean, abs=0.02)  # bootstrapped
    assert (np.diff(calibration.top, axis=1) <= 0).all()


def test_saved_reference_is_read_back(tmp_path: Path) -> None:
    written = reference(np.random.default_rng(0))
    written.save(tmp_path / "reference.safetensors")
    read = Reference.load(tmp_path / "reference.safetensors")
    for name in ("top", "correct", "random", "kept", "correct_kept"):
        assert (getattr(read, name) == getattr(written, name)).all()


def of_probability() -> Reference:
    """As a release keeps it whose policy is probability."""
    plain = reference(np.random.default_rng(0))
    relevance = np.random.default_rng(1).random(plain.top.shape).astype(np.float32)
    return replace(plain, relevance=relevance, correct_relevance=relevance[:, 0])


def test_probability_reference_keeps_relevance(tmp_path: Path) -> None:
    written = of_probability()
    written.save(tmp_path / "reference.safetensors")
    read = Reference.load(tmp_path / "reference.safetensors")
    assert read.relevance is not None and (read.relevance == written.relevance).all()
    assert read.correct_relevance is not None and (read.correct_relevance == written.correct_relevance).all()


HOSTILE: dict[str, Callable[[dict], dict]] = {
    "one array fewer": lambda arrays: {name: each for name, each in arrays.items() if name != "kept"},
    "one array more": lambda arrays: arrays | {"more": np.zeros(3)},
    "no query": lambda arrays: {name: each[:0] for name, each in arrays.items()},
    "fewer queries": lambda arrays: arrays | {"correct": arrays["correct"][:-1]},
    "one axis": lambda arrays: arrays | {"top": arrays["top"].ravel()},
    "not a number": lambda arrays: arrays | {"random": arrays["random"] * np.nan},
    "float64": lambda arrays: arrays | {"top": arrays["top"].astype(np.float64)},
    "more kept than there are": lambda arrays: arrays | {"kept": arrays["kept"] + 9},
    "kept that are fractions": lambda arrays: arrays | {"kept": arrays["kept"] / 2},
    "numbers for yes and no": lambda arrays: arrays | {"correct_kept": arrays["correct_kept"].astype(np.float32)},
    "half of what relevance takes": lambda arrays: {
        name: each for name, each in arrays.items() if name != "correct_relevance"
    },
    "relevance of other queries": lambda arrays: arrays | {"relevance": arrays["relevance"][1:]},
    "relevance that is no probability": lambda arrays: arrays | {"relevance": arrays["relevance"] + 1},
    "relevance that is no number": lambda arrays: arrays | {"correct_relevance": arrays["correct_relevance"] * np.nan},
    "relevance in float64": lambda arrays: arrays | {"relevance": arrays["relevance"].astype(np.float64)},
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_invalid_reference_is_refused(tmp_path: Path, change: Callable[[dict], dict]) -> None:
    path = tmp_path / "reference.safetensors"
    of_probability().save(path)
    save_file({name: np.ascontiguousarray(each) for name, each in change(load_file(path)).items()}, path)
    with pytest.raises(ReleaseError, match="reference.safetensors: does not hold"):
        Reference.load(path)
