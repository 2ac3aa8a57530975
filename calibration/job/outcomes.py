"""What each query got, for the release: of those that had the least say, as in the last part of its metrics."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.job.study import Findings
from taugate.ingestion.dataset.dataset import Dataset, LabelledQuery
from taugate.retrieval.release.outcomes import Outcomes


def outcomes(dataset: Dataset, found: Findings) -> Outcomes:
    """Of the held-out queries, else of those that calibrated; of all unanswerable ones."""
    members = found.parts["heldout" if "heldout" in found.parts else "calibration"].members
    queries, kind = found.scored.take(members), found.policy.kind
    kept = queries.kept(kind, found.threshold)
    return Outcomes(
        query=_digests([dataset.answerable[row] for row in members.tolist()]),
        cluster=found.units.labels[members],
        hit=queries.judged.accuracy() > 0,
        hit_kept=queries.judged.accuracy(kept) > 0,
        ndcg=queries.judged.ndcg(),
        ndcg_kept=queries.judged.ndcg(kept),
        kept=kept.sum(axis=1),
        unanswerable=_digests(dataset.unanswerable),
        unanswerable_kept=queries.unanswerable_kept(kind, found.threshold).sum(axis=1),
    )


def _digests(queries: Sequence[LabelledQuery]) -> NDArray[np.uint64]:
    """The texts stay with whoever labelled them."""
    digests = b"".join(hashlib.sha256(query.text.encode()).digest()[:8] for query in queries)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
