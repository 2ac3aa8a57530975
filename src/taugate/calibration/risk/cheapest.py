"""Suggests what could be certified with these labels and how many more are needed.

The lowest candidate for τ loses nothing, and without a loss a limit passes as soon as enough queries certify it
(`calibration/risk/certify.py`). So every variant of a request is decided by two counts: the queries that certify, and
the queries needed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from taugate.calibration.metrics.splits import FIT_SHARE, MIN_CALIBRATING, held_out
from taugate.calibration.risk.words import EMPTY, refused_answers
from taugate.calibration.settings.rules import PolicyChoice, ThresholdRule
from taugate.retrieval.release.evidence import Certificate, Shortage

_MAX_LOSS = 0.5  # a cut that may lose half of the queries is no advice
# A policy that all calibration queries certify; it keeps fewer results than `similarity` (docs/thresholds.md).
_NAMED: PolicyChoice = "relative"


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
    def fits(self) -> bool:
        """Whether some of the calibration queries fit and so cannot certify."""
        return self.rule.needs_model or (self.refuses and not self.holdout)

    def labels_needed(self, needed: int) -> int:
        """Return the smallest number of answerable queries of which `needed` certify."""
        labels = needed
        while (certifying := certifying_count(self, labels)) < needed:
            labels += max(1, needed - certifying)
        return labels


def certifying_count(rule: RuleVariant, labels: int) -> int:
    """Return how many of `labels` answerable queries certify; 0 if they are too few for a model that the rule names.

    It is the number of those that `CalibrationQueries.certifying` takes.
    """
    calibrating = labels - held_out(labels, rule.holdout)
    if calibrating < MIN_CALIBRATING:
        return 0 if rule.rule.score is not None and rule.rule.score.needs_model else calibrating
    return calibrating - round(FIT_SHARE * calibrating) if rule.fits else calibrating


def remedy(
    labels: int,
    holdout: float,
    rule: ThresholdRule,
    certificates: Sequence[Certificate],
    shortage: Shortage | None = None,
    *,
    refuses: bool = False,
) -> str:
    """Name in one sentence the cheapest ways out if nothing could be certified: an option, labels, a larger limit.

    Args:
        labels: Number of answerable queries.
        holdout: Share of queries held out.
        rule: Requested rule.
        certificates: Certificates of its limits, at least one of which failed.
        shortage: What is missing, None if unknown.
        refuses: As in `RuleVariant`.
    """
    requested, *alternatives = _variants(RuleVariant(holdout, rule, refuses=refuses))
    needed = max(certificate.queries_needed for certificate in certificates)
    options = [] if shortage is None else shortage.options
    if not options and refused_answers(certificates):
        options = ["--refuse off"]
    elif not options and not _by_document(certificates):
        options = [variant.options for variant in alternatives if certifying_count(variant, labels) >= needed]
    larger = [f"give {_larger(certificates)}"] if _larger(certificates) else []
    ways = [f"give {option}" for option in options[:1]]
    if shortage is not None and shortage.min_loss is not None:
        strictest = min(certificates, key=lambda certificate: certificate.most)
        ways.append(f"give {_option(strictest)} {_up(shortage.min_loss)}, which these documents allow")
    elif refused_answers(certificates):  # more labels lose as many answers
        ways += larger
    else:
        ways += [_labels(requested, alternatives, needed, labels, shortage, by_document=_by_document(certificates))]
        ways += larger
    sentence = ", or ".join(ways[:2])
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _labels(
    requested: RuleVariant,
    alternatives: Sequence[RuleVariant],
    needed: int,
    labels: int,
    shortage: Shortage | None,
    *,
    by_document: bool,
) -> str:
    """Say how many more queries to label for the request, and with options if it takes fewer then."""
    if shortage is not None and shortage.queries is not None and shortage.documents is not None:
        about = "documents" if shortage.queries == shortage.documents else f"{shortage.documents:,} documents"
        return (
            f"label {shortage.queries:,} more queries with `taugate judge`, about {about} that have none, for a chance "
            "of 8 in 10"
        )
    added = max(1, requested.labels_needed(needed) - labels)
    advice = f"label {added:,} more queries{' about other documents' if by_document else ''} with `taugate judge`"
    frugal = (alternatives or [requested])[-1]
    fewer = frugal.labels_needed(needed) - labels
    return advice if by_document or not 0 < fewer < added else f"{advice} ({fewer:,} with {frugal.options})"


def _variants(request: RuleVariant) -> Iterator[RuleVariant]:
    """Yield the request, then variants that give up more and more: choice of policy, holdout or refusals, both."""
    yield request
    named = replace(request, rule=replace(request.rule, policy=_NAMED), options=f"--policy {_NAMED}")
    if named.fits != request.fits:
        yield named
    if options := all_certify(request.holdout, refuses=request.refuses):
        frugal = RuleVariant(0.0, request.rule, options)
        yield frugal
        if frugal.fits:
            yield replace(frugal, rule=named.rule, options=f"{options} {named.options}")


def all_certify(holdout: float, *, refuses: bool) -> str:
    """Return the options with which every labelled query certifies; empty if they do already."""
    needed = {"--holdout 0": bool(holdout), "--refuse off": refuses}
    return " ".join(option for option, is_needed in needed.items() if is_needed)


def _larger(certificates: Sequence[Certificate]) -> str:
    """Return the options with the smallest limits that these queries certify; empty if they allow too large a loss."""
    failed = [certificate for certificate in certificates if certificate.bound > certificate.most]
    if any(certificate.bound >= _MAX_LOSS for certificate in failed):
        return ""
    return " ".join(f"{_option(certificate)} {_up(certificate.bound)}" for certificate in failed)


def _by_document(certificates: Sequence[Certificate]) -> bool:
    return any(certificate.unit == "document" for certificate in certificates)


def _option(certificate: Certificate) -> str:
    return "--max-empty" if certificate.limit == EMPTY else "--max-loss"


def _up(share: float) -> str:
    """Write a share with three digits, rounded up, because a smaller share would not be certified."""
    digits = 2 - math.floor(math.log10(share))
    return f"{math.ceil(share * 10**digits) / 10**digits:g}"
