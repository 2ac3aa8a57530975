"""Refuses queries by the scores of their results alone, for a search whose results have no vectors to learn from."""

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.abstention.certify import CertifiedAbstention, abstain, keep_abstention
from taugate.calibration.abstention.choose import QueryGroup
from taugate.calibration.metrics.searched import SearchedQueries
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.study.inherited import Inherited


def abstain_by_scores(
    search: SearchedQueries,
    calibration: NDArray[np.int64],
    settings: CalibrationSettings,
    inherited: Inherited | None = None,
) -> CertifiedAbstention | None:
    """Choose a score of a query that needs only its results, and certify a threshold, or reuse the inherited rule.

    None if neither is requested.

    Args:
        search: The labelled queries with their results.
        calibration: Positions of the answerable queries that may choose or certify.
        settings: All settings.
        inherited: Parts of an earlier release; None to choose.
    """
    kept = None if inherited is None else inherited.abstention
    if settings.abstention is None and kept is None:
        return None
    clusters, count = search.cluster_ids, len(search.judged)
    kinds = (
        (search.dataset.answerable, search.judged.top, clusters[:count], search.components[0]),
        (search.dataset.unanswerable, search.unanswerable, clusters[count:], search.components[1]),
    )
    answerable, unanswerable = (
        QueryGroup(
            [query.text for query in queries], np.empty((len(queries), 0), dtype=np.float32), top, members, given
        )
        for queries, top, members, given in kinds
    )
    if kept is not None:
        return keep_abstention(kept, answerable, unanswerable, None, calibration, settings.seed)
    if settings.abstention is None:
        raise AssertionError("abstention is neither requested nor inherited")
    return abstain(settings.abstention, answerable, unanswerable, None, calibration, settings.seed)
