"""Accuracy and NDCG against the threshold, each with its bootstrapped 95 % band."""

import numpy as np
from scipy.special import expit, logit

from taugate.calibration.charts.axis import Axis
from taugate.calibration.charts.chart import Chart, Dot
from taugate.calibration.charts.figure import Figure, Key
from taugate.calibration.charts.numbers import fixed, percent
from taugate.calibration.charts.words import THRESHOLD_OF
from taugate.calibration.job.study import Findings
from taugate.calibration.metrics.bootstrap import Rows, bootstrapped
from taugate.retrieval.policy.policy import Metric, PolicyKind, keep
from taugate.retrieval.vectors.similarity import Float32

_THRESHOLDS = 60
_LEAST_PROBABILITY = 1e-4  # and from 1: the ends of the axis, unless τ is beyond them
# Queries looked up for one point of a band: twice the default's 500 × 100.
_MOST_DRAWN = 100_000


def curves(found: Findings) -> list[Figure]:
    """One figure a metric, on the calibration queries, for the policy in force."""
    decisions = found.scored.take(found.parts["calibration"].members).decisions(found.policy.kind)
    thresholds = spaced(decisions, found.policy.kind, found.threshold)
    return [_figure(found, "accuracy", "accuracy", thresholds), _figure(found, "ndcg", "NDCG", thresholds)]


def _figure(found: Findings, metric: Metric, name: str, thresholds: Float32) -> Figure:
    part, kind, tau = found.parts["calibration"], found.policy.kind, found.threshold
    queries, rows, label = found.scored.take(part.members), drawn(part.draw.rows), f"{name}@{found.policy.k}"
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
        Key("line", series, f"mean {label}"),
        Key("band", series, "95 % of the bootstraps"),
        Key("mark", "uncut", f"without a cut: {percent(uncut.mean)}"),
    ]
    if tau is not None:
        at, value = float(tau), bands[int(np.searchsorted(thresholds, tau))].mean
        hint = f"τ = {fixed(at, 6)}: {percent(value)}"
        chart.upright(at, f"τ = {fixed(at)}", "tau", low=value > 0.4)  # a curve comes from the top left
        chart.dots([Dot(at, value, "", hint)])
        keys.append(Key("dot", "", f"in force, {hint}"))
    return Figure.of(chart, keys)


def spaced(decisions: Float32, kind: PolicyKind, tau: np.float32 | None) -> Float32:
    """Ascending thresholds from the lowest to the highest decision score, τ among them, (t,) float32.

    One half where the results are (quantiles), one half evenly along the axis, so that neither has a gap.
    """
    least, most = -1.0, np.inf
    if kind == "probability":
        least, most = _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY
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
    """The bootstraps, or the first of them where all would take long; rows: (m, l)."""
    return rows[: max(1, _MOST_DRAWN // rows.shape[1])]
