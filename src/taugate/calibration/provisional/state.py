"""Decides whether a release is calibrated or provisional, and whether its accuracy is above chance."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.provisional.bias import measured_bias
from taugate.calibration.risk import bounds
from taugate.calibration.settings.rules import CONFIDENCE
from taugate.ingestion.dataset.labelled_queries import LabelledQueries
from taugate.ingestion.dataset.labelled_query import LabelledQuery
from taugate.ingestion.dataset.queries import Origin
from taugate.retrieval.release.adaptation import AdaptationRecord
from taugate.retrieval.release.records import (
    MIN_QUERIES,
    AgainstChance,
    CalibrationRecord,
    StateReason,
    why_provisional,
)

_GENERATORS: frozenset[Origin] = frozenset({"crop", "llm"})
_MAX_QUERIES = 1_000_000  # if more are needed, too few labels are not the problem


@dataclass(frozen=True)
class AvailableEvidence:
    """The evidence of a data set for a threshold, known before anything is encoded.

    Attributes:
        human: Number of answerable queries by people, including users of the running service.
        generated: Number of answerable queries made by a rule or a language model.
        documents: N, the number of documents in the corpus.
        k: K of the top-K.
        written: Number of answerable queries written by a language model.
        encoder_unproven: Whether the encoder was adapted with evidence from generated queries alone.
    """

    human: int
    generated: int
    documents: int
    k: int
    written: int = 0
    encoder_unproven: bool = False

    @classmethod
    def count(cls, dataset: LabelledQueries, k: int, adaptation: AdaptationRecord | None = None) -> Self:
        """Count the evidence of a data set.

        Args:
            dataset: The labelled queries.
            k: K of the top-K.
            adaptation: Record of the encoder's adaptation, None if it was not adapted.
        """
        unproven = adaptation is not None and adaptation.evidence == "generated"
        generated = count_generated(dataset.answerable)
        written = sum(query.origin == "llm" for query in dataset.answerable)
        return cls(len(dataset.answerable) - generated, generated, dataset.passages, k, written, unproven)

    @property
    def reasons(self) -> list[StateReason]:
        """Reasons why a release with this evidence is provisional; empty if it is calibrated.

        One generated query is enough: a threshold that rests on two kinds of query guarantees nothing about either.
        """
        reasons: list[StateReason] = []
        if self.generated or self.encoder_unproven:
            reasons.append("generated_queries")
        if self.human < MIN_QUERIES:
            reasons.append("few_queries")
        if self.documents <= self.k:
            reasons.append("few_documents")
        return reasons

    @property
    def because(self) -> str:
        """Sentence that says why the release is provisional and how to calibrate it; empty if it is calibrated."""
        return why_provisional(self.reasons, self.human, self.generated, self.k)


def count_generated(queries: Sequence[LabelledQuery]) -> int:
    """Count the queries made by a rule or a language model."""
    return sum(query.origin in _GENERATORS for query in queries)


def calibration_record(
    hits: NDArray[np.bool_], evidence: AvailableEvidence, chance: float | None = None, *, adjusted: bool = False
) -> CalibrationRecord:
    """Record the state of a release, its bias, and its comparison with chance.

    Args:
        hits: (q,) bool, whether each answerable query has a relevant document among its top K without a cut.
        evidence: Evidence of the data set.
        chance: Accuracy of random results, in 0…1; by default K/N, which assumes that each document is one passage.
        adjusted: Whether the threshold was given.
    """
    reasons = evidence.reasons
    if chance is None:
        chance = min(1.0, evidence.k / evidence.documents)
    return CalibrationRecord(
        state="provisional" if reasons else "adjusted" if adjusted else "calibrated",
        reasons=reasons,
        human=evidence.human,
        generated=evidence.generated,
        bias=measured_bias() if evidence.generated and not evidence.written else None,  # measured on crops alone
        accuracy=against_chance(int(hits.sum()), len(hits), chance),
    )


def against_chance(hits: int, queries: int, chance: float) -> AgainstChance:
    """Compare accuracy, with its exact lower limit, with chance.

    The unit is the query even if queries share documents, because the question is whether there is anything to
    calibrate and not how much may be lost. If queries have many relevant documents each, they form one cluster, and by
    document no accuracy would be above chance.

    Args:
        hits: Number of queries that find a relevant document.
        queries: Number of queries.
        chance: Accuracy of random results, in 0…1.
    """
    lower = lower_limit(hits, queries)
    return AgainstChance(
        accuracy=hits / queries,
        lower=lower,
        chance=chance,
        confidence=CONFIDENCE,
        queries_needed=None if lower > chance else _queries_needed(hits, queries, chance),
    )


def lower_limit(hits: int, queries: int) -> float:
    """Return the one-sided lower confidence limit of a share (Clopper and Pearson, Biometrika 26, 1934).

    It is 1 less the upper limit of the misses.
    """
    return 1 - bounds.upper_limit(queries - hits, queries, CONFIDENCE)


def _queries_needed(hits: int, queries: int, chance: float) -> int | None:
    """Return the number of queries in the smallest number of copies of the set whose accuracy is above chance."""
    if hits / queries <= chance:
        return None
    low, high = 1, 2  # copies of the set: not enough, and enough
    while lower_limit(high * hits, high * queries) <= chance:
        low, high = high, 2 * high
        if high * queries > _MAX_QUERIES:
            return None
    while high - low > 1:
        middle = math.ceil((low + high) / 2)
        low, high = (low, middle) if lower_limit(middle * hits, middle * queries) > chance else (middle, high)
    return high * queries
