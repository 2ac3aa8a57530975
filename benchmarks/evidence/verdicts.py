"""Verdicts on many trials at once, by the product's own functions, and on a few by the product as a whole."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.evidence.worlds import Counts, Drawn, Structure
from taugate.calibration.comparison.decision import mean_difference
from taugate.calibration.comparison.rule import QuantitySample
from taugate.evidence.acceptance import GateCandidate, RankingOutcomes, judge
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.risk import certify as bounds
from taugate.evidence.risk.certify import LossLimit, certify
from taugate.evidence.risk.losses import DocumentBets, QueryLosses
from taugate.evidence.risk.steps import LossSteps
from taugate.evidence.rules import CONFIDENCE, GateSettings, ThresholdRule

PValues = NDArray[np.float64]
Test = Callable[[Drawn, float], PValues]

ALPHA = 1 - CONFIDENCE


def passed(p_values: PValues) -> NDArray[np.bool_]:
    """Return in which trials the mean loss is found to be below the margin."""
    return p_values <= ALPHA * (1 + 1e-9)


def can_be_shown(structure: Structure, test: Test, margin: float) -> bool:
    """Return True if the test passes when nothing is lost."""
    sizes = structure.sizes[None]
    return bool(passed(test(Drawn(sizes, np.zeros_like(sizes)), margin))[0])


def of_documents(drawn: Drawn, margin: float) -> PValues:
    """Gate and promotion, the average document: `DocumentLosses`."""
    return _compared(drawn.sums / drawn.sizes, np.ones_like(drawn.sizes[:1]), margin)


def compared_queries(drawn: Drawn, margin: float) -> PValues:
    """Gate and promotion, the average query."""
    return _compared(drawn.sums.astype(np.float64), drawn.sizes, margin)


def of_queries(drawn: Drawn, margin: float) -> PValues:
    """The certificate of a cut, about the average query; it counts only answers that the search returns."""
    return _by_document(
        drawn.sums.astype(np.float64), drawn.sizes, drawn.sizes if drawn.found is None else drawn.found, margin
    )


def tilted(drawn: Drawn, margin: float) -> PValues:
    """Exponential tilting by document: the gate of the release before, and that of queries on documents of their own."""
    found = []
    for sizes, sums in zip(drawn.sizes, drawn.sums, strict=True):
        keys, counts = np.unique(sizes * 100_000 + sums + 50_000, return_counts=True)
        kinds = QueryLosses(
            (keys % 100_000 - 50_000).astype(float), (keys // 100_000).astype(float), counts.astype(float)
        )
        found.append(kinds.p_value(margin))
    return np.array(found)


def binomial(drawn: Drawn, margin: float) -> PValues:
    """Exact, of queries one by one: the certificate of the release before, and that of queries on their own documents."""
    queries = drawn.sizes.sum(axis=1)
    lost = drawn.sums.sum(axis=1).astype(np.float64)
    return np.array([float(bounds.exact_p_values(lost[[at]], n, margin)[0]) for at, n in enumerate(queries.tolist())])


def check(structure: Structure, drawn: Drawn, margin: float, *, gains: bool) -> None:
    """Check the decisions against those of the product; raise AssertionError if they differ."""
    units = structure.units
    by_document = units.unit == "document"
    expected = passed((of_documents if by_document else tilted)(drawn, margin))
    also = passed(compared_queries(drawn, margin)) if by_document else expected
    cut = passed((of_queries if by_document else binomial)(drawn, margin))
    for trial, sums in enumerate(drawn.sums):
        losses = _spread(structure.sizes, sums)
        before = (losses >= 0).astype(np.float64)
        outcomes = [RankingOutcomes(each, each) for each in (before, before - losses)]
        (record,) = judge(outcomes[0], [GateCandidate("tried", "precision", outcomes[1])], units, GateSettings(margin))
        texts = np.arange(len(losses)).astype(np.uint64)
        sound, changed = (QuantitySample(outcome.accuracy, texts, units.clusters) for outcome in outcomes)
        found = mean_difference(sound, changed, CONFIDENCE)
        said = [record.admitted, found.upper <= margin]
        if said != [expected[trial]] * 2 or (record.admitted and ("query" in (record.statement or "")) != also[trial]):
            raise AssertionError(f"{structure.name}: the benchmark does not measure the gate")
        if not gains and _cut(losses, units, margin) != cut[trial]:
            raise AssertionError(f"{structure.name}: the benchmark does not measure the certificate")


def _cut(losses: NDArray[np.float64], units: SamplingUnits, margin: float) -> bool:
    """Return True if the cut that loses these queries is certified."""
    steps = LossSteps.of_empty((1 - losses).astype(np.float32)[:, None], units)
    return (
        certify([LossLimit("empty", steps, margin)], ThresholdRule("risk-control", "similarity", max_loss=margin)).tau
        == 1
    )


def _spread(sizes: NDArray[np.int64], sums: NDArray[np.int64]) -> NDArray[np.float64]:
    """Losses of single queries with these sums, document by document."""
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    place = np.arange(sizes.sum()) - np.repeat(first, sizes)
    return np.where(place < np.repeat(np.abs(sums), sizes), np.repeat(np.sign(sums), sizes), 0).astype(np.float64)


def _compared(losses: NDArray[np.float64], sizes: Counts, margin: float) -> PValues:
    """1 / e-value of each trial by one planned bet; (trials, d), or (1, d) for sizes that all trials share."""
    found = np.empty(len(losses))
    for at in range(len(losses)):
        of_trial = sizes[min(at, len(sizes) - 1)].astype(np.float64)
        kinds, counts = np.unique(of_trial, return_counts=True)
        bets = DocumentBets.planned(margin, kinds, counts.astype(np.float64), ALPHA)
        found[at] = bets.log_e(bets.log_wealth(losses[at], of_trial).sum(axis=1))
    return np.exp(-np.maximum(0.0, found))


def _by_document(losses: NDArray[np.float64], sizes: Counts, losable: Counts, margin: float) -> PValues:
    """1 / e-value of each trial; (trials, d), or (1, d) for sizes and largest losses that all trials share."""
    found = np.empty(len(losses))
    for at in range(len(losses)):
        of_trial, most = (each[min(at, len(each) - 1)].astype(np.float64) for each in (sizes, losable))
        bets = DocumentBets.against(margin, most, of_trial)
        found[at] = bets.log_e(bets.log_wealth(losses[at], of_trial).sum(axis=1))
    return np.exp(-np.maximum(0.0, found))
