"""The record of the model of relevance: how it was fitted, and whether its probabilities come true.

It is measured on results that the qrels judge, of queries on which it was not fitted. If it was fitted with questions
that no document answers, it is measured on a mixture of queries and other such questions.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.metrics.reliability import (
    LIKELY,
    ReliabilitySums,
    brier,
    brier_skill,
    error_interval,
    expected_calibration_error,
    reliability,
)
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.relevance.model import AppliedRelevance, EstimatedRelevance
from taugate.calibration.relevance.unanswered import UNANSWERABLE_SHARE, kind_shares, mixture_weights
from taugate.retrieval.release.evidence import Interval, RelevanceRecord, ReliabilityBin

_Fields = dict[str, float | Interval | list[ReliabilityBin] | None]


def relevance_record(
    estimated: EstimatedRelevance,
    roles: QueryRoles,
    judged: JudgedQueries,
    units: SamplingUnits,
    heldout: NDArray[np.int64] | None,
    seed: int,
) -> RelevanceRecord:
    """Record how the model was fitted, and its reliability on queries on which it was not fitted.

    Bootstraps come from `numpy.random.default_rng([seed, 7])`.

    Args:
        estimated: The model with its probabilities.
        roles: Roles of the queries.
        judged: The n answerable queries with their results.
        units: Sampling units of these queries.
        heldout: Positions of the held-out queries. If None, reliability is measured on the calibration queries
            that did not fit the model, on which the three numbers of the recalibration were fitted.
        seed: Seed of the calibration.
    """
    return RelevanceRecord.model_validate(
        {
            "features": estimated.relevance.features,
            "fit_queries": len(roles.fit),
            "regularization": estimated.fit.regularization,
            "log_loss": estimated.fit.log_loss,
            "recalibration": estimated.relevance.model.recalibration.kind,
            "part": "calibration" if heldout is None else "heldout",
            **_reliability(estimated, judged, units, roles.not_fitting if heldout is None else heldout, seed),
        }
    )


def kept_relevance_record(
    record: RelevanceRecord,
    applied: AppliedRelevance,
    judged: JudgedQueries,
    units: SamplingUnits,
    part: tuple[Literal["calibration", "heldout"], NDArray[np.int64]],
    seed: int,
) -> RelevanceRecord:
    """Update a model's record with its reliability on other queries or documents; its fit does not change.

    Args:
        record: Record from the release of the model.
        applied: The model with its probabilities.
        judged: The answerable queries with their results.
        units: Sampling units of these queries.
        part: Name and positions of the queries on which reliability is measured.
        seed: Seed of the calibration.
    """
    name, members = part
    return record.model_copy(update={"part": name, **_reliability(applied, judged, units, members, seed)})


def _reliability(
    applied: AppliedRelevance, judged: JudgedQueries, units: SamplingUnits, unseen: NDArray[np.int64], seed: int
) -> _Fields:
    """Measure a model on queries on which it was not fitted, and return fields of RelevanceRecord.

    With questions that no document answers, it is measured on a mixture of them and the queries.
    """
    relevance, relevant, labelled = applied.answerable[unseen], judged.relevant[unseen], judged.labelled[unseen]
    cluster_ids, weights = units.clusters[unseen], None
    mixture: _Fields = dict.fromkeys(("unanswerable_share", "unanswerable", "error_of_answerable"))
    kinds = [] if applied.unanswered is None else applied.unanswered.measuring
    if kinds and (model := applied.of_vectors) is not None:
        alone = ReliabilitySums.by_cluster(relevance, relevant, cluster_ids, labelled)
        drawn = alone.drawn(np.random.default_rng([seed, 7]))
        mixture = {
            "unanswerable_share": UNANSWERABLE_SHARE,
            "unanswerable": sum(map(len, kinds)),
            "error_of_answerable": error_interval(alone, drawn),
        }
        weights = mixture_weights(len(unseen), [len(kind) for kind in kinds], kind_shares(kinds))
        estimates = np.concatenate([model.estimate(kind.vectors, kind.top) for kind in kinds])
        cluster_ids = np.concatenate([cluster_ids, *(kind.clusters for kind in kinds)])
        relevance = np.concatenate([relevance, estimates])
        relevant = np.concatenate([relevant, np.zeros(estimates.shape, dtype=np.bool_)])
        labelled = np.concatenate([labelled, np.ones(estimates.shape, dtype=np.bool_)])
    sums = ReliabilitySums.by_cluster(relevance, relevant, cluster_ids, labelled, weights)
    drawn = sums.drawn(np.random.default_rng([seed, 7]))
    return {
        "queries": len(unseen),
        "documents": len(sums.squares),
        "expected_calibration_error": expected_calibration_error(sums),
        "brier": brier(sums, drawn),
        "brier_skill": brier_skill(sums, drawn),
        "error": error_interval(sums, drawn),
        "error_of_likely": error_interval(sums, drawn, LIKELY) if (relevance[labelled] >= LIKELY).any() else None,
        "bins": reliability(sums),
        **mixture,
    }
