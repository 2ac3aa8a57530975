"""Show what the gate admitted and refused: each candidate's loss against the margin, and what it gains."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from taugate.calibration.charts.chart import Axis, Chart, Dot, Figure, LegendEntry
from taugate.calibration.charts.numbers import count, fixed, percent
from taugate.retrieval.release.records import GateRecord, PairedLoss

_WIDTH, _HEIGHT, _EDGE = 150, 18, 4
_MAX_MARGINS = 10  # a loss further out than so many margins is drawn at the edge
_GAINS = {
    "bytes_per_document": "bytes a document",
    "disk_bytes_per_document": "on disk",
    "milliseconds": "ms a query alone",
    "queries_per_second": "queries/s together",
}


@dataclass(frozen=True)
class GateLoss:
    """A metric of one candidate.

    Attributes:
        record: Its loss.
        interval: Limits of the loss, drawn beside the margin.
    """

    record: PairedLoss
    interval: Markup


@dataclass(frozen=True)
class GateRow:
    """One candidate.

    Attributes:
        record: Of the gate.
        serves: Whether the release uses it.
        losses: Of each metric.
        gains: With the baseline's figure where they differ.
    """

    record: GateRecord
    serves: bool
    losses: list[GateLoss]
    gains: list[str]


def gate_rows(facts: Mapping[str, Any]) -> list[GateRow]:
    """Return a row for each candidate, in the order in which they were judged.

    Args:
        facts: The manifest less ids, times and files; it has one candidate at least.
    """
    records: list[GateRecord] = facts["gate"]
    margin = records[0].margin
    limits = [each.loss for record in records for each in (record.accuracy, record.ndcg)]
    axis = Axis(
        max(-_MAX_MARGINS * margin, min(-margin, *(each.lower for each in limits))),
        min(_MAX_MARGINS * margin, max(2 * margin, *(each.upper for each in limits))),
        "loss",
    )
    used = _in_use(facts)
    return [
        GateRow(
            record,
            record.admitted and record.candidate in used,
            [GateLoss(each, _drawn(each, margin, axis)) for each in (record.accuracy, record.ndcg)],
            _gains(record.gain),
        )
        for record in records
    ]


def retentions(records: Sequence[GateRecord]) -> list[Figure]:
    """Draw NDCG@10 and accuracy against the share of dimensions kept (query embeddings paper, Figure 4).

    Args:
        records: Of all candidates; nothing is drawn of fewer than two projections.
    """
    tried = [record for record in records if record.kind == "projection"]
    if len(tried) < 2:
        return []
    return [_curve(tried, "ndcg", "NDCG@10"), _curve(tried, "accuracy", "accuracy")]


def _curve(tried: Sequence[GateRecord], metric: str, name: str) -> Figure:
    points = sorted(
        (each.gain["bytes_per_document"] / each.gain["baseline_bytes_per_document"], getattr(each, metric))
        for each in tried
    )
    xs = [x for x, _ in points]
    losses: list[PairedLoss] = [loss for _, loss in points]
    base = losses[0].baseline
    lower, upper = [base - each.loss.upper for each in losses], [base - each.loss.lower for each in losses]
    least = base - tried[0].margin
    chart = Chart(
        f"retention-{metric}",
        f"{name} against the dimensions kept",
        f"From {percent(losses[-1].candidate)} with most dimensions to {percent(losses[0].candidate)} with fewest.",
        Axis.around(xs, "share of the dimensions", "percent"),
        Axis.around([*lower, *upper, base, least], name, "percent"),
    )
    series = f"s-{metric}"
    chart.band(xs, lower, upper, series)
    chart.level(base, "uncut")
    chart.level(least, "limit")
    chart.line(xs, [each.candidate for each in losses], series)
    chart.dots([Dot(x, y.candidate, "", f"{percent(x)} kept: {fixed(y.candidate)}") for x, y in points])
    keys = [
        LegendEntry("line", series, f"{name}, by queries that the projection was not fitted on"),
        LegendEntry("band", series, "limits of the difference"),
        LegendEntry("mark", "uncut", f"without a projection: {fixed(base)}"),
        LegendEntry("mark", "limit", f"less the margin: {fixed(least)}"),
    ]
    return Figure.from_chart(chart, keys)


def _in_use(facts: Mapping[str, Any]) -> set[str]:
    """Return the names of the candidates that serve."""
    index, projection = facts["index"], facts["projection"]
    names = {
        str((facts.get("query_encoder") or facts["encoder"])["precision"]),
        index.kind,
        f"{index.kind}, breadth {index.breadth}",
    }
    if facts.get("engine") is not None:
        names.add(f"{facts['engine'].kind}, breadth {index.breadth}")
    return names | ({f"query-pca, retention {projection.retention:g}"} if projection else set())


def _drawn(each: PairedLoss, margin: float, axis: Axis) -> Markup:
    def px(value: float) -> str:
        return f"{axis.place(min(max(value, axis.low), axis.high), _EDGE, _WIDTH - _EDGE):z.1f}"

    said = f"loss {each.loss.mean:+.4f}, between {each.loss.lower:+.4f} and {each.loss.upper:+.4f}"
    middle, top = _HEIGHT / 2, 2
    return Markup(
        '<svg class="interval" viewBox="0 0 {w} {h}" role="img" aria-label="{said}"><title>{said}</title>'
        '<path class="mark axis" d="M{zero} {top}V{bottom}"/><path class="mark limit" d="M{margin} {top}V{bottom}"/>'
        '<path class="line s-risk" d="M{lower} {middle}H{upper}"/><circle class="dot" r="4" cx="{mean}" cy="{middle}"/>'
        "</svg>"
    ).format(
        w=_WIDTH,
        h=_HEIGHT,
        said=said,
        zero=px(0),
        margin=px(margin),
        top=top,
        bottom=_HEIGHT - top,
        lower=px(each.loss.lower),
        upper=px(each.loss.upper),
        mean=px(each.loss.mean),
        middle=middle,
    )


def _gains(gain: Mapping[str, float]) -> list[str]:
    said = {
        name: f"{words} {_number(gain[f'baseline_{name}'])} → {_number(gain[name])}"
        for name, words in _GAINS.items()
        if name in gain
    }
    if gain.get("disk_bytes_per_document") == gain.get("bytes_per_document"):
        said.pop("disk_bytes_per_document", None)
    return list(said.values())


def _number(value: float) -> str:
    return count(round(value)) if value >= 100 else f"{value:.3g}"
