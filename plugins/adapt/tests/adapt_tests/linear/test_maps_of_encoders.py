"""Maps of an encoder: folded into weights in a file of their own, and so wild that it forgets everyday words."""

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
