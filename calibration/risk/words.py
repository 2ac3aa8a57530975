"""What was certified, in one plain sentence; and what is missing where nothing could be."""

import math
from collections.abc import Sequence

from calibration.risk.rule import Rule
from retrieval.release.evidence import Certificate
from retrieval.release.manifest import Manifest

ACCURACY, NDCG, EMPTY = "accuracy", "ndcg", "empty"


def papers(k: int) -> str:
    """What the method bootstrap says."""
    return (
        f"Nothing is certified: the mean bootstrapped metric at K = {k} stays within its own 95 % interval, which "
        "is not being shown to be worse (thresholds paper §2.2)."
    )


def guarantee(rule: Rule, certificates: Sequence[Certificate], k: int) -> str:
    """The guarantee that `certificates` give."""
    what = " and ".join(_limit(certificate, k) for certificate in certificates)
    queries = f"the {certificates[0].queries:,} queries that certified it"
    if rule.statement == "expected-loss":
        return (
            f"On average over calibrations like this one, {what}, for queries drawn like {queries} (conformal risk "
            "control, expected loss)."
        )
    if rule.method == "risk-control":
        test = "exact binomial" if rule.metric == "accuracy" else "Hoeffding–Bentkus for NDCG"
        return (
            f"With {rule.confidence:.4g} confidence over the draw of {queries}, {what}, for queries drawn like them "
            f"(Learn-then-Test, fixed sequence, {test})."
        )
    effective = certificates[0].effective_queries
    return (
        f"With {rule.confidence:.4g} confidence, {what}, against the same queries without the cut (paired "
        f"non-inferiority on {queries}, which count as {effective:,.0f} independent ones)."
    )


def shortage(rule: Rule, certificates: Sequence[Certificate]) -> str:
    """Which limit could not be certified, with how many queries it could be."""
    worst = max(certificates, key=lambda each: each.queries_needed - each.queries)
    what = "a share of empty replies" if worst.limit == EMPTY else "a loss"
    if rule.statement == "expected-loss":
        what, sure = f"an expected {what.removeprefix('a ')}", ""
    else:
        sure = f" at {100 * rule.confidence:.4g} %"
    return (
        f"with {worst.queries:,} queries {what} of {100 * worst.most:.4g} % cannot be certified{sure}; "
        f"{worst.queries_needed:,} are needed"
    )


def remedy(manifest: Manifest) -> str:
    """How many labelled queries it takes with the same settings, of which only some certify, and what else helps."""
    certificates = manifest.policy.certificates
    needed = max(each.queries_needed for each in certificates)
    labelled = math.ceil(needed * manifest.data.answerable / certificates[0].queries)
    calibrating = manifest.data.answerable - round(manifest.bootstrap.holdout * manifest.data.answerable)
    named = ""
    if certificates[0].queries < needed <= calibrating:
        named = ", give --policy similarity or relative, which all calibration queries certify,"
    failed = [each.limit for each in certificates if each.bound > each.most]
    larger = " and ".join("--max-empty" if limit == EMPTY else "--max-loss" for limit in failed) or "--max-loss"
    return f"Label about {labelled:,} answerable queries{named} or allow a larger {larger}."


def _limit(certificate: Certificate, k: int) -> str:
    share = f"{100 * certificate.most:.4g} %"
    if certificate.limit == EMPTY:
        return f"at most {share} of answerable queries are answered with nothing"
    if certificate.limit == NDCG:
        return f"NDCG@{k} is at most {certificate.most:.4g} lower than without the cut"
    return f"at most {share} of answerable queries lose every relevant document of their top {k}"
