"""The section "Adapted encoder": what an adaptation changed, by the measures of the papers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from taugate.calibration.charts.chart import Axis, Chart, Figure, LegendEntry
from taugate.calibration.charts.numbers import count, fixed, signed, spread
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
    """A measure before and after.

    Attributes:
        name: What it is.
        about: What it is.
        before: As they are written, each with its interval or an empty text.
        after: As they are written, each with its interval or an empty text.
    """

    name: str
    about: str
    before: tuple[str, str]
    after: tuple[str, str]


@dataclass(frozen=True)
class AdaptedSection:
    """What the section shows.

    Attributes:
        record: Of the adaptation.
        measures: Of it.
        changes: Before and after.
        recipes: Rows of all encoders that were tried, as the papers print them.
        chosen: Name of the row in use.
        separation: The histograms of Δ_M.
    """

    record: AdaptationRecord
    measures: MeasuresRecord
    changes: Sequence[ChangeRow]
    recipes: Sequence[EncoderRow]
    chosen: str
    separation: Figure

    @classmethod
    def of(cls, record: AdaptationRecord | None) -> "AdaptedSection | None":
        """Prepare the section; None where the encoder was not adapted, or nothing was measured."""
        if record is None or record.measures is None:
            return None
        measures = record.measures
        return cls(
            record, measures, change_rows(record), measures.rows, record.recipe, separation_figure(measures.separation)
        )

    @property
    def wider(self) -> bool:
        """Whether general texts moved apart from each other as well."""
        found = self.measures.separation
        return found.after.general > found.before.general


def change_rows(record: AdaptationRecord) -> list[ChangeRow]:
    """Return the measures before and after.

    Args:
        record: Of an adaptation, with measures.
    """
    found = record.measures
    if found is None:
        return []
    base, adapted = found.row("base"), found.row(record.recipe)
    rows = []
    if base is not None and adapted is not None:
        rows = _paper_rows(base, adapted, found.k)
    apart, known, general = found.separation, found.familiarity, found.forgetting
    writer = "a language model" if known.source == "llm" else "rules"
    return [
        *rows,
        ChangeRow(
            "separation Δ",
            "mean distance of a document from the nearest general text",
            *_both(apart.before.mean, apart.after.mean),
        ),
        ChangeRow(
            "separation, relative",
            "the same, in units of the distance between general texts",
            *_both(apart.before.relative, apart.after.relative),
        ),
        ChangeRow(
            "domain familiarity",
            f"mean similarity of {known.queries} queries with {known.paraphrases} paraphrases each, by {writer}",
            *_both(known.before, known.after),
        ),
        *_spectrum_rows(found),
        _general_row("NDCG@10 on general questions", general.ndcg, general.questions),
        _general_row("accuracy@1 on general questions", general.accuracy, general.questions),
    ]


def _paper_rows(base: EncoderRow, adapted: EncoderRow, k: int) -> list[ChangeRow]:
    def estimates(name: str, about: str, key: str) -> ChangeRow:
        return ChangeRow(name, about, *(_estimate(getattr(row, key)) for row in (base, adapted)))

    return [
        estimates(f"accuracy@{k}", "of unseen queries", "accuracy"),
        estimates(f"NDCG@{k}", "of unseen queries", "ndcg"),
        estimates("COE", "correct documents above θ; higher is better", "coe"),
        estimates("ROE", "random documents above θ; lower is better", "roe"),
        ChangeRow(
            "τ(ψ)",
            "threshold of the papers' rule on the unseen queries, with ψ",
            *((fixed(row.tau), f"({row.psi})") for row in (base, adapted)),
        ),
        ChangeRow(
            "isotropy I_A",
            "Mu et al., of all documents; 1: every direction alike",
            *_both(base.isotropy.i_a, adapted.isotropy.i_a),
        ),
        ChangeRow("isotropy I_B", "IsoScore, of all documents", *_both(base.isotropy.i_b, adapted.isotropy.i_b)),
    ]


def _spectrum_rows(found: MeasuresRecord) -> list[ChangeRow]:
    laws = (found.spectrum.before, found.spectrum.after)

    def cells(name: str, about: str, cell: Callable[[PowerLawRecord], tuple[str, str]]) -> ChangeRow:
        return ChangeRow(name, about, *(("–", "") if law is None else cell(law) for law in laws))

    def beta(law: PowerLawRecord) -> tuple[str, str]:
        return fixed(law.beta.mean, 2), spread(law.beta, 2)

    def tail(law: PowerLawRecord) -> tuple[str, str]:
        return f"{count(law.first)}–{count(law.last)}", ""

    return [
        cells("spectrum: β of the tail", "eigenvalues fall as rank to the power of −β", beta),
        cells("spectrum: ranks of the tail", "where that law fits best", tail),
        cells("spectrum: R², p", "of the fit; p of its Kolmogorov–Smirnov distance", _fit),
        cells("spectrum: β of all ranks", "the slope of the whole", lambda law: (fixed(law.whole, 2), "")),
    ]


def _fit(law: PowerLawRecord) -> tuple[str, str]:
    return f"{fixed(law.r_squared, 3)}, {law.p:.3f}", ""


def _general_row(name: str, found: PairedChange, questions: int) -> ChangeRow:
    change = found.change
    limits = f"({signed(change.lower)} to {signed(change.upper)})"
    about = f"{questions} everyday questions that come with Taugate; the change with 95 % limits on either side"
    return ChangeRow(name, about, (fixed(found.before), ""), (fixed(found.after), f"{signed(change.mean)} {limits}"))


def _both(before: float | None, after: float | None) -> tuple[tuple[str, str], tuple[str, str]]:
    return (fixed(before), ""), (fixed(after), "")


def _estimate(value: Interval) -> tuple[str, str]:
    return fixed(value.mean), spread(value)


def separation_figure(record: SeparationRecord) -> Figure:
    """Draw the histograms of Δ_M before and after, one over the other, as Figure 2 of the thresholds paper.

    Args:
        record: Of the separation.
    """
    both: dict[str, Distances] = {"before": record.before, "after": record.after}
    bins = len(record.before.counts)
    used = [place for each in both.values() for place, found in enumerate(each.counts) if found]
    first, last = (min(used), max(used) + 1) if used else (0, bins)
    step = max(1, -(-(last - first) // _MAX_BARS))
    first, width = max(0, first - step), _FARTHEST / bins
    edges = list(range(first, min(bins, last + step) + 1, step))
    shares = {
        name: [sum(each.counts[low:high]) / max(1, sum(each.counts)) for low, high in pairwise(edges)]
        for name, each in both.items()
    }
    chart = Chart(
        "separation",
        "Distance of each document from the nearest general text (Δ)",
        f"Two histograms. The mean is {fixed(record.before.mean, 3)} before and {fixed(record.after.mean, 3)} after.",
        Axis(edges[0] * width, edges[-1] * width, "Euclidean distance of unit vectors"),
        Axis(0, 1.12 * max(max(each) for each in shares.values()), "documents", "percent"),
    )
    series = {"before": "s-random", "after": "s-topk"}
    for name, heights in shares.items():
        xs = [edge * width for edge in edges for _ in (0, 1)]
        ys = [0.0, *(height for height in heights for _ in (0, 1)), 0.0]
        chart.band(xs, [0.0] * len(xs), ys, series[name])
        chart.line(xs, ys, series[name])
    keys = [
        LegendEntry("line", series[name], f"{words}, mean {fixed(each.mean, 3)}")
        for (name, each), words in zip(both.items(), _SETS.values(), strict=True)
    ]
    return Figure.from_chart(chart, keys)
