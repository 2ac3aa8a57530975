"""The three parts share no query, leave none out, and draw nothing that the contract speaks of."""

import numpy as np
import pytest

from calibration.metrics.bootstrap import Draw, Split
from calibration.relevance.parts import FEWEST_QUERIES, Parts
from calibration.settings import CalibrationSettings


@pytest.mark.parametrize("size", [FEWEST_QUERIES, 31, 100, 352, 5001])
@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_every_calibration_query_has_exactly_one_role(size: int, seed: int) -> None:
    calibration = np.sort(np.random.default_rng(size).choice(3 * size, size=size, replace=False))
    parts = Parts.of(calibration, seed)
    everyone = [*parts.fit.tolist(), *parts.choose.tolist(), *parts.certify.tolist()]
    assert len(everyone) == len(set(everyone))
    assert sorted(everyone) == calibration.tolist()
    for part in (parts.fit, parts.choose, parts.certify):
        assert len(part)
        assert (np.diff(part) > 0).all()


def test_the_shares_are_those_of_the_docstring() -> None:
    parts = Parts.of(np.arange(1000), 0)
    assert (len(parts.fit), len(parts.choose), len(parts.certify)) == (350, 50, 600)


def test_the_seed_alone_decides() -> None:
    calibration = np.arange(5, 500, 3)
    first, again, other = Parts.of(calibration, 7), Parts.of(calibration, 7), Parts.of(calibration, 8)
    assert np.array_equal(first.fit, again.fit)
    assert np.array_equal(first.certify, again.certify)
    assert not np.array_equal(first.certify, other.certify)


def test_each_part_is_a_random_one() -> None:
    """Over many seeds a query certifies with the same probability wherever it stands in the file."""
    certifies = np.zeros(100)
    for seed in range(400):
        certifies[Parts.of(np.arange(100), seed).certify] += 1
    assert np.abs(certifies / 400 - 0.6).max() < 5 * np.sqrt(0.6 * 0.4 / 400)


def test_the_roles_are_drawn_beside_the_contract_s_draws() -> None:
    """Contract §3: permutation, rows, random documents from default_rng(seed), and nothing in between."""
    n, documents, seed = 200, 37, 11
    settings = CalibrationSettings(bootstraps=20, sample_size=10, seed=seed)
    rng = np.random.default_rng(seed)
    split = Split.of(rng, n, settings.holdout)
    Parts.of(split.calibration, seed)
    draw = Draw.of(rng, len(split.calibration), documents, settings)

    literal = np.random.default_rng(seed)
    order = literal.permutation(n)
    kept = np.sort(order[: n - round(0.3 * n)])
    assert split.calibration.tolist() == kept.tolist()
    assert draw.rows.tolist() == literal.integers(0, len(kept), size=(20, 10)).tolist()
    assert draw.random_documents.tolist() == literal.integers(0, documents, size=len(kept)).tolist()
    assert Parts.of(kept, seed).fit.tolist() != np.sort(order[: len(Parts.of(kept, seed).fit)]).tolist()
