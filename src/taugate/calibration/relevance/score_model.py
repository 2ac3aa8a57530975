"""The model of relevance of a run or a second stage, from scores alone; fitted and recalibrated as that of a corpus."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.relevance.fitting import fit_relevance, map_probabilities
from taugate.calibration.relevance.model import EstimatedRelevance
from taugate.retrieval.policy.component_signals import Components
from taugate.retrieval.policy.score_relevance import ScoreRelevance, score_features


@dataclass(frozen=True)
class EstimatedScoreRelevance(EstimatedRelevance):
    """A model of scores that was fitted in this calibration, with its probabilities."""

    relevance: ScoreRelevance


def estimate_score_relevance(
    judged: JudgedQueries, components: Components, roles: QueryRoles
) -> EstimatedScoreRelevance | None:
    """Fit on the fitting queries, recalibrate on the other calibration queries, and score every result.

    None if the results of the fitting queries are all relevant or all irrelevant.

    Args:
        judged: The n answerable queries with their results.
        components: Further scores of the results by name, (n, K) float32 each, NaN for a missing one.
        roles: Roles of the queries.
    """
    scores, k = judged.top.scores, judged.top.scores.shape[1]
    floors = lowest_scores(components, roles.fit)
    with threadpool_limits(limits=1):
        values = score_features(scores, components, floors, k)
        relevant, fit, unseen = judged.relevant, roles.fit, roles.not_fitting
        fitted = fit_relevance(values[fit], relevant[fit], roles.clusters)
        if fitted is None:
            return None
        model = map_probabilities(fitted.model, values[unseen], relevant[unseen])
        return EstimatedScoreRelevance(
            ScoreRelevance(model, floors, k),
            answerable=model.probability(values).astype(np.float32),
            unanswered=None,
            fit=fitted,
        )


def lowest_scores(components: Components, rows: NDArray[np.int64]) -> dict[str, float]:
    """Return the lowest score of each component, by name, that is not missing in some rows; 0 if all are."""
    given = {name: values[rows][~np.isnan(values[rows])] for name, values in components.items()}
    return {name: float(values.min()) if values.size else 0.0 for name, values in given.items()}
