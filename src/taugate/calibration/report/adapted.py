"""The report of an adapted encoder: its gain, what it forgot, and the measures of the papers before and after."""

from itertools import pairwise

from taugate.calibration.charts.chart import Axis, Chart, Figure, LegendEntry
from taugate.calibration.charts.numbers import NOTHING, count, fixed, limits
from taugate.retrieval.release.measures import Distances, EncoderRow, MeasuresRecord, PowerLawRecord, SeparationRecord

_FARTHEST = 2.0  # distance of opposite unit vectors
_MAX_BARS = 40
_SETS = {"before": "base encoder", "after": "adapted encoder"}


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
