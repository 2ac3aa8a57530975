"""From scored queries to the rule in force: which policy, which τ, and what may be said of it."""

from taugate.calibration.metrics.judged import JudgedQueries
from taugate.calibration.relevance.evidence import Evidence
from taugate.calibration.risk import words
from taugate.calibration.risk.certify import Certified
from taugate.calibration.settings.rule import Rule
from taugate.calibration.threshold.contenders import best
from taugate.calibration.threshold.threshold import bootstrap_threshold
from taugate.errors import InputError
from taugate.retrieval.policy.policy import PolicyKind
from taugate.retrieval.release.evidence import EvidenceRecord, Level
from taugate.retrieval.release.manifest import PolicyRecord


def decide(rule: Rule, evidence: Evidence) -> PolicyRecord:
    """The policy that the rule gives, or `none` where nothing can be certified. Raises InputError."""
    queries = evidence.scored.judged.take(evidence.calibration)
    k = queries.grades.shape[1]
    if rule.method == "bootstrap":
        found = bootstrap_threshold(queries, evidence.rows, rule.metric)
        one_by_one = EvidenceRecord(unit="query", units=len(queries), design_effect=evidence.units.design_effect)
        return _record(rule, k, "similarity", found.tau, psi=found.psi, guarantee=words.papers(k), evidence=one_by_one)
    _check_hits(queries, "")
    taken, (certified, *others), choice = best(rule, evidence)
    _check_hits(evidence.scored.judged.take(taken.queries), " that certify")
    levels = [_level(each) for each in (certified, *others)] if others else []
    facts: dict[str, object] = {
        "certificates": certified.certificates,
        "choice": choice,
        "levels": levels,
        "evidence": evidence.units.take(taken.queries).record,
    }
    if certified.tau is None:
        guarantee = f"Nothing is certified: {words.shortage(rule, certified.certificates, levels)}."
        return _record(rule, k, "none", None, guarantee=guarantee, **facts)
    return _record(
        rule, k, taken.kind, certified.tau, guarantee=words.guarantee(rule, certified.certificates, k), **facts
    )


def _level(certified: Certified) -> Level:
    """What is certified of one of several largest losses."""
    loss = certified.certificates[0]
    return Level(max_loss=loss.most, tau=certified.tau, loss=loss.loss, bound=loss.bound)


def _check_hits(queries: JudgedQueries, which: str) -> None:
    if not queries.accuracy().any():
        raise InputError(
            f"none of the {len(queries)} calibration queries{which} has a relevant document in its top "
            f"{queries.grades.shape[1]}: there is nothing to lose and nothing to certify; check the qrels, or give a "
            "larger --k or another encoder"
        )


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
