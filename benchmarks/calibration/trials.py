"""One calibration on random queries of a data set, by the product's own functions, and what it does to the others."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.searched import SearchedSplit
from taugate.calibration.settings import CalibrationSettings
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import HoldoutSplit, QueryRoles
from taugate.evidence.measure import Resamples
from taugate.evidence.rules import PolicyChoice, ThresholdRule
from taugate.evidence.threshold.decide import decide_policy
from taugate.evidence.threshold.policy_choice import CalibrationQueries, with_enough_evidence
from taugate.policy.policy import keep
from taugate.release.names import Statement

LOSSES = (0.01, 0.02, 0.05)
PAPERS = ThresholdRule("bootstrap", "similarity")
HOLDOUT = 0.3

Positions = NDArray[np.int64]


def certified(policy: PolicyChoice, guarantee: Statement, loss: float) -> ThresholdRule:
    """A rule of risk control."""
    return ThresholdRule("risk-control", policy, guarantee=guarantee, max_loss=loss)


def unseen(rng: np.random.Generator, units: SamplingUnits) -> tuple[Positions, Positions]:
    """The product's split: 70 % calibrate, the others were never seen; whole documents if they are the unit."""
    split = HoldoutSplit.draw(
        rng, units, CalibrationSettings(holdout=HOLDOUT, rule=certified("similarity", "high-probability", 0.01))
    )
    return split.calibration, split.heldout


@dataclass(frozen=True)
class Outcome:
    """The outcome of a rule: share of results kept, and queries lost among those that judge."""

    kept: float
    lost: float


def trial(searched: SearchedSplit, number: int, rules: Sequence[ThresholdRule], seed: int) -> tuple[list[Outcome], int]:
    """Calibrate on the draw of this number by each of the rules, and judge. Returns how many queries judged, too."""
    rng = np.random.default_rng([seed, number])
    calibration, judges = unseen(rng, searched.units)
    evidence = gather(searched, calibration, rng, number)
    outcomes = []
    for rule in rules:
        policy = decide_policy(rule, with_enough_evidence(rule, evidence))
        taken = evidence.scored.take(judges)
        kept = keep(taken.decisions(policy.kind), None if policy.tau is None else np.float32(policy.tau))
        lost = float(taken.judged.lost("accuracy", kept).sum())
        outcomes.append(Outcome(float(kept.mean()), lost))
    return outcomes, len(judges)


def gather(
    searched: SearchedSplit, calibration: Positions, rng: np.random.Generator, number: int
) -> CalibrationQueries:
    """Gather the evidence of a decision, as `taugate.calibration.study.study` does."""
    draw = Resamples.draw(rng, searched.units.take(calibration), len(searched.documents), CalibrationSettings())
    parts = QueryRoles.draw(calibration, searched.units, number)
    estimated = searched.estimate(parts)
    return CalibrationQueries(
        searched.scored(estimated), calibration, draw.rows, parts, estimated, searched.units, number
    )
