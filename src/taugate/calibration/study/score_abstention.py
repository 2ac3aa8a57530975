"""Refuses queries by the scores of their results alone, for a search whose results have no vectors to learn from."""

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.abstention.certify import CertifiedAbstention, abstain
from taugate.calibration.abstention.choose import QueryGroup
from taugate.calibration.metrics.searched import SearchedQueries
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.retrieval.policy.component_signals import NO_COMPONENTS, Components


def abstain_by_scores(
    search: SearchedQueries,
    calibration: NDArray[np.int64],
    settings: CalibrationSettings,
    components: tuple[Components, Components] = (NO_COMPONENTS, NO_COMPONENTS),
) -> CertifiedAbstention | None:
    """Choose a score of a query that needs only its results, and certify a threshold; None if not requested.

    Args:
        search: The labelled queries with their results.
        calibration: Positions of the answerable queries that may choose or certify.
        settings: All settings.
        components: Component scores of the answerable queries' results and of the unanswerable ones'.
    """
    if settings.abstention is None:
        return None
    clusters, count = search.cluster_ids, len(search.judged)
    kinds = (
        (search.dataset.answerable, search.judged.top, clusters[:count], components[0]),
        (search.dataset.unanswerable, search.unanswerable, clusters[count:], components[1]),
    )
    answerable, unanswerable = (
        QueryGroup(
            [query.text for query in queries], np.empty((len(queries), 0), dtype=np.float32), top, members, given
        )
        for queries, top, members, given in kinds
    )
    return abstain(settings.abstention, answerable, unanswerable, None, calibration, settings.seed)
