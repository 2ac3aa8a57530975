"""Measure what a threshold from few labels really loses and keeps, on every public set."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.checkout import ROOT
from benchmarks.experiment import Experiment
from benchmarks.labels.asked import CROPS, SETS, SIZES, AskedSet, asked_set
from benchmarks.line_chart import draw
from benchmarks.markdown import Target, share, table, targets
from taugate.evidence.few_labels.population import losses
from taugate.evidence.few_labels.prediction_powered import LossEstimates, ThresholdEstimate
from taugate.evidence.few_labels.shares import JudgedSample

HEADING = "Thresholds on public sets"
LIMITS = (0.05, 0.1, 0.2)
_ALONE = "labels alone"
_JUDGE = "judge, 3 % wrong"
_MACHINES = (CROPS, _JUDGE)


@dataclass(frozen=True)
class _Row:
    """One set, limit δ, source of τ and number of labels.

    Attributes:
        loss: Really incurred, mean.
        above: Share of resamples with a loss above δ.
        kept: Mean share of results.
        held: Share of resamples whose interval of τ holds the true one.
        span: Mean share of candidates in that interval. The last two are nothing for crops.
    """

    name: str
    limit: float
    source: str
    labels: int
    loss: float
    above: float
    kept: float
    held: float = np.nan
    span: float = np.nan


def section(experiment: Experiment) -> str:
    """Take τ from labels, from labels and machine, and from crops, and apply each to all queries of the set."""
    rows = [row for name in experiment.wanted(SETS) for row in _rows(experiment, name)]
    together = [row for row in rows if row.source in _MACHINES]
    wanted = [
        Target("largest share above δ, labels alone", max(r.above for r in rows if r.source == _ALONE), at_most=0.07),
        Target("largest share above δ, both", max(row.above for row in together), at_most=0.07),
        Target("smallest coverage of the interval of τ, both", min(row.held for row in together), at_least=0.93),
    ]
    crops = [row for row in rows if not row.labels]
    above = sum(row.loss > row.limit for row in crops)
    sizes = f"{', '.join(map(str, SIZES[:-1]))} and {SIZES[-1]}"
    return f"""\
τ is a similarity. It is the strictest of at most 100 candidates whose one-sided 95 % limit of the loss is δ or less. *Loss* is the
share of all queries of the set that this τ really loses, on average; *above δ* is the share of resamples in which it loses more than δ,
of which .05 is allowed (.07 with two standard errors of the simulation). *Kept* is the share of results kept. *Crops alone*
is the same limit from 1,000 crops and no label: no promise about what users ask. Cells have the
figures of {sizes} labels.

{targets(wanted)}

The τ of crops loses more than δ in {above} of {len(crops)} cases. Crops are not questions, and what a cut loses of one says
little about the other.

{_drawing(rows)}

{_words(rows)}

