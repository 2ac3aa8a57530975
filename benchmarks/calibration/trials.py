"""One calibration on random queries of a data set, by the product's own functions, and what it does to the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.searched import SearchedSplit
from taugate.calibration.metrics.bootstrap import Draw, Parts, Split
from taugate.calibration.metrics.clusters import Units
from taugate.calibration.relevance.estimate import Estimated, Evidence
from taugate.calibration.settings.rules import PolicyChoice, ThresholdRule
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.threshold.decide import decide
from taugate.retrieval.policy.policy import keep
from taugate.retrieval.release.evidence import Statement

LOSSES = (0.01, 0.02, 0.05)
PAPERS = ThresholdRule("bootstrap", "similarity")
HOLDOUT = 0.3

Positions = NDArray[np.int64]
# Positions of the queries that calibrate and of those that judge, from all.
Drawing = Callable[[np.random.Generator, Units], tuple[Positions, Positions]]


def certified(policy: PolicyChoice, guarantee: Statement, loss: float) -> ThresholdRule:
    """Build a rule of risk control; policy, guarantee and loss (δ) as in `ThresholdRule`."""
    return ThresholdRule("risk-control", policy, guarantee=guarantee, max_loss=loss)


def unseen(rng: np.random.Generator, units: Units) -> tuple[Positions, Positions]:
    """The product's split: 70 % calibrate, the others were never seen; whole documents where they are the unit."""
    split = Split.asked(
        rng, units, CalibrationSettings(holdout=HOLDOUT, rule=certified("similarity", "high-probability", 0.01))
    )
    return split.calibration, split.heldout


def labelled(rng: np.random.Generator, units: Units, size: int) -> tuple[Positions, Positions]:
    """`size` labelled queries calibrate, all of the others judge."""
    order = rng.permutation(len(units))
    return order[:size], order[size:]


def fitted_split(searched: SearchedSplit, number: int, seed: int) -> tuple[Positions, Parts, Estimated]:
    """Draw one of the product's splits and fit its relevance model.

    searched: the data set; number, seed: of the split. Returns the positions of the queries that judge, the parts of
    those that calibrate, and the fitted model with its estimates.
    """
    calibration, judges = unseen(np.random.default_rng([seed, number]), searched.units)
    parts = Parts.of(calibration, searched.units, number)
    estimated = searched.estimate(parts)
    if estimated is None:
        raise AssertionError("no set here is without relevant results")
    return judges, parts, estimated


@dataclass(frozen=True)
class TrialOutcome:
    """The result of one rule on one split. kept: share of results; lost: queries among those that judge; cut: whether a threshold was found."""

    kept: float
    lost: float
    cut: bool


def trial(
    searched: SearchedSplit, number: int, rules: Sequence[ThresholdRule], drawing: Drawing, seed: int
) -> tuple[list[TrialOutcome], int]:
    """Calibrate on the draw of this number by each of the rules, and judge. Returns how many queries judged, too."""
    rng = np.random.default_rng([seed, number])
    calibration, judges = drawing(rng, searched.units)
    evidence = gather(searched, calibration, rng, number)
    outcomes = []
    for rule in rules:
        policy = decide(rule, evidence)
        taken = evidence.scored.take(judges)
        kept = keep(taken.decisions(policy.kind), None if policy.tau is None else np.float32(policy.tau))
        lost = float(taken.judged.lost("accuracy", kept).sum())
        outcomes.append(TrialOutcome(float(kept.mean()), lost, policy.tau is not None))
    return outcomes, len(judges)


def gather(searched: SearchedSplit, calibration: Positions, rng: np.random.Generator, number: int) -> Evidence:
    """Gather the evidence for a decision as `taugate.calibration.study` does."""
    draw = Draw.of(rng, searched.units.take(calibration), len(searched.documents), CalibrationSettings())
    parts = Parts.of(calibration, searched.units, number)
    estimated = searched.estimate(parts)
    return Evidence(searched.scored(estimated), calibration, draw.rows, parts, estimated, searched.units, number)
