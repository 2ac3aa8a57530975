"""Labelled queries of a known world, as a study hands them to a rule, and thresholds written down in plain loops."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy import stats

from taugate.calibration.relevance import estimate_relevance
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import MIN_CALIBRATING, QueryRoles
from taugate.evidence.ranking import ScoredQueries
from taugate.evidence.rules import ThresholdRule
from taugate.evidence.threshold.policy_choice import CalibrationQueries
from taugate.policy.policy import relative
from tests.calibration.relevance.test_relevance_fit import QUERIES, World

AUTO = ThresholdRule("risk-control", "auto", max_loss=0.1)

EXPECTED = replace(AUTO, guarantee="expected-loss")

ALONE = SamplingUnits.from_clusters(np.arange(QUERIES))  # no two queries share a document


def evidence(world: World, calibration: np.ndarray | None = None) -> CalibrationQueries:
    """As the study gathers it."""
    members = np.arange(QUERIES) if calibration is None else calibration
    parts = QueryRoles.draw(members, ALONE, 0) if len(members) >= MIN_CALIBRATING else None
    estimated, relevance = None, (None, None)
    if parts is not None:
        estimated = estimate_relevance(world.judged, world.queries, parts, world.documents, world.lengths)
        relevance = (
            (estimated.answerable, estimated.relevance.estimate(*world.unanswerable[::-1]))
            if estimated
            else (None, None)
        )
    scored = ScoredQueries(world.judged, world.unanswerable[0], *relevance)
    rows = np.random.default_rng(0).integers(0, len(members), size=(50, 40))
    return CalibrationQueries(scored, members, rows, parts, estimated, ALONE, 0)


def decisions(given: CalibrationQueries, kind: str) -> np.ndarray:
    scores = given.scored.judged.top.scores
    if kind == "probability":
        assert given.scored.relevance is not None
        return given.scored.relevance
    return relative(scores) if kind == "relative" else scores


def literal_tau(
    given: CalibrationQueries, kind: str, members: np.ndarray, passes: Callable[[int, int], bool]
) -> float | None:
    """The largest decision score of a relevant result that `passes` with how many of `members` it loses."""
    grades, scores = given.scored.judged.grades, decisions(given, kind)
    best = [
        max(score for grade, score in zip(grades[q], scores[q].tolist(), strict=True) if grade >= 1)
        for q in members.tolist()
        if (grades[q] >= 1).any()
    ]
    ok = [tau for tau in sorted(set(best)) if passes(sum(not item >= tau for item in best), len(members))]
    return max(ok, default=None)


def exact(delta: float, error: float = 0.05) -> Callable[[int, int], bool]:
    return lambda lost, n: float(stats.binom.cdf(lost, n, delta)) <= error


def conformal(delta: float) -> Callable[[int, int], bool]:
    return lambda lost, n: (lost + 1) / (n + 1) <= delta + 1e-12


def roll(world: World, rows: np.ndarray) -> None:
    world.judged.grades[rows] = np.roll(world.judged.grades[rows], 1, axis=0)


def zero(world: World, rows: np.ndarray) -> None:
    world.judged.grades[rows] = 0


def reverse(world: World, rows: np.ndarray) -> None:
    world.judged.grades[rows] = world.judged.grades[rows][:, ::-1]


def everything_is_relevant(world: World, rows: np.ndarray) -> None:
    world.judged.grades[rows] = 1
