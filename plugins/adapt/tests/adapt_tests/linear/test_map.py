"""The map, the whitening and the adapter on vectors whose answer is known."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.comparison.measures import general_set
from taugate.calibration.export.model_folder import PROBES
from taugate.policy.arrays import Float32
from taugate.release.adaptation import WhiteningRecord
from taugate.release.encoder import LAYOUT, MODEL
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate_adapt.folder import fold_linear_map
from taugate_adapt.linear import LinearMap, PrincipalComponents
from tests.calibration.comparison.test_encoders import encoded  # noqa: F401 (a fixture)
from tests.calibration.export.test_weights_file import WIDTH, separate  # noqa: F401 (a fixture)

RNG = np.random.default_rng(0)


def units(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def vectors(count: int = 400, dimension: int = 6) -> np.ndarray:
    """Unit vectors that share a direction, and vary far more in some directions than in others."""
    scales = np.geomspace(1, 0.05, dimension)
    return units(RNG.standard_normal((count, dimension)) * scales + np.ones(dimension))


def test_map_is_affine_and_normalised() -> None:
    weight, bias = RNG.standard_normal((4, 4)), RNG.standard_normal(4)
    rows = RNG.standard_normal((5, 4)).astype(np.float32)
    expected = rows @ weight.T + bias
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert LinearMap.from_float64(weight, bias).apply(rows) == pytest.approx(expected, abs=1e-5)


def test_composed_maps_are_one_map() -> None:
    first = LinearMap.from_float64(RNG.standard_normal((4, 4)), RNG.standard_normal(4))
    second = RNG.standard_normal((4, 4)).astype(np.float32)
    rows = RNG.standard_normal((5, 4)).astype(np.float32)
    both = LinearMap(second, np.zeros(4, dtype=np.float32)).apply(first.apply(rows))
    assert first.then(second).apply(rows) == pytest.approx(both, abs=1e-5)


def test_full_whitening_equalises_variances() -> None:
    rows = vectors(20_000)
    complete = PrincipalComponents.fit(rows).whitening(WhiteningRecord(centring=1, exponent=0.5))
    images = rows @ complete.weight.T + complete.bias
    variances = np.linalg.eigvalsh(np.cov(images.T))
    assert images.mean(axis=0) == pytest.approx(0, abs=1e-4)
    assert variances.max() / variances.min() < 1.1


def test_zero_whitening_changes_nothing() -> None:
    rows = vectors()
    nothing = PrincipalComponents.fit(rows).whitening(WhiteningRecord(centring=0, exponent=0))
    assert nothing.apply(rows) == pytest.approx(rows, abs=1e-6)


def test_constant_component_stays_finite() -> None:
    rows = vectors()
    rows[:, 0] = 0
    learned = PrincipalComponents.fit(rows).whitening(WhiteningRecord(centring=1, exponent=0.5))
    assert np.isfinite(learned.apply(rows)).all()


@pytest.mark.model
def test_map_folds_into_separate_weights(separate: Path, tmp_path: Path) -> None:  # noqa: F811
    expected = ExportedEncoder.load(separate).encode(PROBES, "query")
    shutil.copytree(separate, tmp_path / "mapped", ignore=shutil.ignore_patterns("model*", LAYOUT))
    fold_linear_map(
        separate / MODEL, np.eye(WIDTH, dtype=np.float32), np.zeros(WIDTH, np.float32), tmp_path / "mapped" / MODEL
    )
    mapped = ExportedEncoder.load(tmp_path / "mapped").encode(PROBES, "query")
    np.testing.assert_allclose(mapped, expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.model
def test_ruined_encoder_has_forgotten(encoded: tuple[Float32, Float32]) -> None:  # noqa: F811
    general = general_set()
    base, dimension = general.judge(*encoded), encoded[0].shape[1]
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((dimension, dimension))
    few = np.linalg.qr(rng.standard_normal((dimension, 20)))[0]
    mild = PrincipalComponents.fit(encoded[0]).whitening(WhiteningRecord(centring=1, exponent=0.1))
    ruined = [np.eye(dimension) + 0.1 * noise, few @ few.T]
    for weight in ruined:
        learned = LinearMap.from_float64(weight, np.zeros(dimension))
        record = general.compare(base, general.judge(*map(learned.apply, encoded)))
        assert record.lost
        assert record.ndcg.after < record.ndcg.before
        assert record.ndcg.change.lower < record.ndcg.change.mean < record.ndcg.change.upper < 0
    record = general.compare(base, general.judge(*map(mild.apply, encoded)))
    assert not record.lost
    assert abs(record.ndcg.change.mean) < 0.03
