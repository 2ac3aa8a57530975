"""What must not be lost, with how sure the queries that certify it are of it."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibration.evidence import Evidence
from calibration.query_set.clusters import design_effect
from calibration.risk import words
from calibration.risk.certify import Limited
from calibration.risk.rule import Rule
from calibration.risk.steps import LossSteps, loss_steps
from calibration.scored import Scored
from retrieval.policy import PolicyKind, keep


def limits(rule: Rule, evidence: Evidence, certifying: NDArray[np.int64], kind: PolicyKind) -> list[Limited]:
    """The loss of the metric, and empty replies where the rule limits them; certifying: positions of queries."""
    scored = evidence.scored.take(certifying)
    decisions = scored.decisions(kind)
    found = [Limited(rule.metric, loss_steps(scored.judged, decisions, rule.metric), rule.max_loss)]
    if rule.max_empty is not None:
        found.append(Limited(words.EMPTY, LossSteps.of_empty(decisions), rule.max_empty))
    if rule.method != "non-inferiority":
        return found
    labels, hits = evidence.labels[certifying], scored.judged.accuracy()
    effects = [
        max(design_effect(each, labels, rule.confidence) for each in (_losses(limit, scored, kind), hits))
        for limit in found
    ]
    return [replace(limit, design_effect=effect) for limit, effect in zip(found, effects, strict=True)]


def _losses(limit: Limited, scored: Scored, kind: PolicyKind) -> NDArray[np.float64]:
    """Of each query at the threshold where the limit is reached: there it matters how alike queries on a document are.

    Whether a query has its answer in the top K varies otherwise than whether its score is low. But losses are few, and
    say little of their own correlation: where the hits have the larger one, that is reckoned with.
    """
    kept = keep(scored.decisions(kind), limit.steps.reaching(limit.most * limit.steps.queries))
    if limit.name == words.EMPTY:
        return np.asarray(~kept.any(axis=1), dtype=np.float64)
    return scored.judged.lost("ndcg" if limit.name == words.NDCG else "accuracy", kept)
