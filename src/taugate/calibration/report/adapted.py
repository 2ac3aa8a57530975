"""The report of an adapted encoder: its gain, what it forgot, and the measures of the papers before and after."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from taugate.calibration.charts.chart import Axis, Chart, Figure, LegendEntry
from taugate.calibration.charts.numbers import count, fixed, limits, signed
from taugate.retrieval.release.adaptation import AdaptationRecord
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.measures import (
    Distances,
    EncoderRow,
    MeasuresRecord,
    PairedChange,
    PowerLawRecord,
    SeparationRecord,
)

_FARTHEST = 2.0  # distance of opposite unit vectors
_MAX_BARS = 40
_SETS = {"before": "base encoder", "after": "adapted encoder"}


@dataclass(frozen=True)
class ChangeRow:
    """A measure before and after the adaptation; each value is formatted, with its interval or an empty text.

    Attributes:
        name: Name of the measure.
        about: Its explanation.
        before: Value of the base encoder.
        after: Value of the adapted encoder.
    """

    name: str
    about: str
    before: tuple[str, str]
    after: tuple[str, str]


@dataclass(frozen=True)
class AdaptedSection:
    """Content of the section.

    Attributes:
        record: Record of the adaptation.
        measures: Its measures.
        gains: Accuracy and NDCG before and after.
        papers: The measures of the papers before and after.
        recipes: Rows of all encoders that were tried, as in the papers' tables.
        chosen: Name of the row in use.
        separation: The histograms of Δ_M.
    """

    record: AdaptationRecord
    measures: MeasuresRecord
    gains: Sequence[ChangeRow]
    papers: Sequence[ChangeRow]
    recipes: Sequence[EncoderRow]
    chosen: str
    separation: Figure

    @classmethod
    def of(cls, record: AdaptationRecord | None) -> "AdaptedSection | None":
        """Prepare the section; None if the encoder was not adapted or nothing was measured."""
        if record is None or record.measures is None:
            return None
        measures = record.measures
        return cls(
            record,
            measures,
            gain_rows(measures, record.recipe),
            paper_rows(measures, record.recipe),
            measures.rows,
            record.recipe,
            separation_figure(measures.separation),
        )

    @property
    def wider(self) -> bool:
        """Whether general texts moved apart, too."""
        separation = self.measures.separation
        return separation.after.general > separation.before.general


def gain_rows(measures: MeasuresRecord, recipe: str) -> list[ChangeRow]:
    """Return accuracy and NDCG before and after, on unseen queries and on general questions."""
    general = measures.forgetting
    base, adapted = measures.row("base"), measures.row(recipe)
    rows = []
    if base is not None and adapted is not None:
        rows = [
            _estimates(f"accuracy@{measures.k}", "unseen queries", "accuracy", base, adapted),
            _estimates(f"NDCG@{measures.k}", "unseen queries", "ndcg", base, adapted),
        ]
    return [
        *rows,
        _general_row("NDCG@10 on general questions", general.ndcg, general.questions),
        _general_row("accuracy@1 on general questions", general.accuracy, general.questions),
    ]


def paper_rows(measures: MeasuresRecord, recipe: str) -> list[ChangeRow]:
    """Return the measures of the papers before and after."""
    base, adapted = measures.row("base"), measures.row(recipe)
    rows = []
    if base is not None and adapted is not None:
        rows = _encoder_rows(base, adapted)
    separation, familiarity = measures.separation, measures.familiarity
    source = "a language model" if familiarity.source == "llm" else "rules"
    return [
        *rows,
        ChangeRow(
            "separation Δ",
            "mean distance of a document from the nearest general text",
            *_both(separation.before.mean, separation.after.mean),
        ),
        ChangeRow(
            "separation, relative",
            "separation in units of the distance between general texts",
            *_both(separation.before.relative, separation.after.relative),
        ),
        ChangeRow(
            "domain familiarity",
            f"mean similarity of {familiarity.queries} queries with {familiarity.paraphrases} paraphrases each, by "
            f"{source}",
            *_both(familiarity.before, familiarity.after),
        ),
        *_spectrum_rows(measures),
    ]


def _estimates(name: str, about: str, key: str, *rows: EncoderRow) -> ChangeRow:
    return ChangeRow(name, about, *(_estimate(getattr(row, key)) for row in rows))


def _encoder_rows(base: EncoderRow, adapted: EncoderRow) -> list[ChangeRow]:
    return [
        _estimates("COE", "correct documents above θ; higher is better", "coe", base, adapted),
        _estimates("ROE", "random documents above θ; lower is better", "roe", base, adapted),
        ChangeRow(
            "τ(ψ)",
            "threshold by the papers' rule on the unseen queries, with ψ",
            *((fixed(row.tau), f"({row.psi})") for row in (base, adapted)),
        ),
        ChangeRow(
            "isotropy I_A",
            "Mu et al., over all documents; 1: all directions are used equally",
            *_both(base.isotropy.i_a, adapted.isotropy.i_a),
        ),
        ChangeRow("isotropy I_B", "IsoScore, over all documents", *_both(base.isotropy.i_b, adapted.isotropy.i_b)),
    ]


def _spectrum_rows(measures: MeasuresRecord) -> list[ChangeRow]:
    laws = (measures.spectrum.before, measures.spectrum.after)

    def cells(name: str, about: str, cell: Callable[[PowerLawRecord], tuple[str, str]]) -> ChangeRow:
        return ChangeRow(name, about, *(("–", "") if law is None else cell(law) for law in laws))

    def beta(law: PowerLawRecord) -> tuple[str, str]:
        return fixed(law.beta.mean, 2), limits(law.beta, 2)

    def tail(law: PowerLawRecord) -> tuple[str, str]:
        return f"{count(law.first)}–{count(law.last)}", ""

    return [
        cells("spectrum: β of the tail", "eigenvalues fall as rank to the power of −β", beta),
        cells("spectrum: ranks of the tail", "the ranks that this law fits best", tail),
        cells("spectrum: R², p", "R² of the fit; p of its Kolmogorov–Smirnov distance", _fit),
        cells("spectrum: β of all ranks", "slope over all eigenvalues", lambda law: (fixed(law.whole, 2), "")),
    ]


def _fit(law: PowerLawRecord) -> tuple[str, str]:
    return f"{fixed(law.r_squared, 3)}, {law.p:.3f}", ""


def _general_row(name: str, paired: PairedChange, questions: int) -> ChangeRow:
    change = paired.change
    interval = f"({signed(change.lower)} to {signed(change.upper)})"
    about = f"{questions} everyday questions that come with Taugate; after the result, its change with 95 % limits"
    return ChangeRow(
        name, about, (fixed(paired.before), ""), (fixed(paired.after), f"{signed(change.mean)} {interval}")
    )


def _both(before: float | None, after: float | None) -> tuple[tuple[str, str], tuple[str, str]]:
    return (fixed(before), ""), (fixed(after), "")


def _estimate(value: Interval) -> tuple[str, str]:
    return fixed(value.mean), limits(value)


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
