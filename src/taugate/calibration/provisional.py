"""Provisional releases, whose threshold rests on too little evidence, and the bias of figures on generated queries.

The bias of figures on generated queries, from public data sets on which people's queries were measured as well. The
table bias.json has a row for each data set and encoder. Two encoders on one data set are not independent, so their mean
is one observation. A new corpus is a further draw from the same population of data sets, so its bias is expected in a
prediction interval, which is wider than the confidence interval of the mean.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from taugate.calibration.progress import percent
from taugate.data.labelled_queries import LabelledQueries, LabelledQuery
from taugate.data.queries import Origin
from taugate.evidence.risk import certify
from taugate.evidence.rules import CONFIDENCE
from taugate.release import records
from taugate.release.adaptation import AdaptationRecord
from taugate.release.evidence import Interval
from taugate.release.names import METHODS
from taugate.release.outcome_records import MetricsRecord, PolicyRecord

_TABLE = "bias.json"
_CONFIDENCE = 0.95

_GENERATORS: frozenset[Origin] = frozenset({"crop", "llm"})
_MAX_QUERIES = 1_000_000  # if more are needed, too few labels are not the problem

_MAX_RANGE = 0.5  # a share of which no more is known is not named
PROVISIONAL = "PROVISIONAL:"  # prefix of the lines about a provisional release in the terminal


@dataclass(frozen=True)
class MeasuredSet:
    """Generated and human queries of one public data set, searched with one encoder; every figure is in 0…1."""

    set: str
    encoder: str
    accuracy_generated: float
    accuracy_human: float
    loss_generated: float  # accuracy of generated queries lost to the τ that was calibrated on them
    loss_human: float  # accuracy of human queries lost to the same τ


def read_table() -> list[MeasuredSet]:
    """Read the measurements that come with Taugate."""
    rows = json.loads((files("taugate.calibration") / _TABLE).read_text(encoding="utf-8"))
    return [MeasuredSet(**row) for row in rows]


def expected_bias(table: Sequence[MeasuredSet]) -> records.BiasRecord | None:
    """Return the expected difference of figures on generated and on human queries for a further data set.

    None with fewer than two data sets, because their variance is unknown.
    """
    accuracy = _mean_of_each_set((row.set, row.accuracy_generated - row.accuracy_human) for row in table)
    loss = _mean_of_each_set((row.set, row.loss_generated - row.loss_human) for row in table)
    if len(accuracy) < 2:
        return None
    return records.BiasRecord(
        **prediction_interval(accuracy).model_dump(), sets=len(accuracy), loss=prediction_interval(loss)
    )


def _mean_of_each_set(differences: Iterable[tuple[str, float]]) -> list[float]:
    """Average differences, given with the names of their data sets, over the encoders of each data set."""
    by_set = defaultdict(list)
    for name, difference in differences:
        by_set[name].append(difference)
    return [float(np.mean(values)) for values in by_set.values()]


def prediction_interval(differences: Sequence[float]) -> Interval:
    """Return the mean of m differences and the 95 % prediction interval for one further difference.

    mean ± t(.975, m − 1) · s · √(1 + 1/m), s the standard deviation with m − 1: it covers the next difference 19 times
    in 20 if all m + 1 are independent and normal (Hahn and Meeker, "Statistical Intervals", 1991, §4.7). Limits are
    clipped to −1 and 1, the range of a difference of two shares.

    Args:
        differences: Differences of two shares, in −1…1, at least two.
    """
    m = len(differences)
    mean, deviation = float(np.mean(differences)), float(np.std(differences, ddof=1))
    half = float(stats.t.ppf((1 + _CONFIDENCE) / 2, m - 1)) * deviation * float(np.sqrt(1 + 1 / m))
    return Interval(mean=mean, lower=max(-1.0, mean - half), upper=min(1.0, mean + half))


@dataclass(frozen=True)
class AvailableEvidence:
    """The evidence of a data set for a threshold, known before anything is encoded."""

    human: int  # number of answerable queries by people, including users of the running service
    generated: int  # number of answerable queries made by a rule or a language model
    documents: int
    k: int
    written: int = 0  # number of answerable queries written by a language model
    encoder_unproven: bool = False  # whether the encoder was adapted with evidence from generated queries alone

    @classmethod
    def count(cls, dataset: LabelledQueries, k: int, adaptation: AdaptationRecord | None = None) -> Self:
        """Count the evidence of a data set.

        Args:
            adaptation: Record of the encoder's adaptation, None if it was not adapted.
        """
        unproven = adaptation is not None and adaptation.evidence == "generated"
        generated = count_generated(dataset.answerable)
        written = sum(query.origin == "llm" for query in dataset.answerable)
        return cls(len(dataset.answerable) - generated, generated, dataset.passages, k, written, unproven)

    @property
    def reasons(self) -> list[records.StateReason]:
        """Reasons why a release with this evidence is provisional; empty if it is calibrated.

        One generated query is enough: a threshold that rests on two kinds of query guarantees nothing about either.
        """
        reasons: list[records.StateReason] = []
        if self.generated or self.encoder_unproven:
            reasons.append("generated_queries")
        if self.human < records.MIN_QUERIES:
            reasons.append("few_queries")
        if self.documents <= self.k:
            reasons.append("few_documents")
        return reasons

    @property
    def because(self) -> str:
        """Sentence that says why the release is provisional and how to calibrate it; empty if it is calibrated."""
        return records.why_provisional(self.reasons, self.human, self.generated, self.k)


def count_generated(queries: Sequence[LabelledQuery]) -> int:
    """Count the queries made by a rule or a language model."""
    return sum(query.origin in _GENERATORS for query in queries)


def calibration_record(
    hits: NDArray[np.bool_], evidence: AvailableEvidence, chance: float | None = None, *, adjusted: bool = False
) -> records.CalibrationRecord:
    """Record the state of a release, its bias, and its comparison with chance.

    Args:
        hits: (q,) bool, whether each answerable query has a relevant document among its top K without a cut.
        chance: Accuracy of random results, in 0…1; by default K/N, which assumes that each document is one passage.
    """
    reasons = evidence.reasons
    if chance is None:
        chance = min(1.0, evidence.k / evidence.documents)
    return records.CalibrationRecord(
        state="provisional" if reasons else "adjusted" if adjusted else "calibrated",
        reasons=reasons,
        human=evidence.human,
        generated=evidence.generated,
        bias=expected_bias(read_table())
        if evidence.generated and not evidence.written
        else None,  # measured on crops alone
        accuracy=against_chance(int(hits.sum()), len(hits), chance),
    )


def against_chance(hits: int, queries: int, chance: float) -> records.AgainstChance:
    """Compare accuracy, with its exact lower limit, with chance.

    The unit is the query even if queries share documents, because the question is whether there is anything to
    calibrate and not how much may be lost. If queries have many relevant documents each, they form one cluster, and by
    document no accuracy would be above chance.
    """
    lower = lower_limit(hits, queries)
    return records.AgainstChance(
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
    return 1 - certify.upper_limit(queries - hits, queries, CONFIDENCE)


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


def outlook(
    record: records.CalibrationRecord, policy: PolicyRecord, metrics: MetricsRecord, *, refusing: bool
) -> str | None:
    """State what to expect for people's questions if figures are of generated ones; None if no query was generated.

    Args:
        metrics: Metrics of the queries that did not influence the policy, if there are any.
        refusing: Whether the metrics include queries that are refused as a whole.
    """
    if not record.generated:
        return None
    accuracy, queries = metrics.accuracy.mean, record.human + record.generated
    results = "the first result" if policy.k == 1 else f"the first {policy.k} results"
    questions = (
        "the generated questions"
        if not record.human
        else f"the questions ({record.generated:,} of {queries:,} generated)"
    )
    share = record.generated / queries
    sentences = [f"{percent(accuracy)} of {questions} find their answer in {results}."]
    if record.bias is None:
        sentences.append(
            "For questions that people ask, this share is unknown: the difference was measured for cropped queries "
            "alone. If taugate queries kept only those of a model's questions that find their document (the round "
            "trip), they find it again, and the share says nothing about the search."
        )
    else:
        mean, lower, upper = _of_people(accuracy, record.bias, share)
        if upper - lower > _MAX_RANGE:
            expected = f"this share is unknown until people judge: it may be {percent(lower)} to {percent(upper)}"
        else:
            expected = f"expect {_range(mean, lower, upper)}"
        sentences.append(f"For questions that people ask, {expected}.")
        # The bias of the loss was only measured with such thresholds, alone.
        if policy.tau is not None and METHODS[policy.method].of_papers and not refusing:
            lost = accuracy - metrics.accuracy_at_tau.mean
            sentences.append(
                f"The threshold loses the answer to {percent(lost)} of {questions}; for questions that people ask, "
                f"expect {_range(*_of_people(lost, record.bias.loss, share))}."
            )
        sentences.append(
            f"These ranges are 95 % prediction intervals, from {record.bias.sets} public data sets on which cropped "
            "and human questions were measured: 19 of 20 new data sets should lie within."
        )
    if policy.tau is not None and policy.statement is not None:
        limit = "The guarantee holds for questions generated like these, and for no others"
        measured = (
            ": on most of the public data sets, such a threshold took more answers from people's questions than it "
            "guaranteed"
        )
        sentences.append(f"{limit}{measured if record.bias else ''}.")
    return " ".join(sentences)


def _of_people(measured: float, bias: Interval, share: float) -> tuple[float, float, float]:
    """Return the share to expect for people's questions, and the lower and upper end of its range."""
    mean, lower, upper = (min(1.0, max(0.0, measured - share * value)) for value in (bias.mean, bias.upper, bias.lower))
    return mean, lower, upper


def _range(mean: float, lower: float, upper: float) -> str:
    return f"{percent(mean)} ({percent(lower)} to {percent(upper)})"
