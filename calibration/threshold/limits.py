"""What must not be lost, on the queries that certify it."""

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.relevance.evidence import Evidence
from taugate.calibration.risk import words
from taugate.calibration.risk.certify import Limited
from taugate.calibration.risk.steps import LossSteps, loss_steps
from taugate.calibration.settings.rule import Rule
from taugate.retrieval.policy.policy import PolicyKind


def limits(rule: Rule, evidence: Evidence, certifying: NDArray[np.int64], kind: PolicyKind) -> list[Limited]:
    """The loss of the metric, and empty replies where the rule limits them; certifying: positions of queries."""
    scored, units = evidence.scored.take(certifying), evidence.units.take(certifying)
    decisions = scored.decisions(kind)
    found = float(scored.judged.metric(rule.metric).mean())
    limited = [Limited(rule.metric, loss_steps(scored.judged, decisions, rule.metric, units), rule.max_loss, found)]
    if rule.max_empty is not None:
        limited.append(Limited(words.EMPTY, LossSteps.of_empty(decisions, units), rule.max_empty))
    return limited
