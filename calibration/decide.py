"""From scored queries to the rule in force: which policy, which τ, and what may be said of it."""

import numpy as np
from numpy.typing import NDArray

from calibration.evidence import Evidence
from calibration.limits import limits
from calibration.metrics.judged import JudgedQueries
from calibration.relevance.choose import choose
from calibration.relevance.parts import FEWEST_QUERIES
from calibration.risk import words
from calibration.risk.certify import certify
from calibration.risk.rule import Rule
from calibration.threshold import bootstrap_threshold
from retrieval.errors import InputError
from retrieval.policy import PolicyKind
from retrieval.release.evidence import Choice
from retrieval.release.manifest import PolicyRecord


def decide(rule: Rule, evidence: Evidence) -> PolicyRecord:
    """The policy that the rule gives, or `none` where nothing can be certified. Raises InputError."""
    queries = evidence.scored.judged.take(evidence.calibration)
    k = queries.grades.shape[1]
    if rule.method == "bootstrap":
        found = bootstrap_threshold(queries, evidence.rows, rule.metric)
        return _record(rule, k, "similarity", found.tau, psi=found.psi, guarantee=words.papers(k))
    _check_hits(queries, "")
    kind, choice = _kind(rule, evidence)
    certifying = _certifying(rule, kind, evidence)
    _check_hits(evidence.scored.judged.take(certifying), " that certify")
    certified = certify(limits(rule, evidence, certifying, kind), rule)
    if certified.tau is None:
        guarantee = f"Nothing is certified: {words.shortage(rule, certified.certificates)}."
        return _record(rule, k, "none", None, guarantee=guarantee, certificates=certified.certificates, choice=choice)
    guarantee = words.guarantee(rule, certified.certificates, k)
    return _record(
        rule, k, kind, certified.tau, guarantee=guarantee, certificates=certified.certificates, choice=choice
    )


def _check_hits(queries: JudgedQueries, which: str) -> None:
    if not queries.accuracy().any():
        raise InputError(
            f"none of the {len(queries)} calibration queries{which} has a relevant document in its top "
            f"{queries.grades.shape[1]}: there is nothing to lose and nothing to certify; check the qrels, or give a "
            "larger --k or another encoder"
        )


def _kind(rule: Rule, evidence: Evidence) -> tuple[PolicyKind, Choice | None]:
    """The policy asked for, or the one that keeps the fewest results. Raises InputError where it cannot be had."""
    if rule.policy in {"auto", "probability"} and evidence.parts is None:
        raise InputError(
            f"--policy {rule.policy}: needs at least {FEWEST_QUERIES} answerable queries to calibrate on, there are "
            f"{len(evidence.calibration)}; label more, give a smaller --holdout, or --policy similarity"
        )
    if rule.policy == "probability" and evidence.estimated is None:
        raise InputError(
            "--policy probability: the queries to fit on have no relevant document in their top K, or nothing else; "
            "check the qrels, or give --policy similarity"
        )
    if rule.policy != "auto" or evidence.parts is None:
        return rule.policy, None  # type: ignore[return-value]  # auto without parts has been refused
    parts = evidence.parts
    seen = np.concatenate([parts.fit, parts.choose])
    scored = evidence.scored.take(seen)
    decisions = {kind: scored.decisions(kind) for kind in scored.kinds}
    if evidence.estimated is not None:  # what the model says of the queries it was fitted on is too good
        decisions["probability"] = np.concatenate([evidence.estimated.fit.out_of_fold, evidence.estimated.choosing])
    kind, candidates = choose(scored.judged, decisions, rule, np.random.default_rng([evidence.seed, 2]))
    sizes = {"fit_queries": len(parts.fit), "choose_queries": len(parts.choose), "certify_queries": len(parts.certify)}
    return kind, Choice(**sizes, candidates=candidates)


def _certifying(rule: Rule, kind: PolicyKind, evidence: Evidence) -> NDArray[np.int64]:
    """Queries that had no say in what they certify: all of them, for a policy that was fixed beforehand."""
    if evidence.parts is None or (rule.policy != "auto" and kind != "probability"):
        return evidence.calibration
    if rule.policy == "probability":
        return evidence.parts.rest
    return evidence.parts.certify


def _record(rule: Rule, k: int, kind: PolicyKind, tau: float | None, **facts: object) -> PolicyRecord:
    certified = rule.method != "bootstrap"
    asked: dict[str, object] = {
        "method": rule.method,
        "statement": rule.statement,
        "metric": rule.metric,
        "max_loss": rule.max_loss if certified else None,
        "max_empty": rule.max_empty,
        "confidence": rule.confidence,
        "psi": None,
        "certificates": [],
        "choice": None,
    }
    return PolicyRecord.model_validate({"kind": kind, "tau": tau, "k": k, **asked, **facts})
