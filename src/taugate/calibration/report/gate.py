"""What was accepted, in the report: the gate's candidates, losses against the margin, and an adapted encoder."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise

from markupsafe import Markup

from taugate.calibration.charts import Axis, Chart, Dot, Figure, LegendEntry
from taugate.calibration.progress import NOTHING, count, fixed, limits, percent
from taugate.release.manifest import Manifest
from taugate.release.measures import Distances, EncoderRow, MeasuresRecord, PowerLawRecord, SeparationRecord
from taugate.release.search_records import GateRecord, PairedLoss, candidate_name

_WIDTH, _HEIGHT, _EDGE = 150, 18, 4
_REQUESTED = ("precision", "projection", "index", "rerank")  # kinds that are only judged if an option asks for them
_MAX_MARGINS = 10  # losses beyond this many margins are drawn at the edge
_GAINS = {
    "bytes_per_document": "bytes per document",
    "disk_bytes_per_document": "on disk",
    "milliseconds": "ms for a single query",
    "queries_per_second": "queries/s in batches",
}

_FARTHEST = 2.0  # distance of opposite unit vectors
_MAX_BARS = 40
_SETS = {"before": "base encoder", "after": "adapted encoder"}


def loss_interval(records: Sequence[GateRecord]) -> Callable[[PairedLoss], Markup]:
    """Return a function that draws the limits of a loss, with the margin, on an axis for one or more candidates."""
    margin = records[0].margin
    losses = [paired_loss.loss for record in records for paired_loss in (record.accuracy, record.ndcg)]
    axis = Axis(
        max(-_MAX_MARGINS * margin, min(-margin, *(loss.lower for loss in losses))),
        min(_MAX_MARGINS * margin, max(2 * margin, *(loss.upper for loss in losses))),
        "loss",
    )
    return partial(_drawn, margin=margin, axis=axis)


def verdicts(manifest: Manifest) -> dict[str, str]:
    """Return what became of each kind of candidate that an option requested, by labels."""
    used = in_use(manifest)
    kinds = {kind: [record for record in manifest.gate if record.kind == kind] for kind in _REQUESTED}
    lines = {kind.capitalize(): _verdict(records, used) for kind, records in kinds.items() if records}
    if manifest.projection is not None:
        lines["Projection"] += f" {manifest.projection.dimension} of {manifest.encoder.dimension} dimensions."
    return lines


def _verdict(records: Sequence[GateRecord], used: set[str]) -> str:
    """Return what is in use, or why nothing is: the candidate that came nearest, and how many queries would show it."""
    chosen = next((record for record in records if record.candidate in used), None)
    best = max(records, key=lambda record: record.ndcg.candidate) if chosen is None else chosen
    measured = f"NDCG@10 {best.ndcg.baseline:.3f} → {best.ndcg.candidate:.3f}"
    if chosen is not None:
        return f"{best.candidate} in use{'' if best.admitted else ', as given'}: {measured}."
    needed = "" if best.queries_needed is None else f"; {best.queries_needed:,} queries like these would show it"
    claim = "help" if best.kind == "rerank" else f"lose less than {best.margin:g}"
    return f"not used: {best.candidate} ({measured}) is not shown to {claim}{needed}."


def retentions(manifest: Manifest) -> list[Figure]:
    """Draw NDCG@10 and accuracy against the share of dimensions kept (query embeddings paper, Figure 4).

    They are of the kind of projection in use, else of the paper's. Returns no figures for fewer than two projections.
    """
    records = [record for record in manifest.gate if record.kind == "projection"]
    used = records[0].candidate if records else ""
    if manifest.projection is not None:
        used = manifest.projection.candidate
    tried = [record for record in records if _variant(record.candidate) == _variant(used)]
    if len(tried) < 2:
        return []
    return [_curve(tried, "ndcg", "NDCG@10"), _curve(tried, "accuracy", "accuracy")]


def _variant(candidate: str) -> str:
    return candidate.rpartition(", ")[0]


def _curve(tried: Sequence[GateRecord], metric: str, name: str) -> Figure:
    points = sorted(
        (record.gain["bytes_per_document"] / record.gain["baseline_bytes_per_document"], getattr(record, metric))
        for record in tried
    )
    xs = [x for x, _ in points]
    losses: list[PairedLoss] = [loss for _, loss in points]
    base = losses[0].baseline
    lower, upper = [base - loss.loss.upper for loss in losses], [base - loss.loss.lower for loss in losses]
    lower_limit = base - tried[0].margin
    chart = Chart(
        f"retention-{metric}",
        f"{name} against the dimensions kept",
        f"From {percent(losses[-1].candidate)} with most dimensions to {percent(losses[0].candidate)} with fewest.",
        Axis.around(xs, "share of the dimensions", "percent"),
        Axis.around([*lower, *upper, base, lower_limit], name, "percent"),
    )
    series = f"s-{metric}"
    chart.band(xs, lower, upper, series)
    chart.level(base, "uncut")
    chart.level(lower_limit, "limit")
    chart.line(xs, [loss.candidate for loss in losses], series)
    chart.dots([Dot(x, y.candidate, "", f"{percent(x)} kept: {fixed(y.candidate)}") for x, y in points])
    keys = [
        LegendEntry("line", series, f"{name}, on queries that the projection was not fitted on"),
        LegendEntry("band", series, "limits of the difference"),
        LegendEntry("mark", "uncut", f"without a projection: {fixed(base)}"),
        LegendEntry("mark", "limit", f"minus the margin: {fixed(lower_limit)}"),
    ]
    return Figure.from_chart(chart, keys)


def in_use(manifest: Manifest) -> set[str]:
    """Return the names of the candidates in use."""
    index, projection, lexical = manifest.index, manifest.projection, manifest.lexical
    names: set[str] = {manifest.answering.precision, index.kind, f"{index.kind}, breadth {index.breadth}"}
    if lexical is not None:
        names.add(f"lexical share, weight {lexical.weight:g}")
    if manifest.second_stage is not None:
        second = manifest.second_stage
        names |= {candidate_name(second.name, second.candidates, part) for part in ("float32", second.precision)}
    if manifest.engine is not None:
        names.add(f"{manifest.engine.kind}, breadth {index.breadth}")
    return names | ({projection.candidate} if projection else set())


def _drawn(paired_loss: PairedLoss, margin: float, axis: Axis) -> Markup:
    def px(value: float) -> str:
        return f"{axis.place(min(max(value, axis.low), axis.high), _EDGE, _WIDTH - _EDGE):z.1f}"

    loss = paired_loss.loss
    label = f"loss {loss.mean:+.4f}, between {loss.lower:+.4f} and {loss.upper:+.4f}"
    middle, top = _HEIGHT / 2, 2
    return Markup(
        '<svg class="interval" viewBox="0 0 {w} {h}" role="img" aria-label="{label}"><title>{label}</title>'
        "<desc>The marks are no loss and the margin. Values beyond the axis are drawn at its end.</desc>"
        '<path class="mark axis" d="M{zero} {top}V{bottom}"/><path class="mark limit" d="M{margin} {top}V{bottom}"/>'
        '<path class="line s-risk" d="M{lower} {middle}H{upper}"/><circle class="dot" r="4" cx="{mean}" cy="{middle}"/>'
        "</svg>"
    ).format(
        w=_WIDTH,
        h=_HEIGHT,
        label=label,
        zero=px(0),
        margin=px(margin),
        top=top,
        bottom=_HEIGHT - top,
        lower=px(loss.lower),
        upper=px(loss.upper),
        mean=px(loss.mean),
        middle=middle,
    )


def gains(gain: Mapping[str, float]) -> list[str]:
    """Format what a candidate gains, baseline and candidate."""
    texts = {
        name: f"{words} {_number(gain[f'baseline_{name}'])} → {_number(gain[name])}"
        for name, words in _GAINS.items()
        if name in gain
    }
    if gain.get("disk_bytes_per_document") == gain.get("bytes_per_document"):
        texts.pop("disk_bytes_per_document", None)
    return list(texts.values())


def _number(value: float) -> str:
    return count(round(value)) if value >= 100 else f"{value:.3g}"


def first_and_last(measures: MeasuresRecord, recipe: str) -> tuple[EncoderRow, EncoderRow] | None:
    """Return the base encoder and the adapted one, as in the papers' tables; None if one of them is missing."""
    base, adapted = measures.row("base"), measures.row(recipe)
    return None if base is None or adapted is None else (base, adapted)


