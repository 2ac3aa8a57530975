"""Figures of a calibration: metrics against τ, densities of similarity, and the reliability of relevance."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d
from scipy.special import expit, logit

from taugate.calibration.charts.chart import Axis, Chart, Dot, Figure, LegendEntry
from taugate.calibration.charts.numbers import THRESHOLD_OF, brief, count, fixed, percent
from taugate.calibration.metrics.measure import Rows, bootstrapped
from taugate.calibration.study.study import Findings
from taugate.retrieval.policy.policy import Metric, PolicyKind, keep
from taugate.retrieval.release.evidence import RelevanceRecord, ReliabilityBin
from taugate.retrieval.vectors.similarity import Float32

_THRESHOLDS = 60
_MIN_PROBABILITY = 1e-4  # and from 1: the ends of the axis, unless τ is beyond them
# Queries looked up for one point of a band: twice the default's 500 × 100.
_MAX_DRAWN = 100_000
_BINS = 600  # every value counts, in a bin narrower than a pixel; no sample is needed, however many there are
_POINTS = 150
# Narrowest bandwidth as a share of the axis: similarities that are all equal are drawn as a needle with a width.
_NARROWEST = 0.004
_SETS = {
    "random": "S_rand: the query with a random document",
    "correct": "S_corr: the query with its correct document",
    "topk": "S_topK: the query with each document it retrieved",
}


def metric_curves(found: Findings) -> list[Figure]:
    """Draw accuracy and NDCG against τ, for the calibration queries and the policy in force.

    Args:
        found: Findings of the study.
    """
    decisions = found.scored.take(found.parts["calibration"].members).decisions(found.policy.kind)
    thresholds = spaced(decisions, found.policy.kind, found.threshold)
    return [_figure(found, "accuracy", "accuracy", thresholds), _figure(found, "ndcg", "NDCG", thresholds)]


def _figure(found: Findings, metric: Metric, name: str, thresholds: Float32) -> Figure:
    part, kind, tau = found.parts["calibration"], found.policy.kind, found.threshold
    queries, rows, label = found.scored.take(part.members), drawn(part.resamples.rows), f"{name}@{found.policy.k}"
    decisions = queries.decisions(kind)
    bands = [bootstrapped(queries.judged.metric(metric, keep(decisions, each)), rows) for each in thresholds]
    uncut = bootstrapped(queries.judged.metric(metric), rows)
    odds = kind == "probability" and bool(0 < thresholds[0] < thresholds[-1] < 1)
    xs, series = thresholds.tolist(), f"s-{metric}"
    chart = Chart(
        metric,
        f"{label} against τ",
        f"Falls from {percent(uncut.mean)} without a cut to {percent(bands[-1].mean)} at the highest threshold.",
        Axis.around(xs, f"τ, {THRESHOLD_OF[kind]}", odds=odds),
        Axis(0, 1, label, "percent"),
    )
    chart.band(xs, [band.lower for band in bands], [band.upper for band in bands], series)
    chart.level(uncut.mean, "uncut")
    chart.line(xs, [band.mean for band in bands], series)
    keys = [
        LegendEntry("line", series, f"mean {label}"),
        LegendEntry("band", series, "95 % of the bootstraps"),
        LegendEntry("mark", "uncut", f"without a cut: {percent(uncut.mean)}"),
    ]
    if tau is not None:
        at, value = float(tau), bands[int(np.searchsorted(thresholds, tau))].mean
        hint = f"τ = {fixed(at, 6)}: {percent(value)}"
        chart.upright(at, f"τ = {fixed(at)}", "tau", low=value > 0.4)  # a curve comes from the top left
        chart.dots([Dot(at, value, "", hint)])
        keys.append(LegendEntry("dot", "", f"in force, {hint}"))
    return Figure.from_chart(chart, keys)


def spaced(decisions: Float32, kind: PolicyKind, tau: np.float32 | None) -> Float32:
    """Return ascending thresholds from the lowest to the highest decision score, τ among them, (t,) float32.

    One half where the results are (quantiles), one half evenly along the axis, so that neither has a gap.

    Args:
        decisions: (q, K) float32.
        kind: Of the policy.
        tau: None without a cut.
    """
    least, most = -1.0, np.inf
    if kind == "probability":
        least, most = _MIN_PROBABILITY, 1 - _MIN_PROBABILITY
    chosen = np.empty(0, dtype=np.float32) if tau is None else np.array([tau])
    values = np.concatenate([decisions.ravel().clip(least, most), chosen])
    low, high = float(values.min()), float(values.max())
    if kind == "probability" and 0 < low < high < 1:
        even = expit(np.linspace(logit(low), logit(high), _THRESHOLDS // 2))
    else:
        even = np.linspace(low, high, _THRESHOLDS // 2)
    quantiles = np.quantile(values, np.linspace(0, 1, _THRESHOLDS // 2))
    spread: Float32 = np.union1d(np.concatenate([even, quantiles]).clip(low, high).astype(np.float32), chosen)
    return spread


def drawn(rows: Rows) -> Rows:
    """Take the bootstraps, or the first of them where all would take long.

    Args:
        rows: (m, l).
    """
    return rows[: max(1, _MAX_DRAWN // rows.shape[1])]


def similarity_densities(found: Findings) -> Figure:
    """Draw the three densities of similarity of the calibration queries.

    With τ, or that of the papers' rule where τ in force is no similarity.

    Args:
        found: Findings of the study.
    """
    part = found.parts["calibration"]
    queries = found.scored.judged.take(part.members)
    return densities_figure(part.random_scores, queries.correct, queries.top.scores, similarity_threshold(found))


def densities_figure(
    random: Float32,
    correct: Float32,
    top: Float32,
    threshold: tuple[float, bool] | None,
    legend: Mapping[str, str] = MappingProxyType(_SETS),
) -> Figure:
    """Draw the densities of three sets of similarities.

    Args:
        random: (q,) float32, S_rand and S_corr.
        correct: (q,) float32, S_rand and S_corr.
        top: (q, K) float32, S_topK.
        threshold: A similarity, and whether it is in force, None without one.
        legend: What each set is, for people.
    """
    values = {"random": random, "correct": correct, "topk": top.ravel()}
    every = np.concatenate(
        [*values.values(), *([] if threshold is None else [np.array([threshold[0]], dtype=np.float32)])]
    )
    room = 0.06 * float(np.ptp(every)) or 0.05
    x = Axis(float(every.min()) - room, float(every.max()) + room, "cosine similarity")
    curves = {name: density(each, x.low, x.high) for name, each in values.items()}
    top_density = max(float(ys.max()) for _, ys in curves.values())
    chart = Chart(
        "densities",
        "Similarities of random, correct and retrieved documents",
        "Three density curves over cosine similarity, of which the random one should lie to the left of the others.",
        x,
        Axis(0, 1.12 * top_density, "density", form="none"),
    )
    for name, (xs, ys) in curves.items():
        chart.band(xs.tolist(), [0.0] * len(xs), ys.tolist(), f"s-{name}")
    for name, (xs, ys) in curves.items():
        chart.line(xs.tolist(), ys.tolist(), f"s-{name}")
    keys = [LegendEntry("line", f"s-{name}", text) for name, text in legend.items()]
    if threshold is not None:
        tau, in_force = threshold
        kind = "tau" if in_force else "limit"
        chart.upright(tau, f"τ = {fixed(tau)}{'' if in_force else ', not in force'}", kind)
        other = "τ of the papers' rule, not in force: the policy in force does not compare similarities with τ"
        keys.append(LegendEntry("mark", kind, "τ, the threshold in force" if in_force else other))
    return Figure.from_chart(chart, keys)


def similarity_threshold(found: Findings) -> tuple[float, bool] | None:
    """Return the threshold that is a similarity, and whether it is in force; None where no rule gives one.

    Args:
        found: Findings of the study.
    """
    if found.policy.kind == "similarity" and found.policy.tau is not None:
        return found.policy.tau, True
    papers = [each.tau for each in found.alternatives if each.method == "bootstrap" and each.tau is not None]
    return (papers[0], False) if papers else None


def density(values: Float32, low: float, high: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimate a Gaussian kernel density with Scott's bandwidth, σ·n^(−1/5), as scipy.stats.gaussian_kde does.

    From a fine histogram, so that it costs the same for a million values.

    Args:
        values: (n,) float32.
        low: Of the axis.
        high: Of the axis.

    Returns:
        Positions and densities.
    """
    # In float64: a float32 axis has not so many edges where all similarities are nearly the same.
    counts, edges = np.histogram(values.astype(np.float64), bins=_BINS, range=(low, high))
    width = (high - low) / _BINS
    deviation = float(values.std(ddof=1, dtype=np.float64)) if len(values) > 1 else 0.0
    bandwidth = max(deviation * len(values) ** -0.2, _NARROWEST * (high - low))
    smooth = gaussian_filter1d(counts / (len(values) * width), bandwidth / width, mode="constant", truncate=6.0)
    centers, step = (edges[:-1] + edges[1:]) / 2, _BINS // _POINTS
    return centers[step // 2 :: step], smooth[step // 2 :: step]


def reliability_figures(record: RelevanceRecord) -> list[Figure]:
    """Draw relevance as it is said against relevance found, by tenth, and the number of results in each tenth.

    Args:
        record: Of the model's reliability.
    """
    curve = Chart(
        "reliability",
        "Relevance said against relevance found",
        "A dot for each tenth of relevance, with its 95 % interval; on the diagonal what is said is true.",
        Axis(0, 1, "relevance, as the service says it", "percent"),
        Axis(0, 1, "relevant by the labels", "percent"),
    )
    said, true = [each.relevance for each in record.bins], [each.relevant for each in record.bins]
    curve.line([0, 1], [0, 1], "guess")
    curve.line(said, true, "s-probability")
    for x, each in zip(said, record.bins, strict=True):
        if each.interval is not None:
            curve.line([x, x], [each.interval.lower, each.interval.upper], "s-probability thin")
    curve.dots(
        [
            Dot(x, y, "", f"said {percent(x)}, found {_found(each)}, {count(each.results)} results")
            for x, y, each in zip(said, true, record.bins, strict=True)
        ]
    )
    most = max(each.results for each in record.bins)
    bars = Chart(
        "reliability-counts",
        "Results in each tenth of relevance",
        "A bar for each tenth of relevance, with its number of results.",
        Axis(0, 1, "relevance, as the service says it", "percent"),
        Axis(0, 1.1 * most, "results", form="none"),
    )
    for each in record.bins:
        bars.bar(each.lower, each.upper, each.results, brief(each.results), "s-probability")
    keys = [
        LegendEntry("line", "s-probability", "found, with its interval"),
        LegendEntry("line", "guess", "what is said is true"),
    ]
    return [Figure.from_chart(curve, keys), Figure.from_chart(bars, [])]


def _found(each: ReliabilityBin) -> str:
    interval = each.interval
    return percent(each.relevant) + (f" ({percent(interval.lower)}–{percent(interval.upper)})" if interval else "")
