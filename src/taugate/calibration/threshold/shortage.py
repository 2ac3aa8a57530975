"""What is missing if nothing could be certified, and what could be certified with these labels instead.

Suggests what could be certified with these labels and how many more are needed. The lowest candidate for τ loses
nothing, and without a loss a limit passes as soon as enough queries certify it (`evidence/risk/certify.py`). So
every variant of a request is decided by two counts: the queries that certify, and the queries needed.

All queries about one document may be lost together, as far as an answer was found. If document d loses its n answers
with probability p, with Σ n·p = δ·N for N queries, nothing is lost with probability Π (1 − p). A test that certifies δ
if nothing is lost errs at least with the largest such probability. So −ln of it is the evidence, in nats, that no test
can exceed; if it is below ln 1/α, nothing can be certified. It depends on the proportions of n and N alone: more
queries about the same documents do not raise it.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from taugate.calibration.settings import CalibrationSettings
from taugate.data.labelled_queries import LabelledQueries
from taugate.evidence.clusters import MAX_DESIGN_EFFECT
from taugate.evidence.divisions import FIT_SHARE, MIN_CALIBRATING, held_out
from taugate.evidence.risk import words
from taugate.evidence.risk.losses import DocumentLosses
from taugate.evidence.risk.words import EMPTY
from taugate.evidence.rules import PolicyChoice, ThresholdRule
from taugate.evidence.threshold.policy_choice import CalibrationQueries
from taugate.policy.names import Metric, PolicyKind
from taugate.release.evidence import Certificate, Shortage
from taugate.release.names import STATEMENTS
from taugate.release.outcome_records import PolicyRecord
from taugate.storage.files import Json

_MAX_LOSS = 0.5  # a cut that may lose half of the queries is no advice
# A policy that all calibration queries certify; it keeps fewer results than `similarity` (docs/thresholds.md).
_NAMED: PolicyChoice = "relative"

_CHANCE = 0.8  # the usual power of a planned study (Cohen, Statistical Power Analysis, 2nd ed., 1988, §2.4)
_DIVISIONS = 40  # random divisions that estimate a chance, which is then known to √(.8·.2/40) = .06
_MAX_NAMED = 20  # queries whose labels a person checks in a few minutes


@dataclass(frozen=True)
class RuleVariant:
    """A variant of the request with another holdout, another policy, or both."""

    holdout: float
    rule: ThresholdRule
    options: str = ""  # command-line options of the variant, empty for the request itself
    # Whether queries are refused by default. Without a holdout, queries that limit ρ cannot certify.
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
        certificates: Certificates of its limits, at least one of which failed.
    """
    requested, *alternatives = _variants(RuleVariant(holdout, rule, refuses=refuses))
    needed = max(certificate.queries_needed for certificate in certificates)
    options = [] if shortage is None else shortage.options
    if not options and not _by_document(certificates):
        options = [variant.options for variant in alternatives if certifying_count(variant, labels) >= needed]
    larger = [f"give {_larger(certificates)}"] if _larger(certificates) else []
    ways = [f"give {option}" for option in options[:1]]
    if shortage is not None and shortage.min_loss is not None:
        strictest = min(certificates, key=lambda certificate: certificate.most)
        ways.append(f"give {_option(strictest)} {_up(shortage.min_loss)}, which these documents allow")
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


