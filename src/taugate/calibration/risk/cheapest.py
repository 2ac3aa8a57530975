"""Suggests what could be certified with these labels and how many more are needed.

The lowest candidate for τ loses nothing, and without a loss a limit passes as soon as enough queries certify it
(`calibration/risk/certify.py`). So every variant of a request is decided by two counts: the queries that certify, and
the queries needed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from taugate.calibration.metrics.splits import FIT_SHARE, MIN_CALIBRATING, held_out
from taugate.calibration.risk import bounds
from taugate.calibration.risk.words import EMPTY
from taugate.calibration.settings.rules import PolicyChoice, ThresholdRule
from taugate.retrieval.release.evidence import Certificate, Shortage

_MAX_LOSS = 0.5  # a cut that may lose half of the queries is no advice
# A policy that all calibration queries certify; it keeps fewer results than `similarity` (docs/thresholds.md).
_NAMED: PolicyChoice = "relative"
_LOWEST = "The labels with the lowest scores hold the threshold down; check them first:"


@dataclass(frozen=True)
class RuleVariant:
    """A variant of the request with another holdout, another policy, or both.

    Attributes:
        holdout: Share of queries held out.
        rule: Rule of the variant.
        options: Command-line options of the variant, empty for the request itself.
        refuses: Whether queries are refused by default. Without a holdout, queries that limit ρ cannot certify.
    """

    holdout: float
    rule: ThresholdRule
    options: str = ""
    refuses: bool = False

    @property
    def set_aside(self) -> float:
        """Share of the calibration queries that fit and so cannot certify (threshold/policy_choice.py).

        `auto` with high probability certifies two policies. One of them fits nothing, so all queries certify it.
        """
        fits = self.rule.policy == "probability" or (self.refuses and not self.holdout)
        fits |= self.rule.policy == "auto" and self.rule.statement == "expected-loss"
        return FIT_SHARE if fits else 0.0

    def certifying(self, labels: int) -> int:
        """Return how many of `labels` answerable queries certify; 0 if `probability` has too few to fit on."""
        calibrating = labels - held_out(labels, self.holdout)
        if calibrating < MIN_CALIBRATING:  # no model, so that `auto` is `relative`
            return 0 if self.rule.policy == "probability" else calibrating
        return calibrating - round(self.set_aside * calibrating)

    def labels_needed(self, needed: int) -> int:
        """Return the smallest number of answerable queries of which `needed` certify."""
        labels = needed
        while (certifying := self.certifying(labels)) < needed:
            labels += max(1, needed - certifying)
        return labels


def remedy(
    labels: int,
    holdout: float,
    rule: ThresholdRule,
    certificates: Sequence[Certificate],
    shortage: Shortage | None = None,
    *,
    refuses: bool = False,
) -> str:
    """Advise which options to use, or how many queries to label, if nothing could be certified.

    Args:
        labels: Number of answerable queries.
        holdout: Share of queries held out.
        rule: Requested rule.
        certificates: Certificates of its limits, at least one of which failed.
        shortage: What is missing, None if unknown.
        refuses: As in `RuleVariant`.
    """
    request = RuleVariant(holdout, rule, refuses=refuses)
    requested, *alternatives = _variants(request)
    needed = max(certificate.queries_needed for certificate in certificates)
    options = [variant.options for variant in alternatives if variant.certifying(labels) >= needed][:2]
    if shortage is not None:
        options = [*shortage.options, *(() if _by_document(certificates) else options)]
    options += _on_average(request, certificates, labels)
    options += _larger(rule, certificates, [requested, *alternatives], labels)
    certified = f"With these {labels:,} labelled queries any of these can be certified: {'; '.join(options)}. "
    lowest = "" if shortage is None else f" {_LOWEST} {', '.join(shortage.lowest)}."
    if shortage is not None and (missing := _missing(shortage, certificates)) is not None:
        return f"{certified if options else ''}{missing}{lowest}"
    frugal = (alternatives or [requested])[-1]
    advice = f"the request as it is needs about {requested.labels_needed(needed):,}"
    if frugal is not requested and (enough := frugal.labels_needed(needed)) > labels:
        advice = f"with {enough:,} in all, {frugal.options} is enough; {advice}"
    if not options:
        on = ", about other documents" if _by_document(certificates) else ""
        return f"Label more queries{on}, with `taugate judge`: {advice}.{lowest}"
    return f"{certified}Label more with `taugate judge`: {advice}.{lowest}"


def _missing(shortage: Shortage, certificates: Sequence[Certificate]) -> str | None:
    """State how many queries about further documents are likely to be enough, or what these documents allow."""
    strictest = min(certificates, key=lambda certificate: certificate.most)
    if shortage.min_loss is not None:
        return (
            f"With more labels, these documents allow {_option(strictest)} {_up(shortage.min_loss)}; --count-at-most "
            "auto may allow less, and so does --drawn queries, if single queries were drawn."
        )
    if shortage.queries is None or shortage.documents is None:
        return None
    documents = "documents" if shortage.queries == shortage.documents else f"{shortage.documents:,} documents"
    return (
        f"Label {shortage.queries:,} more queries with `taugate judge`, about {documents} that have none: 8 in 10 "
        f"chance to certify {100 * strictest.most:.4g} %."
    )


def _variants(request: RuleVariant) -> Iterator[RuleVariant]:
    """Yield the request, then variants that give up more and more: choice of policy, holdout or refusals, both."""
    yield request
    named = replace(request, rule=replace(request.rule, policy=_NAMED), options=f"--policy {_NAMED}")
    if named.set_aside != request.set_aside:
        yield named
    if options := all_certify(request.holdout, refuses=request.refuses):
        frugal = RuleVariant(0.0, request.rule, options)
        yield frugal
        if frugal.set_aside:
            yield replace(frugal, rule=named.rule, options=f"{options} {named.options}")


def all_certify(holdout: float, *, refuses: bool) -> str:
    """Return the options with which every labelled query certifies; empty if they do already."""
    needed = {"--holdout 0": bool(holdout), "--no-refusal": refuses}
    return " ".join(option for option, is_needed in needed.items() if is_needed)


def _on_average(request: RuleVariant, certificates: Sequence[Certificate], labels: int) -> Iterator[str]:
    """Yield the first variant whose expected loss can be certified, unless requested or judged by document."""
    rule = request.rule
    if rule.method != "risk-control" or rule.statement == "expected-loss" or _by_document(certificates):
        return
    needed = max(bounds.queries_for_expected(certificate.most) for certificate in certificates)
    for variant in _variants(replace(request, rule=replace(rule, guarantee="expected-loss"))):
        if variant.certifying(labels) >= needed:
            yield f"--guarantee expected-loss {variant.options}".rstrip() + " (on average)"
            return


def _larger(
    rule: ThresholdRule, certificates: Sequence[Certificate], variants: Sequence[RuleVariant], labels: int
) -> Iterator[str]:
    """Yield the smallest larger limits that can be certified: as requested, and if all labelled queries certify."""
    failed = [certificate for certificate in certificates if certificate.queries_needed > certificate.queries]
    if all(certificate.bound < _MAX_LOSS for certificate in failed):
        yield " ".join(f"{_option(certificate)} {_up(certificate.bound)}" for certificate in failed)
    frugal = variants[-1]
    if rule.statement == "expected-loss" or _by_document(certificates) or not frugal.options:
        return
    smallest = 1 - (1 - rule.confidence) ** (1 / frugal.certifying(labels))
    short = [certificate for certificate in failed if certificate.most < smallest]
    if short and smallest < _MAX_LOSS:
        yield " ".join([*(f"{_option(certificate)} {_up(smallest)}" for certificate in short), frugal.options])


def _by_document(certificates: Sequence[Certificate]) -> bool:
    return any(certificate.unit == "document" for certificate in certificates)


def _option(certificate: Certificate) -> str:
    return "--max-empty" if certificate.limit == EMPTY else "--max-loss"


def _up(share: float) -> str:
    """Write a share with three digits, rounded up, because a smaller share would not be certified."""
    digits = 2 - math.floor(math.log10(share))
    return f"{math.ceil(share * 10**digits) / 10**digits:g}"
