"""Whether a rule holds between two releases, clause by clause.

A clause holds when the data show, with the confidence, that the new release is not worse than the current one by more
than the margin: non-inferiority, not "no significant difference", which few queries would always give. All clauses have
to hold, so that each is tested at the full level: whichever is false, the rule holds no more often than that one clause
would (intersection–union, Berger 1982).
"""

from dataclasses import dataclass, replace
from typing import Literal

from calibration.promotion.difference import Test, loss
from calibration.promotion.quantity import QUANTITIES, Sample
from calibration.promotion.rule import Clause, PromotionRule
from calibration.risk.rule import CONFIDENCE
from retrieval.errors import InputError
from retrieval.release.manifest import Manifest
from retrieval.release.outcomes import Outcomes

Finding = Literal["holds", "not shown", "worse"]


@dataclass(frozen=True)
class Measured:
    """A release as it is judged."""

    manifest: Manifest
    outcomes: Outcomes

    @property
    def k(self) -> int:
        """Results that a query has."""
        return self.manifest.policy.k

    def sample(self, name: str) -> Sample:
        """A quantity of each query. Raises InputError where the release has no query of that kind."""
        found = QUANTITIES[name](self.outcomes, self.k)
        if not len(found):
            raise InputError(
                f"{self.manifest.release_id}: was calibrated without unanswerable queries, and has no {name}; label "
                "some (score 0), or leave the clause out"
            )
        return found


@dataclass(frozen=True)
class Verdict:
    """One clause: means of both releases, how much worse the new one is at most, and what that says.

    finding: "worse" where the mean itself is worse by more than the margin, "not shown" where only the limit is;
    queries: of the current release and of the new one.
    """

    clause: Clause
    current: float
    new: float
    most: float
    confidence: float
    finding: Finding
    test: Test
    queries: tuple[int, int]


def judge(rule: PromotionRule, current: Measured, new: Measured) -> list[Verdict]:
    """A verdict for each clause. Raises InputError where the two cannot be compared."""
    if current.k != new.k:
        raise InputError(
            f"{new.manifest.release_id}: has K = {new.k}, the current release {current.manifest.release_id} "
            f"{current.k}, and no rule compares the two; calibrate with the same --k, or promote without a rule"
        )
    return [_verdict(clause, current.sample(clause.quantity), new.sample(clause.quantity)) for clause in rule.clauses]


def _verdict(clause: Clause, current: Sample, new: Sample) -> Verdict:
    ways = (current, new) if clause.way == "lower" else (_turned(current), _turned(new))
    found = loss(*ways, CONFIDENCE)
    finding: Finding = "worse" if found.mean > clause.margin else "not shown"
    if found.most <= clause.margin:
        finding = "holds"
    return Verdict(
        clause,
        float(current.values.mean()),
        float(new.values.mean()),
        found.most,
        CONFIDENCE,
        finding,
        found.test,
        (len(current), len(new)),
    )


def _turned(sample: Sample) -> Sample:
    """What must not rise, as what must not fall."""
    return replace(sample, values=1 - sample.values)
