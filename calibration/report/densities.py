"""Densities of S_rand, S_corr and S_topK with the threshold drawn in (thresholds paper, Figure 1)."""

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from taugate.calibration.charts.axis import Axis
from taugate.calibration.charts.chart import Chart
from taugate.calibration.charts.figure import Figure, Key
from taugate.calibration.charts.numbers import fixed
from taugate.calibration.job.study import Findings
from taugate.retrieval.vectors.similarity import Float32

_BINS = 600  # every value counts, in a bin narrower than a pixel; no sample is needed, however many there are
_POINTS = 150
# Narrowest bandwidth as a share of the axis: similarities that are all equal are drawn as a needle with a width.
_NARROWEST = 0.004

_SETS = (
    ("random", "S_rand: the query with a random document"),
    ("correct", "S_corr: the query with its correct document"),
    ("topk", "S_topK: the query with each document it retrieved"),
)


def densities(found: Findings) -> Figure:
    """The three densities of the calibration queries; τ, or τ(ψ) of the papers' rule where τ is no similarity."""
    part = found.parts["calibration"]
    queries = found.scored.judged.take(part.members)
    values = {"random": part.random_scores, "correct": queries.correct, "topk": queries.top.scores.ravel()}
    threshold = similarity_threshold(found)
    every = np.concatenate(
        [*values.values(), *([] if threshold is None else [np.array([threshold[0]], dtype=np.float32)])]
    )
    room = 0.06 * float(np.ptp(every)) or 0.05
    x = Axis(float(every.min()) - room, float(every.max()) + room, "cosine similarity")
    curves = {name: density(each, x.low, x.high) for name, each in values.items()}
    top = max(float(ys.max()) for _, ys in curves.values())
    chart = Chart(
        "densities",
        "Similarities of random, correct and retrieved documents",
        "Three density curves over cosine similarity, of which the random one should lie to the left of the others.",
        x,
        Axis(0, 1.12 * top, "density", form="none"),
    )
    for name, (xs, ys) in curves.items():
        chart.band(xs.tolist(), [0.0] * len(xs), ys.tolist(), f"s-{name}")
    for name, (xs, ys) in curves.items():
        chart.line(xs.tolist(), ys.tolist(), f"s-{name}")
    keys = [Key("line", f"s-{name}", text) for name, text in _SETS]
    if threshold is not None:
        tau, in_force = threshold
        chart.upright(tau, f"{'τ' if in_force else 'τ(ψ)'} = {fixed(tau)}", "tau")
        other = "τ(ψ), the papers' threshold, which is not in force: the policy in force does not cut by similarity"
        keys.append(Key("mark", "tau", "τ, the threshold in force" if in_force else other))
    return Figure.of(chart, keys)


def similarity_threshold(found: Findings) -> tuple[float, bool] | None:
    """The threshold that is a similarity, and whether it is in force; None where no rule gives one."""
    if found.policy.kind == "similarity" and found.policy.tau is not None:
        return found.policy.tau, True
    papers = [each.tau for each in found.alternatives if each.method == "bootstrap" and each.tau is not None]
    return (papers[0], False) if papers else None


def density(values: Float32, low: float, high: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A Gaussian kernel density with Scott's bandwidth, σ·n^(−1/5), as scipy.stats.gaussian_kde has it by default.

    From a fine histogram, so that it costs the same for a million values. Returns positions and densities.
    """
    # In float64: a float32 axis has not so many edges where all similarities are nearly the same.
    counts, edges = np.histogram(values.astype(np.float64), bins=_BINS, range=(low, high))
    width = (high - low) / _BINS
    deviation = float(values.std(ddof=1, dtype=np.float64)) if len(values) > 1 else 0.0
    bandwidth = max(deviation * len(values) ** -0.2, _NARROWEST * (high - low))
    smooth = gaussian_filter1d(counts / (len(values) * width), bandwidth / width, mode="constant", truncate=6.0)
    centers, step = (edges[:-1] + edges[1:]) / 2, _BINS // _POINTS
    return centers[step // 2 :: step], smooth[step // 2 :: step]
