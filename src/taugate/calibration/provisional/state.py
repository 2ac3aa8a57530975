"""Decide whether a release is calibrated or provisional, and whether its accuracy is above chance."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.provisional.bias import measured_bias
from taugate.calibration.risk import bounds
from taugate.calibration.settings.rules import CONFIDENCE
from taugate.ingestion.dataset.beir import Dataset, LabelledQuery, Origin
from taugate.retrieval.release.adaptation import AdaptationRecord
from taugate.retrieval.release.records import (
    MIN_QUERIES,
    AgainstChance,
    CalibrationRecord,
    StateReason,
    why_provisional,
)

_GENERATORS: frozenset[Origin] = frozenset({"crop", "llm"})
_MAX_QUERIES = 1_000_000  # who would have to label more has another problem than too few labels


@dataclass(frozen=True)
class AvailableEvidence:
    """The evidence that a data set offers for a threshold. It is known before anything is encoded.

    Attributes:
        human: Answerable queries that people asked, users of the running service included.
        generated: Answerable queries that a rule or a language model made.
        documents: N, in the corpus.
        k: K of the top-K.
        written: Those that a language model wrote.
        encoder_unproven: Whether the encoder was adapted, and judged by generated queries alone.
    """

    human: int
    generated: int
    documents: int
    k: int
    written: int = 0
    encoder_unproven: bool = False

    @classmethod
    def count(cls, dataset: Dataset, k: int, adaptation: AdaptationRecord | None = None) -> Self:
        """Count what a data set offers.

        Args:
            dataset: Labelled queries and documents.
            k: K of the top-K.
            adaptation: Of the encoder, None where it was not adapted.
        """
        unproven = adaptation is not None and adaptation.evidence == "generated"
        generated = count_generated(dataset.answerable)
        written = sum(query.origin == "llm" for query in dataset.answerable)
        return cls(len(dataset.answerable) - generated, generated, len(dataset.documents), k, written, unproven)

    @property
    def reasons(self) -> list[StateReason]:
        """List why a release that rests on this evidence is provisional; empty where it is calibrated.

        One generated query is enough: a threshold that rests on two kinds of query promises nothing about either.
        """
        found: list[StateReason] = []
        if self.generated or self.encoder_unproven:
            found.append("generated_queries")
        if self.human < MIN_QUERIES:
            found.append("few_queries")
        if self.documents <= self.k:
            found.append("few_documents")
        return found

    @property
    def because(self) -> str:
        """Say why the release is provisional, and what would make it calibrated; empty where it is calibrated."""
        return why_provisional(self.reasons, self.human, self.generated, self.k)


def count_generated(queries: Sequence[LabelledQuery]) -> int:
    """Count the queries that a rule or a language model made.

    Args:
        queries: Of a split.
    """
    return sum(query.origin in _GENERATORS for query in queries)


def calibration_record(
    hits: NDArray[np.bool_], evidence: AvailableEvidence, chance: float | None = None
) -> CalibrationRecord:
    """Say whether a release is calibrated or provisional, what its bias is, and compare with chance.

    Args:
        hits: (q,) bool, whether each answerable query has a relevant document among its top K without a cut.
        evidence: That the data set offers.
        chance: Accuracy of random results, in 0…1; K/N by default, where each document is one passage.
    """
    reasons = evidence.reasons
    if chance is None:
        chance = min(1.0, evidence.k / evidence.documents)
    return CalibrationRecord(
        state="provisional" if reasons else "calibrated",
        reasons=reasons,
        human=evidence.human,
        generated=evidence.generated,
        bias=measured_bias() if evidence.generated and not evidence.written else None,  # measured on crops alone
        accuracy=against_chance(int(hits.sum()), len(hits), chance),
    )


def against_chance(found: int, queries: int, chance: float) -> AgainstChance:
    """Compare accuracy, with its exact lower limit, to what chance gives.

    By query, whatever documents they share: it asks whether there is anything to calibrate at all, not how much may be
    lost. Where queries have many relevant documents each, all of them hang together, and by document nothing would ever
    be above chance.

    Args:
        found: Queries that find a relevant document.
        queries: How many there are.
        chance: Accuracy of random results, in 0…1.
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
    """Return the one-sided lower confidence limit of a share (Clopper and Pearson, Biometrika 26, 1934).

    It is 1 less the upper limit of the misses.

    Args:
        found: Of so many `queries`.
    """
    return 1 - bounds.upper_limit(queries - found, queries, CONFIDENCE, binary=True)


def _queries_needed(found: int, queries: int, chance: float) -> int | None:
    """Count the queries of this accuracy that show it: the fewest whole copies of the set that are above chance."""
    if found / queries <= chance:
        return None
    few, enough = 1, 2
    while lower_limit(enough * found, enough * queries) <= chance:
        few, enough = enough, 2 * enough
        if enough * queries > _MAX_QUERIES:
            return None
    while enough - few > 1:
        middle = math.ceil((few + enough) / 2)
        few, enough = (few, middle) if lower_limit(middle * found, middle * queries) > chance else (middle, enough)
    return enough * queries
