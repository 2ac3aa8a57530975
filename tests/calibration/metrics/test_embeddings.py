"""Measures of embeddings: familiarity, isotropy, separation, the spectrum, and transformations."""

import math

import numpy as np
import pytest
from IsoScore.IsoScore import IsoScore
from scipy import stats

from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.calibration.export.model_folder import PROBES
from taugate.calibration.metrics.embeddings import (
    MIN_TAIL,
    PARAPHRASES,
    QUERIES,
    PowerLaw,
    domain_familiarity,
    full_whitening,
    isotropy,
    power_law,
    separation,
    spectrum,
    standardisation,
    text_familiarity,
    top_removal,
)
from taugate.policy.arrays import Float32
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.vectors import Projection
from tests.vectors import unit


def authors_score(vectors: Float32) -> float:
    return float(IsoScore(vectors.astype(np.float64)))


def gaussian(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d))


CLOUDS = {
    "isotropic": gaussian(3000, 48),
    "a common direction": gaussian(3000, 48) + 3,
    "few directions": gaussian(3000, 48) * np.geomspace(1, 1e-3, 48),
    "more than a block": gaussian(20_000, 16) * np.linspace(1, 2, 16),
    "fewer vectors than dimensions": gaussian(20, 48),
    "almost the same": 1 + 1e-4 * gaussian(500, 48),
}
clouds = pytest.mark.parametrize("cloud", CLOUDS.values(), ids=CLOUDS)


@clouds
def test_i_b_equals_authors_package(cloud: np.ndarray) -> None:
    vectors = unit(cloud)
    assert isotropy(vectors).i_b == pytest.approx(authors_score(vectors), abs=1e-7)


@clouds
def test_i_a_equals_equation_5_by_svd(cloud: np.ndarray) -> None:
    vectors = unit(cloud)
    v = vectors.astype(np.float64)
    sigma = np.linalg.svd(np.pad(v, ((0, max(0, v.shape[1] - len(v))), (0, 0))), compute_uv=False)
    ones = np.linalg.norm(np.ones(len(v)) @ v)
    expected = (len(v) - ones + 0.5 * sigma.min() ** 2) / (len(v) + ones + 0.5 * sigma.max() ** 2)
    assert isotropy(vectors).i_a == pytest.approx(expected, abs=1e-12)


@pytest.mark.model
@pytest.mark.slow
def test_i_b_of_real_embeddings() -> None:
    encoder = ExportedEncoder.load(exported_encoder(DEFAULT_ENCODER))
    vectors = encoder.embed(encoder.tokenize(PROBES, "document"))
    assert isotropy(vectors).i_b == pytest.approx(authors_score(vectors), abs=1e-7)


def test_isotropic_gaussian_scores_near_1() -> None:
    result = isotropy(unit(gaussian(60_000, 24)))
    assert result.i_a > 0.97
    assert result.i_b > 0.99


def test_i_a_of_balanced_axes_is_1() -> None:
    """The axes and their opposites: ‖1ᵀV‖ = 0 and VᵀV = 2·I, so numerator and denominator are both n + 1."""
    axes = np.vstack([np.eye(8), -np.eye(8)]).astype(np.float32)
    assert isotropy(axes).i_a == 1
    assert isotropy(axes).i_b == pytest.approx(1, abs=1e-12)


def test_dominant_direction_scores_near_0() -> None:
    """Vectors on both sides of one axis: IsoScore sees one direction of d; I_A sees σ_max, but no common direction."""
    directed = gaussian(5000, 32) * ([10.0] + [0.01] * 31)
    assert isotropy(unit(directed)).i_b < 1e-3
    # ... and all on one side of it: I_A is at most (n − n) / (2n).
    directed[:, 0] = 10
    assert isotropy(unit(directed)).i_a < 1e-3


def test_equal_vectors_score_0() -> None:
    result = isotropy(np.tile(unit(gaussian(1, 32)), (1000, 1)))
    assert result.i_b == 0
    assert result.i_a == pytest.approx(0, abs=1e-6)


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


def test_separation_equals_paper_definition() -> None:
    """{min ‖E(d), E(d′)‖₂ : d ∈ D, d′ ∈ D′}, with |Δ| = |D|."""
    domain, general = unit(gaussian(70, 24, 1) + 1), unit(gaussian(30, 24, 2))
    paper = []
    for d in domain.tolist():
        distances = [math.sqrt(sum((a - b) ** 2 for a, b in zip(d, e, strict=True))) for e in general.tolist()]
        paper.append(min(distances))
    result = separation(domain, general)
    assert len(result) == len(domain)
    assert result == pytest.approx(paper, abs=1e-6)


