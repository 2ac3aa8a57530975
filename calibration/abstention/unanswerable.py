"""How many queries that have no answer in the corpus still get one, by all that is in force."""

from typing import Literal

import numpy as np

from taugate.calibration.abstention.abstain import Abstaining
from taugate.calibration.metrics.clusters import Units
from taugate.calibration.metrics.scored import Scored
from taugate.calibration.risk.certify import upper_limit
from taugate.calibration.risk.steps import LossSteps
from taugate.calibration.settings.rule import CONFIDENCE
from taugate.retrieval.index.topk import TopK
from taugate.retrieval.policy.model import Relevance
from taugate.retrieval.policy.policy import Mask, decision_scores, keep
from taugate.retrieval.release.abstention import NoAnswerRecord
from taugate.retrieval.release.manifest import PolicyRecord
from taugate.retrieval.vectors.similarity import Float32


def of_labelled(scored: Scored, policy: PolicyRecord, units: Units, abstention: Abstaining | None) -> NoAnswerRecord:
    """Of the labelled unanswerable queries, those of them that had no say in a score; units: of all of them.

    Where an abstention policy was certified on these very queries, what it certified is the limit.
    """
    tau = None if policy.tau is None else np.float32(policy.tau)
    answered: Mask = np.any(scored.unanswerable_kept(policy.kind, tau), axis=1)
    if abstention is None:
        return _record("unanswerable", answered, units)
    rows = abstention.chosen.certify_unanswerable
    found = _record("unanswerable", answered[rows], units.take(rows))
    if not abstention.record.certified:
        return found
    return found.model_copy(update={"upper": abstention.record.answered_unanswerable.upper})


def of_off_topic(top: TopK, vectors: Float32, relevance: Relevance | None, policy: PolicyRecord) -> NoAnswerRecord:
    """Of questions from quite another field, searched and cut as any query is; vectors: (n, d); top: (n, K)."""
    estimated = None if relevance is None else relevance.estimate(vectors, top)
    decisions = decision_scores(policy.kind, top.scores, estimated)
    kept = keep(decisions, None if policy.tau is None else np.float32(policy.tau))
    answered: Mask = np.any(kept, axis=1)
    return _record("off_topic", answered, Units.of(np.arange(len(vectors))))


def _record(asked: Literal["unanswerable", "off_topic"], answered: Mask, units: Units) -> NoAnswerRecord:
    """An answer is the loss here: its staircase has one step, between the queries answered and the others."""
    steps = LossSteps.of_empty((~answered).astype(np.float32)[:, None], units)
    return NoAnswerRecord(
        asked=asked,
        queries=len(answered),
        answered=float(answered.mean()),
        upper=upper_limit(steps, 0.5, CONFIDENCE),
        evidence=units.record,
    )