@dataclass(frozen=True)
class LabelledDocuments:
    """Documents with labelled queries, and the largest loss δ that is to be certified with α = exp(−nats)."""

    sizes: NDArray[np.int64]  # (d,) number of answerable queries about each document
    # (d,) float64, what these queries can lose: their answers that were found, or their NDCG
    answers: NDArray[np.float64]
    cap: int | None  # largest number of queries that a document counts for, None without a limit
    delta: float
    nats: float

    @classmethod
    def of(cls, evidence: CalibrationQueries, strictest: Certificate, metric: Metric, nats: float) -> Self:
        """Count the queries and answers of all labelled documents, for the strictest limit."""
        units, judged = evidence.units, evidence.scored.judged
        answers = np.ones(len(units)) if strictest.limit == words.EMPTY else judged.metric(metric)
        document = np.unique(units.clusters, return_inverse=True)[1]
        return cls(units.sizes(), np.bincount(document, answers).astype(np.float64), units.cap, strictest.most, nats)

    def with_queries(self, documents: int, queries: int) -> Self:
        """Add `queries` queries about each of so many further documents, which find answers as often as these."""
        share = min(1.0, float(self.answers.sum() / self.sizes.sum()))
        answers = np.random.default_rng(0).binomial(queries, share, documents)
        sizes = np.append(self.sizes, np.full(documents, queries))
        return replace(self, sizes=sizes, answers=np.append(self.answers, answers))

    def counted(self, documents: NDArray[np.int64] | None = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what documents can lose, and their numbers of queries, (c,) each, as far as they count."""
        rows = np.arange(len(self.sizes)) if documents is None else documents
        weights = np.ones(len(rows)) if self.cap is None else np.minimum(1.0, self.cap / self.sizes[rows])
        return self.answers[rows] * weights, (self.sizes[rows] * weights).astype(np.float64)

    def certify(self, documents: NDArray[np.int64] | None = None) -> bool:
        """Return whether the product's test certifies δ by these documents, all if None, if nothing is lost."""
        answers, sizes = self.counted(documents)
        if self.sizes @ self.sizes <= MAX_DESIGN_EFFECT * self.sizes.sum():  # the unit is the query
            return -float(sizes.sum()) * math.log1p(-self.delta) >= self.nats
        lossless = DocumentLosses.from_documents(np.zeros(len(sizes)), sizes, answers)
        return lossless.p_value(self.delta) <= math.exp(-self.nats)

    def chance(self, settings: CalibrationSettings) -> float:
        """Return the chance to certify δ if nothing is lost, over divisions into documents that certify or do not."""
        aside = 1 - (1 - settings.holdout) * (1 - FIT_SHARE * _request(settings).fits)
        out, certified = held_out(int(self.sizes.sum()), aside), 0
        for division in range(_DIVISIONS):
            order = np.random.default_rng([settings.seed, division]).permutation(len(self.sizes))
            first = int(np.searchsorted(np.cumsum(self.sizes[order]), out)) + 1 if out else 0
            certified += first < len(order) and self.certify(order[first:])
        return certified / _DIVISIONS


def with_shortage(
    policy: PolicyRecord, dataset: LabelledQueries, evidence: CalibrationQueries, settings: CalibrationSettings
) -> PolicyRecord:
    """Return the policy with a record of what is missing, if it is `none` for lack of evidence."""
    rule, units = settings.rule, evidence.units
    if policy.tau is not None or policy.statement is None or not STATEMENTS[policy.statement].by_test:
        return policy
    missing: dict[str, Json] = {"lowest": _lowest(dataset, evidence, settings)}
    strictest = min(policy.certificates, key=lambda certificate: certificate.most)
    nats = -math.log((1 - rule.confidence) / (1 + len(rule.further_losses)))
    labelled = LabelledDocuments.of(evidence, strictest, rule.metric, nats)
    options = []
    if units.unit == "document" and not _request(settings).fits:
        options = _options(labelled, evidence, all_certify(settings.holdout, refuses=settings.refuses))
    missing["options"] = options
    guarantee, unlabelled, usual = (
        policy.guarantee,
        dataset.unlabelled_documents,
        math.ceil(len(units) / units.documents),
    )
    corpus = labelled.with_queries(unlabelled, usual)
    if units.drawn != "queries" and not corpus.certify():
        answers, sizes = corpus.counted()
        missing["min_loss"] = optimize.bisect(lambda loss: replace(corpus, delta=loss).certify() - 0.5, 1e-9, 1 - 1e-9)
        equal = replace(corpus, sizes=np.full_like(corpus.sizes, usual), answers=np.full_like(answers, answers.mean()))
        largest = corpus.answers.max() / corpus.sizes.sum() if equal.certify() else None
        by_any_test = evidence_bound(answers, float(sizes.sum()), corpus.delta) < nats
        guarantee = words.impossible(rule, policy.certificates, len(answers), largest, by_any_test=by_any_test)
    elif units.unit == "document":
        for queries_each in (1, usual):  # about each further document, as few as are enough
            if "queries" not in missing and (further := _needed(labelled, unlabelled, queries_each, settings)):
                missing |= {"queries": further * queries_each, "documents": further}
    return policy.model_copy(update={"shortage": Shortage.model_validate(missing), "guarantee": guarantee})


def evidence_bound(answers: NDArray[np.float64], queries: float, delta: float) -> float:
    """Return the evidence against a loss of δ, in nats, that no test by document can exceed.

    The largest Π (1 − p) has 1 − p = min(1, κ / n), with κ from Σ n·p = δ·N (Lagrange).

    Args:
        answers: (d,) n, the number of answers of each document that can be lost.
    """
    n, counts = np.unique(answers[answers > 0], return_counts=True)
    if n @ counts <= delta * queries:
        return math.inf
    breaks = np.append(0.0, n)
    lost = np.maximum(n - breaks[:, None], 0.0) @ counts
    kappa = np.interp(delta * queries, lost[::-1], breaks[::-1])
    return float(-np.log(np.minimum(1.0, kappa / n)) @ counts)


def _request(settings: CalibrationSettings) -> RuleVariant:
    return RuleVariant(settings.holdout, settings.rule, refuses=settings.refuses)


def _options(labelled: LabelledDocuments, evidence: CalibrationQueries, all_queries: str) -> list[str]:
    """Return the options with which these labels certify δ: those for all queries, a cap, or only both together."""
    tried = {all_queries: labelled.certify()} if all_queries else {}
    cap = evidence.units.usual_cap()
    if labelled.cap is None or cap < labelled.cap:
        document = np.unique(evidence.units.clusters, return_inverse=True)[1]
        capped = replace(labelled, cap=cap)
        tried[f"--count-at-most {cap}"] = capped.certify(np.unique(document[evidence.calibration]))
        if all_queries:
            tried[" ".join(tried)] = capped.certify() and not any(tried.values())
    return [option for option, certified in tried.items() if certified]


def _needed(labelled: LabelledDocuments, unlabelled: int, queries: int, settings: CalibrationSettings) -> int | None:
    """Return how many further documents give a chance of 8 in 10 to certify δ; None if all are too few."""
    numbers = range(1, unlabelled + 1)
    place = bisect_left(numbers, _CHANCE, key=lambda number: labelled.with_queries(number, queries).chance(settings))
    return numbers[place] if place < len(numbers) else None


def _lowest(dataset: LabelledQueries, evidence: CalibrationQueries, settings: CalibrationSettings) -> list[str]:
    """Return the ids of the calibration queries that a rising threshold loses first, by their best relevant result."""
    policy = settings.rule.policy
    kind: PolicyKind = evidence.scored.without_model[0] if policy == "auto" else policy
    scored = evidence.scored.take(evidence.calibration)
    relevant = scored.judged.relevant
    best, hits = np.where(relevant, scored.decisions(kind), -np.inf).max(axis=1), np.flatnonzero(relevant.any(axis=1))
    first = hits[np.argsort(best[hits], kind="stable")[:_MAX_NAMED]]
    return [dataset.answerable[row].id for row in evidence.calibration[first].tolist()]