{_tables(rows)}
"""


def _rows(experiment: Experiment, name: str) -> Iterator[_Row]:
    asked = asked_set(experiment.data, name, experiment.seed)
    thresholds = asked.thresholds
    outcomes = asked.losses(thresholds)
    real = outcomes.true.mean(axis=0)
    kept = np.array([(asked.decisions >= threshold).mean() for threshold in thresholds])
    for limit, found in _of_crops(asked).items():
        loss, passed = _effect(found.safe, thresholds, real, kept)
        yield _Row(name, limit, "crops", 0, loss, float(loss > limit), passed)
    done: dict[tuple[float, str, int], list[tuple[float, ...]]] = {}
    for resample in asked.resamples(experiment.splits, experiment.seed):
        for labels, drawn in resample.items():
            for source in (_ALONE, *_MACHINES):
                judged, unjudged = drawn.samples(outcomes, CROPS if source == _ALONE else source)
                estimates = LossEstimates.of(thresholds, judged, None if source == _ALONE else unjudged, 0.95)
                for limit in LIMITS:
                    found = estimates.strictest(limit)
                    loss, passed = _effect(found.safe, thresholds, real, kept)
                    held, span = _interval(found, thresholds, real, limit)
                    done.setdefault((limit, source, labels), []).append((loss, float(loss > limit), passed, held, span))
    for (limit, source, labels), trials in done.items():
        yield _Row(name, limit, source, labels, *np.mean(trials, axis=0).tolist())


def _of_crops(asked: AskedSet) -> dict[float, ThresholdEstimate]:
    thresholds = asked.thresholds
    lost = losses(asked.crop_relevant, asked.crop_decisions, thresholds)
    crops = JudgedSample(lost, np.zeros_like(lost), np.arange(len(lost)))
    estimates = LossEstimates.of(thresholds, crops, None, 0.95)
    return {limit: estimates.strictest(limit) for limit in LIMITS}


def _effect(tau: float | None, thresholds: np.ndarray, real: np.ndarray, kept: np.ndarray) -> tuple[float, float]:
    """Return the loss of all queries at τ and the share of results kept."""
    if tau is None:
        return 0.0, 1.0
    at = int(np.searchsorted(thresholds, np.float32(tau)))
    return float(real[at]), float(kept[at])


def _interval(found: ThresholdEstimate, thresholds: np.ndarray, real: np.ndarray, limit: float) -> tuple[float, float]:
    """Return whether the interval holds the true threshold, and the share of candidates in it."""
    within = thresholds[real <= limit]
    low = -np.inf if found.lowest is None else found.lowest
    high = -np.inf if found.highest is None else found.highest
    best = float(within[-1]) if len(within) else -np.inf
    return float(low <= best <= high), float(np.mean((thresholds >= low) & (thresholds <= high)))


def _tables(rows: list[_Row]) -> str:
    """One table for each figure, with a row for each set and limit, and cells for all numbers of labels."""
    by_key = {(row.name, row.limit, row.source, row.labels): row for row in rows}
    written = []
    for heading, of, digits, crops_too in (
        ("Loss really incurred", "loss", 3, True),
        ("Share of resamples that lose more than δ", "above", 3, False),
        ("Share of results kept", "kept", 2, True),
        ("Share of resamples whose interval of τ holds the true one", "held", 3, False),
    ):
        lines = []
        for name, limit in dict.fromkeys((row.name, row.limit) for row in rows):
            cells = [name, share(limit, 2)]
            cells += [share(getattr(by_key[name, limit, "crops", 0], of), digits)] if crops_too else []
            for source in (_ALONE, *_MACHINES):
                figures = [getattr(by_key[name, limit, source, labels], of) for labels in SIZES]
                cells.append(" / ".join(share(figure, digits) for figure in figures))
            lines.append(cells)
        header = [
            "set",
            "δ",
            *(["crops alone"] if crops_too else []),
            _ALONE,
            *(f"with the {machine}" for machine in _MACHINES),
        ]
        written.append(f"### {heading}\n\n{table(header, lines)}")
    return "\n\n".join(written)


def _words(rows: list[_Row]) -> str:
    def mean(source: str, limit: float, of: str) -> float:
        some = [row for row in rows if row.source == source and row.limit == limit and row.labels == max(SIZES)]
        return float(np.mean([getattr(row, of) for row in some]))

    said = "; ".join(
        f"at δ = {share(limit, 2)} {share(mean(_ALONE, limit, 'kept'))} with the labels alone, "
        f"{share(mean(CROPS, limit, 'kept'))} with the model and {share(mean(_JUDGE, limit, 'kept'))} with the judge"
        for limit in LIMITS
    )
    return (
        f"Results kept with {max(SIZES)} labels, on average over the sets: {said}.\n"
        "The smaller δ is, the less a machine helps: with fewer than five losses among the labels, they decide alone."
    )


def _drawing(rows: list[_Row]) -> str:
    limit = LIMITS[-1]

    def kept(source: str) -> tuple[list[float], list[float]]:
        means = [
            float(np.mean([row.kept for row in rows if (row.source, row.limit, row.labels) == (source, limit, n)]))
            for n in SIZES
        ]
        return [float(n) for n in SIZES], means

    return draw(
        ROOT / "benchmarks" / "results" / "few-labels" / "kept.svg",
        f"Share of results kept, mean of all sets, δ = {limit:g}",
        ("human labels", "kept"),
        {
            "labels alone": kept(_ALONE),
            "with the model fitted on crops": kept(CROPS),
            "with a judge, 3 % wrong": kept(_JUDGE),
        },
    )
