"""What a policy does to the queries of a study: answers lost, the reference of drift, and each query's outcome."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.abstention.refusal import share_at_most
from taugate.calibration.study.study import Study
from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.policy.component_signals import component_means
from taugate.retrieval.policy.policy import POLICIES, Mask
from taugate.retrieval.release.manifest import ReleaseManifest
from taugate.retrieval.release.outcome_records import PolicyRecord
from taugate.retrieval.release.query_arrays import Outcomes, Reference
from taugate.retrieval.release.records import CheckedAnswers

# Enough to reveal a wrong encoder, index or retriever, few enough to run at every start (32 × 3 ms on 2 cores).
_GOLDEN_QUERIES = 32


@dataclass(frozen=True)
class Calibrated(Study):
    """A study with the manifest of its release.

    Attributes:
        manifest: The manifest, without id, times and files.
    """

    manifest: ReleaseManifest

    @property
    def policy(self) -> PolicyRecord:
        """The policy in force."""
        return self.manifest.policy

    @property
    def threshold(self) -> np.float32 | None:
        """τ, as scores are compared with it; None without a cut."""
        return self.policy.threshold


def checked_answers(study: Study, policy: PolicyRecord) -> CheckedAnswers | None:
    """Count the answers that are lost, on held-out queries if any are; None if no query finds an answer."""
    members = study.measured.members
    queries = study.scored.take(members)
    answered = np.flatnonzero(queries.judged.accuracy() > 0)
    if not len(answered):
        return None
    lost: Mask = queries.judged.accuracy(queries.kept(policy.kind, policy.threshold))[answered] == 0
    units = study.search.units.take(members[answered])
    return CheckedAnswers(
        mean=float(lost.mean()),
        lower=1 - share_at_most(~lost, units),
        upper=share_at_most(lost, units),
        heldout="heldout" in study.parts,
        answers=len(answered),
        lost=int(lost.sum()),
    )


def drift_reference(study: Study, policy: PolicyRecord) -> Reference:
    """Collect the distributions that drift is measured against."""
    part = study.parts["calibration"]
    queries = study.scored.take(part.members)
    kept = queries.kept(policy.kind, policy.threshold)
    relevance = queries.relevance if POLICIES[policy.kind].needs_model else None
    relevant = queries.judged.relevant
    components, _ = study.search.components
    means = component_means(components, policy.k)[part.members] if components else None
    return Reference(
        top=queries.judged.top.scores,
        correct=queries.judged.correct,
        random=part.random_scores,
        kept=kept.sum(axis=1),
        correct_kept=queries.judged.accuracy(kept) > 0,
        relevance=relevance,
        correct_relevance=None if relevance is None else np.where(relevant, relevance, np.float32(0)).max(axis=1),
        components=means,
    )


def query_outcomes(study: Study, policy: PolicyRecord) -> Outcomes:
    """Collect the outcomes of the held-out queries (else the calibration queries) and of all unanswerable ones."""
    dataset, members = study.search.dataset, study.measured.members
    queries = study.scored.take(members)
    kept = queries.kept(policy.kind, policy.threshold)
    return Outcomes(
        query=_digests([dataset.answerable[row] for row in members.tolist()]),
        cluster=study.search.units.clusters[members],
        hit=queries.judged.accuracy() > 0,
        hit_kept=queries.judged.accuracy(kept) > 0,
        ndcg=queries.judged.ndcg(),
        ndcg_kept=queries.judged.ndcg(kept),
        kept=kept.sum(axis=1),
        unanswerable=_digests(dataset.unanswerable),
        unanswerable_kept=queries.unanswerable_kept(policy.kind, policy.threshold).sum(axis=1),
    )


def golden_rows(members: NDArray[np.int64]) -> NDArray[np.int64]:
    """Choose the calibration queries that become golden ones, evenly spaced among the positions (q,) int64."""
    places = np.linspace(0, len(members) - 1, num=min(_GOLDEN_QUERIES, len(members))).astype(np.int64)
    rows: NDArray[np.int64] = members[np.unique(places)]
    return rows


def seen_hits(study: Study) -> NDArray[np.bool_]:
    """Return which answerable queries are hits, (q,) bool, without queries whose misses no user could have judged."""
    hits: NDArray[np.bool_] = study.scored.judged.accuracy() > 0
    dataset = study.search.dataset
    if dataset.other_queries is None:
        return hits
    return hits[[query.id not in dataset.other_queries.seen_only for query in dataset.answerable]]


def _digests(queries: Sequence[LabelledQuery]) -> NDArray[np.uint64]:
    """Digest the texts of queries, (q,) uint64; a release does not contain the texts."""
    digests = b"".join(hashlib.sha256(query.text.encode()).digest()[:8] for query in queries)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
