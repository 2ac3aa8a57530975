"""What to do where nothing is certified: what these labels can show, and how few more would do.

Without any loss a limit passes as soon as enough queries certify it, and the lowest candidate for τ loses nothing
(`calibration/risk/certify.py`). So each way to ask is a count of queries: how many certify, and how many it takes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from taugate.calibration.metrics.splits import MIN_CALIBRATING, SHARES, held_out
from taugate.calibration.risk import bounds
from taugate.calibration.risk.words import EMPTY
from taugate.calibration.settings.rules import PolicyChoice, ThresholdRule
from taugate.retrieval.release.evidence import Certificate

_MOST = 0.5  # a cut that may lose half of the queries is no advice
# Certified by all calibration queries; it keeps fewer results than `similarity` (docs/thresholds.md).
_NAMED: PolicyChoice = "relative"


@dataclass(frozen=True)
class RuleVariant:
    """A variant of what was asked: another holdout, another policy, or both.

    Attributes:
        holdout: Share held out.
        rule: The rule.
        options: That ask for it, empty for what was asked.
    """

    holdout: float
    rule: ThresholdRule
    options: str = ""

    @property
    def set_aside(self) -> tuple[float, ...]:
        """Shares of the calibration queries that fit and choose, and certify nothing (threshold/policy_choice.py).

        `auto` with high probability certifies two policies, of which one fits nothing: it is certified by all of them.
        """
        if self.rule.policy == "probability":
            return SHARES[:1]
        return SHARES if self.rule.policy == "auto" and self.rule.statement == "expected-loss" else ()

    def certifying(self, labels: int) -> int:
        """Return how many of `labels` answerable queries certify; 0 where `probability` has too few to fit on."""
        calibrating = labels - held_out(labels, self.holdout)
        if calibrating < MIN_CALIBRATING:  # no model, so that `auto` is `relative`
            return 0 if self.rule.policy == "probability" else calibrating
        return calibrating - sum(round(share * calibrating) for share in self.set_aside)

    def labels(self, needed: int) -> int:
        """Return the fewest answerable queries of which `needed` certify."""
        found = needed
        while (there := self.certifying(found)) < needed:
            found += max(1, needed - there)
        return found


def remedy(labels: int, holdout: float, rule: ThresholdRule, certificates: Sequence[Certificate]) -> str:
    """Advise what to ask for instead, or how many queries to label, where nothing could be certified.

    Args:
        labels: Answerable queries.
        holdout: Share held out.
        rule: That was asked for.
        certificates: Of its limits, at least one of which failed.
    """
    asked, *others = _variants(holdout, rule)
    needed = max(each.queries_needed for each in certificates)
    now = [variant.options for variant in others if variant.certifying(labels) >= needed][:2]
    now += _on_average(rule, certificates, holdout, labels)
    now += _larger(rule, certificates, [asked, *others], labels)
    frugal = (others or [asked])[-1]
    more = f"as asked it takes about {asked.labels(needed):,}"
    if frugal is not asked and (fewest := frugal.labels(needed)) > labels:
        more = f"with {fewest:,} in all {frugal.options} is enough; {more}"
    if not now:
        on = ", about other documents" if _by_document(certificates) else ""
        return f"Label more{on}: {more}."
    return f"With these {labels:,} labelled queries any of these can be certified: {'; '.join(now)}. {_sentence(more)}."


def _variants(holdout: float, rule: ThresholdRule) -> Iterator[RuleVariant]:
    """Yield what was asked, then what gives up less before what gives up more: choice of policy, holdout, both."""
    asked, named = RuleVariant(holdout, rule), replace(rule, policy=_NAMED)
    yield asked
    if asked.set_aside:
        yield RuleVariant(holdout, named, f"--policy {_NAMED}")
    if holdout:
        yield RuleVariant(0.0, rule, "--holdout 0")
    if holdout and asked.set_aside:
        yield RuleVariant(0.0, named, f"--holdout 0 --policy {_NAMED}")


def _on_average(rule: ThresholdRule, certificates: Sequence[Certificate], holdout: float, labels: int) -> Iterator[str]:
    """Yield the first variant whose loss is certified on average, unless that was asked for or documents count."""
    if rule.method != "risk-control" or rule.statement == "expected-loss" or _by_document(certificates):
        return
    needed = max(bounds.queries_for_expected(each.most) for each in certificates)
    for variant in _variants(holdout, replace(rule, guarantee="expected-loss")):
        if variant.certifying(labels) >= needed:
            yield f"--guarantee expected-loss {variant.options}".rstrip() + " (on average)"
            return


def _larger(
    rule: ThresholdRule, certificates: Sequence[Certificate], variants: Sequence[RuleVariant], labels: int
) -> Iterator[str]:
    """Yield the smallest larger limits that are of any use: as asked, and where all labelled queries certify."""
    failed = [each for each in certificates if each.queries_needed > each.queries]
    if all(each.bound < _MOST for each in failed):
        yield " ".join(f"{_option(each)} {_up(each.bound)}" for each in failed)
    frugal = variants[-1]
    if rule.statement == "expected-loss" or _by_document(certificates) or not frugal.options:
        return
    least = 1 - (1 - rule.confidence) ** (1 / frugal.certifying(labels))
    short = [each for each in failed if each.most < least]
    if short and least < _MOST:
        yield " ".join([*(f"{_option(each)} {_up(least)}" for each in short), frugal.options])


def _by_document(certificates: Sequence[Certificate]) -> bool:
    return any(each.unit == "document" for each in certificates)


def _option(certificate: Certificate) -> str:
    return "--max-empty" if certificate.limit == EMPTY else "--max-loss"


def _up(share: float) -> str:
    """Write a share with three digits, rounded up: what is below the limit is not certified."""
    digits = 2 - math.floor(math.log10(share))
    return f"{math.ceil(share * 10**digits) / 10**digits:g}"


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:]
