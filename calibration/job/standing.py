"""Whether a release is calibrated or provisional, and whether its accuracy is above what chance gives."""

import math

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.risk import bounds
from taugate.calibration.settings.rule import CONFIDENCE
from taugate.retrieval.release.standing import FEWEST_QUERIES, AgainstChance, CalibrationRecord, StateReason

_MOST_QUERIES = 1_000_000  # who would have to label more has another problem than too few labels

Hits = NDArray[np.bool_]


def standing(hits: Hits, documents: int, k: int) -> CalibrationRecord:
    """The record of a release.

    hits: (q,) bool, whether each answerable query has a relevant document among its top K without a cut; documents: N,
    in the corpus. Every query counts as a person's: a data set does not say yet where its queries come from.
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
        accuracy=against_chance(int(hits.sum()), len(hits), min(1.0, k / documents)),
    )


def against_chance(found: int, queries: int, chance: float) -> AgainstChance:
    """Accuracy with its exact lower limit, beside what chance gives.

    By query, whatever documents they share: it asks whether there is anything to calibrate at all, not how much may be
    lost. Where queries have many relevant documents each, all of them hang together, and by document nothing would ever
    be above chance.
    """
    lower = lower_limit(found, queries)
    return AgainstChance(
        accuracy=found / queries,
        lower=lower,
        chance=chance,
        confidence=CONFIDENCE,
        queries_needed=None if lower > chance else _queries_needed(found, queries, chance),
    )


def lower_limit(found: int, queries: int) -> float:
    """One-sided lower confidence limit of a share (Clopper and Pearson, Biometrika 26, 1934): 1 less that of misses."""
    return 1 - bounds.upper_limit(queries - found, queries, CONFIDENCE, binary=True)


def _queries_needed(found: int, queries: int, chance: float) -> int | None:
    """How many queries with this accuracy show it: the fewest whole copies of the set whose limit is above chance."""
    if found / queries <= chance:
        return None
    few, enough = 1, 2
    while lower_limit(enough * found, enough * queries) <= chance:
        few, enough = enough, 2 * enough
        if enough * queries > _MOST_QUERIES:
            return None
    while enough - few > 1:
        middle = math.ceil((few + enough) / 2)
        few, enough = (few, middle) if lower_limit(middle * found, middle * queries) > chance else (middle, enough)
    return enough * queries
