"""The rules that were not asked for, on the same queries: what each would keep and lose."""

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.relevance.evidence import Evidence
from taugate.calibration.settings.rule import Rule
from taugate.calibration.threshold.decide import decide
from taugate.errors import InputError
from taugate.retrieval.policy.policy import keep
from taugate.retrieval.release.evidence import Alternative


def alternatives(rule: Rule, evidence: Evidence, judged_on: NDArray[np.int64]) -> list[Alternative]:
    """The papers' rule and the two statements of risk control, less the one in force.

    judged_on: positions of the queries that say what each keeps and loses, the held-out ones where there are any.
    """
    limits = {name: getattr(rule, name) for name in ("metric", "max_loss", "max_empty", "confidence")}
    rules = [
        Rule("bootstrap", "similarity", metric=rule.metric),
        Rule("risk-control", "auto", guarantee="high-probability", **limits),
        Rule("risk-control", "auto", guarantee="expected-loss", **limits),
    ]
    return [
        outcome
        for other in rules
        if (other.method, other.guarantee) != (rule.method, rule.guarantee)
        and (outcome := _outcome(other, evidence, judged_on)) is not None
    ]


def _outcome(rule: Rule, evidence: Evidence, judged_on: NDArray[np.int64]) -> Alternative | None:
    try:
        policy = decide(rule, evidence)
    except InputError:  # what this data set cannot have is no alternative
        return None
    queries = evidence.scored.take(judged_on)
    kept = keep(queries.decisions(policy.kind), None if policy.tau is None else np.float32(policy.tau))
    return Alternative(
        method=policy.method,
        statement=policy.statement,
        policy=policy.kind,
        tau=policy.tau,
        psi=policy.psi,
        max_loss=policy.max_loss,
        max_empty=policy.max_empty,
        guarantee=policy.guarantee,
        kept_fraction=float(kept.mean()),
        loss=float(queries.judged.lost(rule.metric, kept).mean()),
    )
