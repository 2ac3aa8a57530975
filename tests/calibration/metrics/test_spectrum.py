"""The power law of a spectrum agrees with a literal transcription of the query embeddings paper, Appendix A."""

import math

import numpy as np
import pytest
from scipy import stats

from taugate.calibration.metrics.embeddings import MIN_TAIL, PowerLaw, power_law, spectrum
from tests.vectors import unit

RANKS = np.arange(1, 121)
SPECTRA = {
    "bent": 1 / (1 + RANKS**2 / 400),
    "exponential": np.exp(-RANKS / 15),
    "noisy": np.sort(RANKS**-1.2 * np.random.default_rng(0).lognormal(0, 0.1, len(RANKS)))[::-1].copy(),
    "as few as can be": np.geomspace(1, 0.01, MIN_TAIL),
}
spectra = pytest.mark.parametrize("eigenvalues", SPECTRA.values(), ids=SPECTRA)


def test_spectrum_equals_covariance_eigenvalues() -> None:
    vectors = unit(np.random.default_rng(0).standard_normal((90, 12)) * np.geomspace(1, 0.1, 12) + 0.5)
    x = vectors.astype(np.float64)
    centred = x - x.mean(axis=0)
    covariance = centred.T @ centred / (len(x) - 1)
    assert spectrum(vectors) == pytest.approx(sorted(np.linalg.eigvals(covariance).real, reverse=True), abs=1e-9)


def test_zero_variance_directions_are_omitted() -> None:
    rng = np.random.default_rng(0)
    assert len(spectrum(unit(rng.standard_normal((7, 30))))) == 6  # n vectors vary in n − 1 directions
    flat = unit(np.pad(rng.standard_normal((200, 10)), ((0, 0), (0, 20))))
    assert len(spectrum(flat)) == 10
    assert len(spectrum(np.tile(flat[:1], (5, 1)))) == 0


def paper(eigenvalues: list[float]) -> dict[str, float]:
    """Appendix A word by word: the tail of the smallest KS distance, by least squares on log–log scales."""
    best: dict[str, float] = {"ks": math.inf}
    for k_min in range(1, len(eigenvalues) - 10 + 2):
        ranks = list(range(k_min, len(eigenvalues) + 1))
        tail = [eigenvalues[k - 1] for k in ranks]
        line = stats.linregress([math.log(k) for k in ranks], [math.log(value) for value in tail])
        curve = [math.exp(line.intercept + line.slope * math.log(k)) for k in ranks]
        ks = max(abs(sum(tail[: i + 1]) / sum(tail) - sum(curve[: i + 1]) / sum(curve)) for i in range(len(ranks)))
        if ks < best["ks"]:
            room = stats.t.ppf(0.975, len(ranks) - 2) * line.stderr
            beta = -line.slope
            best = {"ks": ks, "first": k_min, "beta": beta, "lower": beta - room, "upper": beta + room}
            best["r_squared"] = line.rvalue**2
    return best


@spectra
def test_power_law_equals_paper_fit(eigenvalues: np.ndarray) -> None:
    law, expected = power_law(eigenvalues), paper(eigenvalues.tolist())
    assert law is not None
    interval = law.interval
    result = {
        "ks": law.distance,
        "first": law.first,
        "beta": interval.mean,
        "lower": interval.lower,
        "upper": interval.upper,
        "r_squared": law.r_squared,
    }
    assert result == pytest.approx(expected, abs=1e-6)


@spectra
def test_p_value_equals_parametric_bootstrap(eigenvalues: np.ndarray) -> None:
    law = power_law(eigenvalues)
    assert law is not None
    rng, ranks = np.random.default_rng(5), np.arange(law.first, law.last + 1)
    further = 0
    for row in rng.uniform(law.first - 0.5, law.last + 0.5, size=(99, len(ranks))):
        drawn = np.sort(np.exp(law.a) * row**-law.beta)[::-1]
        further += PowerLaw.fit(np.concatenate([np.ones(law.first - 1), drawn]), law.first).distance >= law.distance
    assert law.p_value(seed=5, bootstraps=99) == (1 + further) / 100


def test_exact_power_law_keeps_all_ranks() -> None:
    law = power_law(3.0 * RANKS**-1.4)
    assert law is not None
    assert (law.first, law.last) == (1, 120)
    assert law.beta == pytest.approx(1.4, abs=1e-9)
    assert law.r_squared == pytest.approx(1)
    assert law.p_value(seed=0, bootstraps=99) == 1


def test_deviating_head_is_excluded() -> None:
    law = power_law(np.maximum(RANKS, 40.0) ** -2)
    assert law is not None
    assert law.first in (40, 41)
    assert law.beta == pytest.approx(2, abs=0.01)


def test_p_value_is_uniform_under_law() -> None:
    """As many independent values as ranks, drawn from the law: a tenth of the p-values is below a tenth."""
    rng = np.random.default_rng(1)
    p = [
        PowerLaw.fit(np.sort(rng.uniform(0.5, 60.5, 60)) ** -1.5, 1).p_value(seed, bootstraps=199)
        for seed in range(200)
    ]
    assert stats.kstest(p, "uniform").pvalue > 0.01


def test_broken_tail_has_small_p() -> None:
    broken = np.where(RANKS <= 60, 1.0, 0.01)
    assert PowerLaw.fit(broken - 1e-6 * RANKS, 1).p_value(seed=0) < 0.01


def test_short_tail_reaches_paper_slope() -> None:
    """Between rank 759 and 768 log k grows by .012: eigenvalues that fall to a third there give β of about 83."""
    eigenvalues = np.concatenate([np.geomspace(100, 3, 758), np.geomspace(2.7, 1, 10)])
    law = PowerLaw.fit(eigenvalues, 759)
    assert law.beta == pytest.approx(math.log(2.7) / math.log(768 / 759), rel=0.01)
    assert 82.7 - 7.9 < law.beta < 82.7 + 7.9


def test_nine_eigenvalues_have_no_law() -> None:
    assert power_law(np.geomspace(1, 0.1, MIN_TAIL - 1)) is None
    assert power_law(np.empty(0)) is None
