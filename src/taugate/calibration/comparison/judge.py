"""Judge a promotion rule between two releases, clause by clause.

A clause holds when the data show, with the confidence, that the new release is not worse than the current one by more
than the margin: non-inferiority, not "no significant difference", which few queries would always give. All clauses have
to hold, so that each is tested at the full level: whichever is false, the rule holds no more often than that one clause
would (intersection–union, Berger 1982).
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from taugate.calibration.comparison.rule import MARGIN, QUANTITIES, Clause, PromotionRule, QuantitySample
from taugate.calibration.metrics.clusters import SamplingUnits, Unit
from taugate.calibration.risk.paired import least_loss, paired_losses, sample_size_factor
from taugate.calibration.settings.rules import CONFIDENCE
from taugate.calibration.settings.settings import default_margin
from taugate.errors import InputError
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.query_arrays import Outcomes
from taugate.retrieval.release.records import GateStatement

Test = Literal["paired", "two samples"]
Finding = Literal["holds", "not shown", "worse"]


@dataclass(frozen=True)
class MeasuredRelease:
    """A release as it is judged: its manifest, and the outcomes of its queries."""

    manifest: Manifest
    outcomes: Outcomes

    @property
    def k(self) -> int:
        """Number of results that a query has."""
        return self.manifest.policy.k

    def sample(self, name: str) -> QuantitySample:
        """Read a quantity of each query, by `name`; raises InputError where the release has no query of that kind."""
        found = QUANTITIES[name](self.outcomes, self.k)
        if not len(found):
            raise InputError(
                f"{self.manifest.release_id}: was calibrated without unanswerable queries, so it has no {name}; "
                "label some (with score 0), or leave the clause out"
            )
        return found


@dataclass(frozen=True)
class ClauseVerdict:
    """The verdict on one clause.

    Attributes:
        clause: With its margin.
        widened: From the default, as these queries cannot show less.
        current: Means of both releases over queries.
        new: Means of both releases over queries.
        most: How much worse the new one is at most.
        confidence: Of that limit.
        finding: "worse" where the mean itself is worse by more than the margin, "not shown" where only the limit is.
        test: Paired or of two samples.
        unit: Of whose mean `most` speaks.
        statement: Of whose mean the clause holds.
        least: The most it would be had nothing changed.
        needed: So many queries would tell.
        queries: Of the current release and of the new one.
        documents: Of the new one.
    """

    clause: Clause
    widened: bool
    current: float
    new: float
    most: float
    confidence: float
    finding: Finding
    test: Test
    unit: Unit
    statement: GateStatement | None
    least: float | None
    needed: int | None
    queries: tuple[int, int]
    documents: int


@dataclass(frozen=True)
class MeanDifference:
    """The difference of two means: how much worse the new release is.

    Attributes:
        mean: The difference found, −1…1, below 0 where it is better.
        most: The most it is, with a confidence.
        test: Paired or of two samples.
        units: Of the new release's queries.
        most_of_queries: The most that the average query has become worse, where `most` is that of the average document
            and both were asked the same.
        least: The most it would be had nothing changed, None of two samples, where that depends on what was found.
    """

    mean: float
    most: float
    test: Test
    units: SamplingUnits
    most_of_queries: float | None
    least: float | None


def judge_rule(rule: PromotionRule, current: MeasuredRelease, new: MeasuredRelease) -> list[ClauseVerdict]:
    """Judge each clause of a rule.

    Args:
        rule: Clauses.
        current: The two releases.
        new: The two releases.

    Raises:
        InputError: Where the two cannot be compared.
    """
    if current.k != new.k:
        raise InputError(
            f"{new.manifest.release_id}: has K = {new.k}, and the current release {current.manifest.release_id} "
            f"{current.k}; a rule compares only releases of the same K; calibrate with --k {current.k}, or promote "
            "without a rule"
        )
    return [_verdict(clause, current.sample(clause.quantity), new.sample(clause.quantity)) for clause in rule.clauses]


def _verdict(clause: Clause, current: QuantitySample, new: QuantitySample) -> ClauseVerdict:
    ways = (current, new) if clause.way == "lower" else (_turned(current), _turned(new))
    found = mean_difference(*ways, CONFIDENCE)
    margin = clause.margin
    if margin is None:
        margin = MARGIN if found.least is None else default_margin(MARGIN, found.least)
    finding: Finding = "worse" if found.mean > margin else "not shown"
    if found.most <= margin:
        finding = "holds"
    return ClauseVerdict(
        clause=replace(clause, margin=margin),
        widened=clause.margin is None and margin > MARGIN,
        current=float(current.values.mean()),
        new=float(new.values.mean()),
        most=found.most,
        confidence=CONFIDENCE,
        finding=finding,
        test=found.test,
        unit=found.units.unit,
        statement=_statement(found, margin) if finding == "holds" else None,
        least=found.least,
        needed=queries_needed(*ways, margin, CONFIDENCE) if finding == "not shown" else None,
        queries=(len(current), len(new)),
        documents=found.units.documents,
    )


def _statement(found: MeanDifference, margin: float) -> GateStatement:
    """Say whose mean it is: the average query's where queries are the units, the average document's, or both."""
    if found.most_of_queries is not None and found.most_of_queries <= margin:
        return "document and query"
    return found.units.unit


def _turned(sample: QuantitySample) -> QuantitySample:
    """Turn a quantity that must not rise into one that must not fall."""
    return replace(sample, values=1 - sample.values)


def mean_difference(old: QuantitySample, new: QuantitySample, confidence: float) -> MeanDifference:
    """Measure by how much the mean of `new` is below that of `old`.

    Args:
        old: One number of each query, one query at least.
        new: One number of each query, one query at least.
        confidence: Of the limit. The same queries are paired.
    """
    units = SamplingUnits.from_labels(new.labels)
    if np.array_equal(old.query, new.query):
        losses = old.values - new.values
        found, least = paired_losses(losses, units), least_loss(units, confidence)
        of_queries = None
        if units.unit == "document":
            of_queries = paired_losses(losses, units, "query").upper_limit(confidence)
        return MeanDifference(found.mean, found.upper_limit(confidence), "paired", units, of_queries, least)
    # Both by document where one is, so that the two means are of the same thing.
    effect = max(units.design_effect, SamplingUnits.from_labels(old.labels).design_effect)
    units = replace(units, design_effect=effect)
    before, missed = paired_losses(old.values, SamplingUnits(old.labels, effect)), paired_losses(1 - new.values, units)
    mean = before.mean - (1 - missed.mean)
    room = (each.upper_limit(confidence) - each.mean for each in (before, missed))
    return MeanDifference(mean, min(1.0, mean + math.hypot(*room)), "two samples", units, None, None)


def queries_needed(old: QuantitySample, new: QuantitySample, margin: float, confidence: float) -> int | None:
    """Count the queries like these that would show that no more than the margin is lost.

    Args:
        old: One number of each query.
        new: One number of each query.
        margin: Of the mean.
        confidence: Of the limit. None for two samples, and where no number would.
    """
    if not np.array_equal(old.query, new.query):
        return None
    found = paired_losses(old.values - new.values, SamplingUnits.from_labels(new.labels))
    factor = sample_size_factor(found, margin, 1 - confidence)
    return None if factor is None else math.ceil(factor * len(new))
