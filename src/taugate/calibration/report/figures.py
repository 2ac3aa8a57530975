"""Charts of a calibration: metrics against τ, densities of similarity, and the reliability of relevance."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d
from scipy.special import expit, logit

from taugate.calibration.charts import Axis, Chart, Dot, Figure, LegendEntry
from taugate.calibration.progress import brief, count, fixed, percent
from taugate.calibration.study.outcomes import Calibrated
from taugate.evidence.measure import Rows, bootstrapped
from taugate.policy.arrays import Float32
from taugate.policy.names import Metric, PolicyKind
from taugate.policy.policy import POLICIES, keep
from taugate.release.evidence import RelevanceRecord, ReliabilityBin
from taugate.release.names import METHODS

_THRESHOLDS = 60
# Queries drawn for one point of a band: twice the default of 500 × 100.
_MAX_DRAWN = 100_000
_BINS = 600  # bins narrower than a pixel, which hold all values, so no sampling is needed
_POINTS = 150
_MIN_BANDWIDTH = 0.004  # as a share of the axis, so that equal similarities are drawn as a narrow peak
_SETS = {
    "random": "S_rand: the query with a random document",
    "correct": "S_corr: the query with its correct document",
    "topk": "S_topK: the query with each document it retrieved",
}


def metric_curves(calibrated: Calibrated) -> list[Figure]:
    """Draw accuracy and NDCG against τ, for the calibration queries and the policy in force."""
    decisions = calibrated.scored.take(calibrated.parts["calibration"].members).decisions(calibrated.policy.kind)
    thresholds = spaced(decisions, calibrated.policy.kind, calibrated.threshold)
    return [_figure(calibrated, "accuracy", "accuracy", thresholds), _figure(calibrated, "ndcg", "NDCG", thresholds)]


def _figure(calibrated: Calibrated, metric: Metric, name: str, thresholds: Float32) -> Figure:
    part, kind, tau = calibrated.parts["calibration"], calibrated.policy.kind, calibrated.threshold
    queries, rows, label = (
        calibrated.scored.take(part.members),
        drawn(part.resamples.rows),
        f"{name}@{calibrated.policy.k}",
    )
    decisions = queries.decisions(kind)
    bands = [bootstrapped(queries.judged.metric(metric, keep(decisions, threshold)), rows) for threshold in thresholds]
    uncut = bootstrapped(queries.judged.metric(metric), rows)
    odds = POLICIES[kind].log_odds and bool(0 < thresholds[0] < thresholds[-1] < 1)
    xs, series = thresholds.tolist(), f"s-{metric}"
    chart = Chart(
        metric,
        f"{label} against τ",
        f"Falls from {percent(uncut.mean)} without a cut to {percent(bands[-1].mean)} at the highest threshold.",
        Axis.around(xs, f"τ, {POLICIES[kind].axis}", odds=odds),
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
        chart.upright(at, f"τ = {fixed(at)}", "tau", low=value > 0.4)  # curves start at the top left
        chart.dots([Dot(at, value, "", hint)])
        keys.append(LegendEntry("dot", "", f"in force, {hint}"))
    return Figure.from_chart(chart, keys)


def spaced(decisions: Float32, kind: PolicyKind, tau: np.float32 | None) -> Float32:
    """Return ascending thresholds from the lowest to the highest decision score, τ among them, (t,) float32.

    Half of them are quantiles of the results, half are evenly spaced along the axis.

    Args:
        decisions: (q, K) float32.
    """
    chosen = np.empty(0, dtype=np.float32) if tau is None else np.array([tau])
    values = np.concatenate([decisions.ravel().clip(*POLICIES[kind].limits), chosen])
    low, high = float(values.min()), float(values.max())
    if POLICIES[kind].log_odds and 0 < low < high < 1:
        even = expit(np.linspace(logit(low), logit(high), _THRESHOLDS // 2))
    else:
        even = np.linspace(low, high, _THRESHOLDS // 2)
    quantiles = np.quantile(values, np.linspace(0, 1, _THRESHOLDS // 2))
    thresholds: Float32 = np.union1d(np.concatenate([even, quantiles]).clip(low, high).astype(np.float32), chosen)
    return thresholds


def drawn(rows: Rows) -> Rows:
    """Return the bootstraps, (m, l), or only the first of them if drawing all would take long."""
    return rows[: max(1, _MAX_DRAWN // rows.shape[1])]


def similarity_densities(calibrated: Calibrated) -> Figure:
    """Draw the three densities of similarity of the calibration queries.

    Shows τ, or the τ of the papers' rule if the policy in force does not compare similarities.
    """
    part = calibrated.parts["calibration"]
    queries = calibrated.scored.judged.take(part.members)
    return densities_figure(
        part.random_scores,
        queries.correct,
        queries.top.scores,
        similarity_threshold(calibrated),
        score=calibrated.search.score_name,
    )


def densities_figure(
    random: Float32,
    correct: Float32,
    top: Float32,
    threshold: tuple[float, bool] | None,
    legend: Mapping[str, str] = MappingProxyType(_SETS),
    *,
    score: str = "cosine similarity",
) -> Figure:
    """Draw the densities of three sets of similarities.

    Args:
        random: S_rand, (q,) float32; (0,) to leave it out.
        correct: S_corr, (q,) float32.
        top: S_topK, (q, K) float32.
        threshold: A similarity and whether it is in force, None for no threshold.
    """
    values = {"random": random, "correct": correct, "topk": top.ravel()}
    values = {name: sample for name, sample in values.items() if sample.size}
    every = np.concatenate(
        [*values.values(), *([] if threshold is None else [np.array([threshold[0]], dtype=np.float32)])]
    )
    room = 0.06 * float(np.ptp(every)) or 0.05
    x = Axis(float(every.min()) - room, float(every.max()) + room, score)
    curves = {name: density(sample, x.low, x.high) for name, sample in values.items()}
    top_density = max(float(ys.max()) for _, ys in curves.values())
    chart = Chart(
        "densities",
        "Similarities of random, correct and retrieved documents",
        f"Three density curves over {score}; the random one should lie to the left of the others.",
        x,
        Axis(0, 1.12 * top_density, "density", form="none"),
    )
    for name, (xs, ys) in curves.items():
        chart.band(xs.tolist(), [0.0] * len(xs), ys.tolist(), f"s-{name}")
    for name, (xs, ys) in curves.items():
        chart.line(xs.tolist(), ys.tolist(), f"s-{name}")
    keys = [LegendEntry("line", f"s-{name}", legend[name]) for name in values]
    if threshold is not None:
        tau, in_force = threshold
        kind = "tau" if in_force else "limit"
        chart.upright(tau, f"τ = {fixed(tau)}{'' if in_force else ', not in force'}", kind)
        papers = "τ of the papers' rule, not in force: the policy in force does not compare similarities with τ"
        keys.append(LegendEntry("mark", kind, "τ, the threshold in force" if in_force else papers))
    return Figure.from_chart(chart, keys)


def similarity_threshold(calibrated: Calibrated) -> tuple[float, bool] | None:
    """Return a threshold on similarity, and whether it is in force; None if no rule gives one."""
    tau = calibrated.policy.tau
    if POLICIES[calibrated.policy.kind].plain and tau is not None and calibrated.threshold is not None:
        return tau, True
    papers = [
        papers_rule.tau
        for papers_rule in calibrated.manifest.alternatives
        if METHODS[papers_rule.method].of_papers and papers_rule.tau is not None
    ]
    return (papers[0], False) if papers else None


def density(values: Float32, low: float, high: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimate a Gaussian kernel density with Scott's bandwidth, σ·n^(−1/5), as scipy.stats.gaussian_kde does.

    Computed from a fine histogram, so the cost does not grow with the number of values.

    Args:
        values: (n,) float32.

    Returns:
        Positions and densities.
    """
    # In float64, because float32 cannot represent that many edges if all similarities are nearly equal.
    counts, edges = np.histogram(values.astype(np.float64), bins=_BINS, range=(low, high))
    width = (high - low) / _BINS
    deviation = float(values.std(ddof=1, dtype=np.float64)) if len(values) > 1 else 0.0
    bandwidth = max(deviation * len(values) ** -0.2, _MIN_BANDWIDTH * (high - low))
    smooth = gaussian_filter1d(counts / (len(values) * width), bandwidth / width, mode="constant", truncate=6.0)
    centers, step = (edges[:-1] + edges[1:]) / 2, _BINS // _POINTS
    return centers[step // 2 :: step], smooth[step // 2 :: step]


def reliability_figures(record: RelevanceRecord) -> list[Figure]:
    """Draw estimated against observed relevance, and the number of results, for each tenth of relevance."""
    curve = Chart(
        "reliability",
        "Estimated and observed relevance",
        "A dot for each tenth of relevance, with its 95 % interval; on the diagonal, estimates are exact.",
        Axis(0, 1, "relevance estimated by the service", "percent"),
        Axis(0, 1, "relevant by the labels", "percent"),
    )
    estimated, true = [tenth.relevance for tenth in record.bins], [tenth.relevant for tenth in record.bins]
    curve.line([0, 1], [0, 1], "guess")
    curve.line(estimated, true, "s-probability")
    for x, tenth in zip(estimated, record.bins, strict=True):
        if tenth.interval is not None:
            curve.line([x, x], [tenth.interval.lower, tenth.interval.upper], "s-probability thin")
    curve.dots(
        [
            Dot(x, y, "", f"estimated {percent(x)}, observed {_observed(tenth)}, {count(tenth.results)} results")
            for x, y, tenth in zip(estimated, true, record.bins, strict=True)
        ]
    )
    max_results = max(tenth.results for tenth in record.bins)
    bars = Chart(
        "reliability-counts",
        "Results in each tenth of relevance",
        "A bar for each tenth of relevance, with its number of results.",
        Axis(0, 1, "relevance estimated by the service", "percent"),
        Axis(0, 1.1 * max_results, "results", form="none"),
    )
    for tenth in record.bins:
        bars.bar(tenth.lower, tenth.upper, tenth.results, brief(tenth.results), "s-probability")
    keys = [
        LegendEntry("line", "s-probability", "observed, with its interval"),
        LegendEntry("line", "guess", "exact estimates"),
    ]
    return [Figure.from_chart(curve, keys), Figure.from_chart(bars, [])]


def _observed(tenth: ReliabilityBin) -> str:
    interval = tenth.interval
    return percent(tenth.relevant) + (f" ({percent(interval.lower)}–{percent(interval.upper)})" if interval else "")
