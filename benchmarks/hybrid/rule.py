"""How often the gate accepts a weight, and what the accepted weight gives queries that had no part in it."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.experiment import Experiment
from benchmarks.hybrid.fused import SETS, Ranked, ranked_set
from benchmarks.markdown import share, table
from taugate.evidence.acceptance import RankingOutcomes, holm
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import HoldoutSplit, QueryRoles, cluster_folds
from taugate.evidence.risk.losses import min_detectable_loss, paired_losses
from taugate.evidence.rules import CONFIDENCE, MARGIN, default_margin

HEADING = "How often a weight is accepted"
_GRIDS = ((0.3, 0.5, 0.7), (0.2, 0.3, 0.5, 0.7), (0.3, 0.5, 0.7, 1.0))
_UNSEEN = 0.2  # share of the queries
_BELOW = 0.005

Rows = NDArray[np.int64]
Grid = tuple[float, ...]
Rule = Callable[[Ranked, SamplingUnits, Grid, Rows, int], float]


def section(experiment: Experiment) -> str:
    """Draw splits by document, accept a weight on 80 % of the queries, and measure it on the others and on all."""
    rows = []
    for name in experiment.wanted(SETS):
        ranked, units = ranked_set(experiment.data, name)
        splits = [
            HoldoutSplit.by_document(np.random.default_rng([experiment.seed, split]), units.clusters, _UNSEEN)
            for split in range(experiment.splits)
        ]
        for words, rule in _RULES.items():
            cells = []
            for grid in _GRIDS:
                served = [rule(ranked, units, grid, part.calibration, split) for split, part in enumerate(splits)]
                cells.append(_figures(ranked, served, splits))
            rows.append([name, words, *map("; ".join, cells)])
    header = ["set", "rule", *("weights " + ", ".join(f"{weight:g}" for weight in grid) for grid in _GRIDS)]
    return f"""\
{experiment.splits} splits by document. 80 % of the queries choose and judge, the others are unseen. A weight is accepted if the gate shows that
NDCG@10 is higher than that of dense search, and accuracy@5 not lower by the margin that the labels can show.

- *Holm*: all queries judge every weight. Of the accepted ones, a quarter of the queries chooses that with the highest NDCG@10. Taugate takes the largest, whose NDCG@10 is the highest above.
- *cross-fitted*: every query is judged with the weight that is best on the other four of five folds of documents.

Each cell: share of the splits in which a weight is accepted; mean gain of accuracy@5 in points of what serves (dense search if nothing is
accepted), on unseen queries and on all queries of the set; share of the splits in which what serves is below dense search by more than
half a point, on unseen queries and on all. Unseen queries are few, so that chance alone causes some of the former.

{table(header, rows)}
"""


def _figures(ranked: Ranked, served: list[float], splits: list[HoldoutSplit]) -> list[str]:
    gains = [ranked[weight].accuracy - ranked[0.0].accuracy for weight in served]
    unseen = np.array([gain[part.heldout].mean() for gain, part in zip(gains, splits, strict=True)])
    everywhere = np.array([gain.mean() for gain in gains])
    gained = ", ".join(f"{100 * gain.mean():+.1f}" for gain in (unseen, everywhere))
    below = ", ".join(share(float((gain < -_BELOW).mean()), 2) for gain in (unseen, everywhere))
    return [share(float(np.mean(np.array(served) > 0)), 2), gained, below]


def _holm(ranked: Ranked, units: SamplingUnits, grid: Grid, rows: Rows, seed: int) -> float:
    accepted = _accepted(ranked, [ranked[weight] for weight in grid], units, rows)
    weights = np.array(grid)[accepted].tolist() or [0.0]
    return _best(ranked, weights, QueryRoles.draw(rows, units, seed).fit)


def _cross_fitted(ranked: Ranked, units: SamplingUnits, grid: Grid, rows: Rows, seed: int) -> float:
    mixed = RankingOutcomes(ranked[0.0].accuracy.copy(), ranked[0.0].ndcg.copy())
    documents = np.unique(units.clusters[rows], return_inverse=True)[1]
    for others, fold in cluster_folds(np.random.default_rng([seed, 1]).permutation(documents.max() + 1)[documents]):
        candidate = ranked[_best(ranked, (0.0, *grid), rows[others])]
        mixed.accuracy[rows[fold]], mixed.ndcg[rows[fold]] = candidate.accuracy[rows[fold]], candidate.ndcg[rows[fold]]
    return _best(ranked, (0.0, *grid), rows) if _accepted(ranked, [mixed], units, rows)[0] else 0.0


_RULES: dict[str, Rule] = {"Holm": _holm, "cross-fitted": _cross_fitted}


def _best(ranked: Ranked, weights: Sequence[float], rows: Rows) -> float:
    return max(weights, key=lambda weight: float(ranked[weight].ndcg[rows].mean()))


def _accepted(
    ranked: Ranked, candidates: Sequence[RankingOutcomes], units: SamplingUnits, rows: Rows
) -> NDArray[np.bool_]:
    """Test as `gate.judge(…, superior=True)` does, without the limits in its records, which take most of its time."""
    some, before = units.take(rows), ranked[0.0]
    margin = default_margin(MARGIN, min_detectable_loss(some, 1 - (1 - CONFIDENCE) / len(candidates)))
    p_values = [
        max(
            paired_losses((before.accuracy - candidate.accuracy)[rows], some).p_value(margin),
            paired_losses((before.ndcg - candidate.ndcg)[rows], some).p_value(0.0),
        )
        for candidate in candidates
    ]
    return holm(np.array(p_values)) <= 1 - CONFIDENCE
