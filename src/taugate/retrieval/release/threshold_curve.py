"""The kept and lost shares of the calibration queries at other thresholds, from the release's own similarities."""

import numpy as np
from pydantic import BaseModel, Field

from taugate.retrieval.policy.names import PolicyKind
from taugate.retrieval.policy.policy import POLICIES, DecisionScore
from taugate.retrieval.release.query_arrays import Reference
from taugate.retrieval.vectors.similarity import Float32

PERCENTILES = range(101)


class CurvePoint(BaseModel):
    """A threshold and its effect on the calibration queries."""

    tau: float = Field(
        description="the threshold, in units of the policy: similarity, share of the best similarity, or relevance"
    )
    kept: float = Field(ge=0, le=1, description="share of the top-K results of all calibration queries that are kept")
    loss: float = Field(
        ge=0,
        le=1,
        description="share of the answerable calibration queries that are lost: their top-K contains a relevant "
        "document, but none of the relevant ones is kept",
    )


def quantiles(similarities: Float32) -> list[float]:
    """Return the percentiles 0, 1, …, 100 of similarities of any shape, by linear interpolation."""
    return [float(value) for value in np.percentile(similarities, PERCENTILES)]


def threshold_curve(reference: Reference, kind: PolicyKind, tau: float | None) -> list[CurvePoint]:
    """Return the curve of thresholds of a policy by rising threshold, with at most 203 points.

    The points are the percentiles of the decision scores of the top-K and of the retrieved correct documents, τ itself,
    and one point above all scores. `kept` falls from 1 to 0; `loss` rises from 0 to the accuracy without a threshold.
    The curve is empty if the policy needs the relevance of the calibration queries, and the release lacks it.

    Args:
        reference: q queries with their top-K.
        kind: Kind of the policy.
        tau: Threshold of the policy, None if it has none.
    """
    score = POLICIES[kind]
    if score.needs_model and reference.relevance is None:
        return []
    top, correct = _decision_scores(reference, score)
    taus = [np.percentile(scores, PERCENTILES) for scores in (top, correct) if scores.size]
    taus.append(np.array([np.nextafter(top.max(), np.float32(np.inf))]))
    if tau is not None:
        taus.append(np.array([tau]))
    thresholds = np.unique(np.concatenate(taus).astype(np.float32))
    thresholds = thresholds[np.isfinite(thresholds)]  # a share of the best may be −∞, which JSON cannot write
    below = np.searchsorted(np.sort(top, axis=None), thresholds)  # scores equal to a threshold are kept
    lost = np.searchsorted(np.sort(correct), thresholds)
    columns = (column.tolist() for column in (thresholds, 1 - below / top.size, lost / len(top)))
    return [CurvePoint(tau=tau, kept=kept, loss=loss) for tau, kept, loss in zip(*columns, strict=True)]


def _decision_scores(reference: Reference, score: DecisionScore) -> tuple[Float32, Float32]:
    """Return the decision scores of the top-K, (q, K), and of the best relevant result, (f,) for f queries with one.

    The second is the highest score of a relevant document in the top-K. A cut by similarity, or relative to the best,
    keeps the first results, so for these it is the score of the most similar relevant document.
    """
    if reference.relevance is not None and reference.correct_relevance is not None and score.needs_model:
        return reference.relevance, reference.correct_relevance[reference.correct_relevance > 0]
    top, correct = reference.top, reference.correct
    # Both are computed by `similarity`, so the score of a retrieved document is equal to the last bit.
    hits = (top == correct[:, None]).any(axis=1)
    correct = score.decide(np.column_stack([top[:, 0], correct]), None)[:, 1]
    return score.decide(top, None), correct[hits]
