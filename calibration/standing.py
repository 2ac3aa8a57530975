"""Whether a release is calibrated or provisional, and whether its accuracy is above what chance gives."""

import math

import numpy as np
from numpy.typing import NDArray

from calibration.query_set.clusters import Units
from calibration.risk.certify import upper_limit
from calibration.risk.rule import CONFIDENCE
from calibration.risk.steps import LossSteps
from retrieval.release.standing import FEWEST_QUERIES, AgainstChance, CalibrationRecord, StateReason

_MOST_QUERIES = 1_000_000  # who would have to label more has another problem than too few labels

Hits = NDArray[np.bool_]


def standing(hits: Hits, units: Units, documents: int, k: int) -> CalibrationRecord:
    """The record of a release.

    hits: (q,) bool, whether each answerable query has a relevant document among its top K without a cut; units: what
    counts as one draw among them; documents: N, in the corpus. Every query counts as a person's: a data set does not
    say yet where its queries come from.
    """
    reasons: list[StateReason] = []
    if len(hits) < FEWEST_QUERIES:
        reasons.append("few_queries")
    if documents <= k:
        reasons.append("few_documents")
    return CalibrationRecord(
        state="provisional" if reasons else "calibrated",
        reasons=reasons,
        human=len(hits),
        generated=0,
        accuracy=against_chance(hits, units, min(1.0, k / documents)),
    )


def against_chance(hits: Hits, units: Units, chance: float) -> AgainstChance:
    """Accuracy with its lower limit, beside what chance gives."""
    lower = lower_limit(hits, units)
    return AgainstChance(
        accuracy=float(hits.mean()),
        lower=lower,
        chance=chance,
        confidence=CONFIDENCE,
        queries_needed=None if lower > chance else _queries_needed(hits, units, chance),
    )


def lower_limit(hits: Hits, units: Units) -> float:
    """One-sided lower confidence limit of the share of queries that are hits: 1 less the upper limit of the misses.

    Clopper and Pearson's (Biometrika 26, 1934) where the unit is the query; by document the e-value of
    `calibration/risk/e_values.py`.
    """
    found = hits.astype(np.float32)[:, None]  # as scores: at a threshold of 1 a miss is a query without a result
    return 1 - upper_limit(LossSteps.of_empty(found, units), 1.0, CONFIDENCE)


def _queries_needed(hits: Hits, units: Units, chance: float) -> int | None:
    """How many queries like these show it: the fewest whole copies of this set whose limit is above chance."""
    if hits.mean() <= chance:
        return None
    few, enough = 1, 2
    while lower_limit(*_copies(hits, units, enough)) <= chance:
        few, enough = enough, 2 * enough
        if enough * len(hits) > _MOST_QUERIES:
            return None
    while enough - few > 1:
        middle = math.ceil((few + enough) / 2)
        if lower_limit(*_copies(hits, units, middle)) > chance:
            enough = middle
        else:
            few = middle
    return enough * len(hits)


def _copies(hits: Hits, units: Units, copies: int) -> tuple[Hits, Units]:
    """As many sets like this one, each with documents of its own."""
    apart = np.repeat(np.arange(copies) * (int(units.labels.max()) + 1), len(hits))
    return np.tile(hits, copies), Units(np.tile(units.labels, copies) + apart, units.design_effect)