def test_separation_of_equal_and_opposite_texts() -> None:
    axes = np.eye(4, dtype=np.float32)
    assert separation(axes[:2], axes[1:3]) == pytest.approx([math.sqrt(2), 0], abs=1e-7)
    assert separation(-axes[:1], axes[:1]) == pytest.approx([2], abs=1e-7)


def test_same_set_ignores_own_distance() -> None:
    axes = np.eye(3, dtype=np.float32)
    assert separation(axes, axes, same=True) == pytest.approx([math.sqrt(2)] * 3)


def test_separation_is_independent_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    domain, general = unit(gaussian(50, 8, 1)), unit(gaussian(20, 8, 2))
    complete, alone = separation(domain, general), separation(domain, domain, same=True)
    monkeypatch.setattr("taugate.calibration.metrics.embeddings._BLOCK_NUMBERS", 150)
    assert separation(domain, general) == pytest.approx(complete, abs=1e-12)
    assert separation(domain, domain, same=True) == pytest.approx(alone, abs=1e-12)


def test_separation_grows_with_distance() -> None:
    """Two clouds around opposite ends of an axis are further apart the tighter they are."""
    towards = np.eye(16)[0]
    near = separation(unit(gaussian(200, 16, 1) + 2 * towards), unit(gaussian(50, 16, 2)))
    far = separation(unit(gaussian(200, 16, 1) + 9 * towards), unit(gaussian(50, 16, 2) - 9 * towards))
    assert near.max() < far.min()


def similarity(x: list[float], y: list[float]) -> float:
    dot = sum(a * b for a, b in zip(x, y, strict=True))
    return dot / math.sqrt(sum(a * a for a in x)) / math.sqrt(sum(b * b for b in y))


def test_familiarity_equals_paper_definition() -> None:
    rng = np.random.default_rng(0)
    texts = rng.standard_normal((QUERIES, 12)).astype(np.float32)  # of any length: sim is the cosine
    paraphrases = (texts[:, None] + rng.standard_normal((QUERIES, PARAPHRASES, 12))).astype(np.float32)
    m, n = len(texts), paraphrases.shape[1]
    tf = [
        sum(similarity(texts[i].tolist(), paraphrases[i, j].tolist()) for j in range(n)) / n  # eq. 5
        for i in range(m)
    ]
    assert text_familiarity(texts, paraphrases) == pytest.approx(tf, abs=1e-6)
    assert domain_familiarity(texts, paraphrases) == pytest.approx(sum(tf) / m, abs=1e-6)  # eq. 6


def test_familiarity_of_equal_and_orthogonal_paraphrases() -> None:
    texts = np.eye(3, dtype=np.float32)
    assert domain_familiarity(texts, np.repeat(texts[:, None], 3, axis=1)) == 1
    assert domain_familiarity(texts, np.repeat(np.roll(texts, 1, axis=0)[:, None], 3, axis=1)) == 0
    half = np.stack([texts, np.roll(texts, 1, axis=0)], axis=1)
    assert text_familiarity(texts, half).tolist() == [0.5, 0.5, 0.5]


@pytest.fixture(scope="module")
def documents() -> Float32:
    """Vectors with a common direction, and one coordinate that never varies."""
    drawn = np.random.default_rng(0).standard_normal((400, 24)) * np.linspace(0.1, 2, 24) + 1
    drawn[:, 5] = 0
    return unit(drawn)


def _moved(documents: Float32, projection: Projection) -> np.ndarray:
    return (documents - projection.mean) @ projection.components


def test_standardisation_gives_coordinates_unit_deviation(documents: Float32) -> None:
    moved = _moved(documents, standardisation(documents))
    assert moved.mean(axis=0) == pytest.approx(0, abs=1e-6)
    assert np.delete(moved.std(axis=0), 5) == pytest.approx(1, abs=1e-5)
    assert not moved[:, 5].any()


def test_whitening_gives_components_unit_variance(documents: Float32) -> None:
    projection = full_whitening(documents)
    covariance = np.cov(_moved(documents, projection).T, bias=True)
    used = np.diag(covariance) > 0.5
    assert used.sum() == 23
    assert covariance[np.ix_(used, used)] == pytest.approx(np.eye(23), abs=1e-4)
    assert isotropy(projection.apply(documents)).i_b > isotropy(documents).i_b


def test_removal_takes_first_component_away(documents: Float32) -> None:
    covariance = np.cov(documents.astype(np.float64).T)
    first = np.linalg.eigh(covariance)[1][:, -1]
    moved = _moved(documents, top_removal(documents))
    assert moved @ first == pytest.approx(0, abs=1e-6)
    assert np.linalg.matrix_rank(moved, tol=1e-3) == 22
