"""Which policy `auto` takes: the one that keeps the fewest results near the allowed loss."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.risk.steps import LossSteps, loss_steps
from taugate.calibration.settings.rules import ThresholdRule
from taugate.retrieval.policy.policy import PolicyKind, keep
from taugate.retrieval.release.evidence import PolicyCandidate
from taugate.retrieval.vectors.similarity import Float32

# Resamples of the queries for the standard error of a difference: an error of 1/√(2·100) = 7 % of it, which is enough.
_RESAMPLES = 100
# Up to twice the allowed loss: at it alone the choice hangs on where one or two queries fall.
_RANGE = 2.0
# Thresholds looked at in that range: 1 % of it from one to the next.
_THRESHOLDS = 100


def choose(
    queries: JudgedQueries,
    decisions: Mapping[PolicyKind, Float32],
    rule: ThresholdRule,
    rng: np.random.Generator,
) -> tuple[PolicyKind, list[PolicyCandidate]]:
    """The policy that keeps the fewest results, and what each of them keeps.

    decisions: (q, K) decision scores of each policy for the same queries, the preferred one first. Another is taken
    only where it keeps less by more than one standard error of the difference (the one-standard-error rule, Hastie,
    Tibshirani and Friedman, "The Elements of Statistical Learning", 2nd ed., §7.10): with few queries the fewest is as
    often luck.
    """
    size = len(queries)
    rows = rng.integers(0, size, size=(_RESAMPLES, size))
    counts = np.array([np.ones(size), *(np.bincount(row, minlength=size) for row in rows)])
    kept = {kind: _kept(queries, scores, rule, counts) for kind, scores in decisions.items()}
    best, *others = decisions
    for kind in others:
        difference = kept[best] - kept[kind]
        if difference[0] > difference[1:].std():
            best = kind
    return best, [
        PolicyCandidate(kind=kind, kept_fraction=float(each[0]), standard_error=float(each[1:].std()))
        for kind, each in kept.items()
    ]


def _kept(
    queries: JudgedQueries, decisions: Float32, rule: ThresholdRule, counts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Share of results kept, averaged over every τ whose loss is at most twice the allowed one.

    counts: (r, q), how often each resample has each query. Returns (r,).
    """
    limits = [rule.max_loss] if rule.max_empty is None else [rule.max_loss, rule.max_empty]
    most = _RANGE * len(queries) * np.array(limits)
    tried = _tried(queries, decisions, rule, most)
    if not len(tried):  # nothing that could be lost, and nothing to compare
        return np.ones(len(counts))
    kept, lost = np.empty((len(queries), len(tried))), np.empty((len(limits), len(queries), len(tried)))
    for column, threshold in enumerate(tried):
        mask = keep(decisions, threshold)
        kept[:, column] = mask.mean(axis=1)
        lost[0, :, column] = queries.lost(rule.metric, mask)
        lost[1:, :, column] = ~mask.any(axis=1)
    within: NDArray[np.bool_] = np.all(counts @ lost <= most[:, None, None], axis=0)
    within[:, 0] = True  # the lowest candidate loses nothing
    share: NDArray[np.float64] = ((counts @ kept) * within).sum(axis=1) / within.sum(axis=1) / len(queries)
    return share


def _tried(queries: JudgedQueries, decisions: Float32, rule: ThresholdRule, most: NDArray[np.float64]) -> Float32:
    """Thresholds from the lowest candidate to the highest that some resample may allow; most: of each limit, (1 or 2,).

    Half as much again as the limits: a resample may lose less than all queries together do.
    """
    steps = loss_steps(queries, decisions, rule.metric)
    reach = int(np.searchsorted(steps.losses[:-1], 1.5 * most[0], side="right"))
    if rule.max_empty is not None:
        empty = LossSteps.of_empty(decisions)
        highest = empty.candidates[np.searchsorted(empty.losses[:-1], 1.5 * most[1], side="right") - 1]
        reach = min(reach, int(np.searchsorted(steps.candidates, highest, side="right")))
    if not len(steps.candidates):
        return steps.candidates
    tried: Float32 = steps.candidates[np.unique(np.linspace(0, max(reach - 1, 0), _THRESHOLDS).astype(int))]
    return tried