def of_law(law: PowerLawRecord | None, part: str) -> tuple[str, str]:
    """Format a part of a spectrum's law with its interval or an empty text; a dash without a law."""
    if law is None:
        return NOTHING, ""
    parts = {
        "beta": (fixed(law.beta.mean, 2), limits(law.beta, 2)),
        "tail": (f"{count(law.first)}–{count(law.last)}", ""),
        "fit": (f"{fixed(law.r_squared, 3)}, {law.p:.3f}", ""),
        "whole": (fixed(law.whole, 2), ""),
    }
    return parts[part]


def separation_figure(record: SeparationRecord) -> Figure:
    """Draw the histograms of Δ_M before and after, one over the other, as Figure 2 of the thresholds paper."""
    both: dict[str, Distances] = {"before": record.before, "after": record.after}
    bins = len(record.before.counts)
    used = [place for distances in both.values() for place, number in enumerate(distances.counts) if number]
    first, last = (min(used), max(used) + 1) if used else (0, bins)
    step = max(1, -(-(last - first) // _MAX_BARS))
    first, width = max(0, first - step), _FARTHEST / bins
    edges = list(range(first, min(bins, last + step) + 1, step))
    shares = {
        name: [sum(distances.counts[low:high]) / max(1, sum(distances.counts)) for low, high in pairwise(edges)]
        for name, distances in both.items()
    }
    chart = Chart(
        "separation",
        "Distance of each document from the nearest general text (Δ)",
        f"Two histograms. The mean is {fixed(record.before.mean, 3)} before and {fixed(record.after.mean, 3)} after.",
        Axis(edges[0] * width, edges[-1] * width, "Euclidean distance of unit vectors"),
        Axis(0, 1.12 * max(max(heights) for heights in shares.values()), "documents", "percent"),
    )
    series = {"before": "s-random", "after": "s-topk"}
    for name, heights in shares.items():
        xs = [edge * width for edge in edges for _ in (0, 1)]
        ys = [0.0, *(height for height in heights for _ in (0, 1)), 0.0]
        chart.band(xs, [0.0] * len(xs), ys, series[name])
        chart.line(xs, ys, series[name])
    keys = [
        LegendEntry("line", series[name], f"{words}, mean {fixed(distances.mean, 3)}")
        for (name, distances), words in zip(both.items(), _SETS.values(), strict=True)
    ]
    return Figure.from_chart(chart, keys)
