"""Accuracy and NDCG against the threshold, each with its bootstrapped 95 % band."""

import numpy as np

from calibration.metrics.bootstrap import Rows, bootstrapped
from calibration.metrics.judged import Metric
from calibration.report.axis import Axis
from calibration.report.chart import Chart, Dot
from calibration.report.figure import Figure, Key
from calibration.report.numbers import fixed, percent
from calibration.report.words import THRESHOLD_OF
from calibration.study import Findings
from retrieval.policy import PolicyKind, keep
from retrieval.similarity import Float32

_THRESHOLDS = 60
_TINY = 1e-9
_LEAST_PROBABILITY = 1e-4  # the left end of the axis: below it nothing is dropped that anyone would miss
# Queries looked up for one point of the band: the default's 500 × 100 ten times over.
_MOST_DRAWN = 500_000


def curves(found: Findings) -> list[Figure]:
    """One figure a metric, on the calibration queries, for the policy in force."""
    part, kind = found.parts["calibration"], found.policy.kind
    queries = found.scored.take(part.members)
    decisions = queries.decisions(kind)
    tau = found.threshold
    thresholds = spaced(decisions, kind, tau)
    masks = [keep(decisions, threshold) for threshold in thresholds]
    rows = drawn(part.draw.rows)
    figures = []
    for name, label in (("accuracy", "accuracy"), ("ndcg", "NDCG")):
        metric: Metric = "ndcg" if name == "ndcg" else "accuracy"
        bands = [bootstrapped(queries.judged.metric(metric, mask), rows) for mask in masks]
        uncut = bootstrapped(queries.judged.metric(metric), rows)
        chart = Chart(
            name,
            f"{label}@{found.policy.k} against τ",
            f"Falls from {percent(uncut.mean)} without a cut to {percent(bands[-1].mean)} at the highest threshold.",
            Axis.around(thresholds.tolist(), f"τ, {THRESHOLD_OF[kind]}", log=kind == "probability"),
            Axis(0, 1, f"{label}@{found.policy.k}", "percent"),
        )
        xs = thresholds.tolist()
        chart.band(xs, [band.lower for band in bands], [band.upper for band in bands], f"s-{name}")
        chart.level(uncut.mean, "uncut")
        chart.line(xs, [band.mean for band in bands], f"s-{name}")
        keys = [
            Key("line", f"s-{name}", f"mean {label}@{found.policy.k}"),
            Key("band", f"s-{name}", "95 % of the bootstraps"),
            Key("mark", "uncut", f"without a cut: {percent(uncut.mean)}"),
        ]
        if tau is not None:
            value = bands[int(np.searchsorted(thresholds, tau))].mean
            hint = f"τ = {fixed(float(tau), 6)}: {percent(value)}"
            chart.upright(float(tau), f"τ = {fixed(float(tau))}", "tau")
            chart.dots([Dot(float(tau), value, "", hint)])
            keys.append(Key("dot", "", f"in force, {hint}"))
        figures.append(Figure.of(chart, keys))
    return figures


def spaced(decisions: Float32, kind: PolicyKind, tau: np.float32 | None) -> Float32:
    """Ascending thresholds from the lowest to the highest decision score, τ among them, (t,) float32.

    One half where the results are (quantiles), one half evenly along the axis, so that neither has a gap.
    """
    logarithmic = kind == "probability"
    least = -np.inf if not logarithmic else min(_LEAST_PROBABILITY, np.inf if tau is None else on_axis(tau))
    values = np.maximum(decisions.ravel(), np.float32(least))
    space = np.geomspace if logarithmic else np.linspace
    even = space(float(values.min()), float(values.max()), _THRESHOLDS // 2)
    quantiles = np.quantile(values, np.linspace(0, 1, _THRESHOLDS // 2))
    found = np.clip(np.concatenate([even, quantiles]).astype(np.float32), values.min(), values.max())
    chosen = [] if tau is None else [tau]
    spread: Float32 = np.union1d(found, np.array(chosen, dtype=np.float32))
    return spread


def on_axis(tau: np.float32) -> float:
    """Where τ is drawn: a probability may be too small for a logarithmic axis."""
    return max(float(tau), _TINY)


def drawn(rows: Rows) -> Rows:
    """The bootstraps, or the first of them where all would take long; rows: (m, l)."""
    return rows[: max(1, _MOST_DRAWN // rows.shape[1])]
