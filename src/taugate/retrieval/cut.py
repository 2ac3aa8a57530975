"""Cuts the results of one query: which are kept, why the others are not, and whether the calibration covers that."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from taugate.retrieval.index.passages import FoundPassages
from taugate.retrieval.policy.abstention import AnswerRule, RefusalScore
from taugate.retrieval.policy.policy import Mask, Policy, keep_answered
from taugate.retrieval.query import Answer, Query, Reason
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True, slots=True)
class UncutResults:
    """One query's w results before the cut, best first.

    Attributes:
        positions: (w,) int64.
        scores: (w,) float32 similarities.
        decisions: (w,) float32 scores that the policy compares with τ.
        relevance: (w,) float32 or None.
        answered: (1,) bool, False if the query is to be refused; None if no rule decides that.
        refusal: Score by which that is decided; None if the release refuses no query.
        uncut: See Answer.
        uncut_kept: See Answer.
    """

    positions: NDArray[np.int64]
    scores: Float32
    decisions: Float32
    relevance: Float32 | None
    answered: Mask | None
    refusal: RefusalScore | None
    uncut: Float32 | None
    uncut_kept: int

    def at(self, places: NDArray[np.int64]) -> Self:
        """Return the results at these places in the list."""
        return replace(
            self,
            positions=self.positions[places],
            scores=self.scores[places],
            decisions=self.decisions[places],
            relevance=None if self.relevance is None else self.relevance[places],
        )


def cut(
    query: Query, results: UncutResults, policy: Policy, search_result: FoundPassages, abstention: AnswerRule | None
) -> Answer:
    """Keep the results among the first k that pass; if they are too few, add the best of the dropped ones.

    Args:
        query: The query, marked by `Query.as_read`.
        results: Its results.
        policy: The policy within the filter of the query.
        search_result: Results of the queries that were searched together, with what the search read of them.
        abstention: Rule that refuses queries, for whether its certificate holds within filters; None if there is none.
    """
    overridden = query.threshold is not None
    threshold = np.float32(query.threshold) if overridden else policy.threshold
    answered = None if overridden else _answered(query, results.answered)
    passing = keep_answered(results.decisions[None, : query.k], threshold, answered)[0]
    chosen = np.flatnonzero(passing)
    if query.min_results > len(chosen):
        dropped = np.flatnonzero(~passing)[: query.min_results - len(chosen)]
        chosen = np.sort(np.concatenate([chosen, dropped]))
    refused = answered is not None and not answered.any()
    chosen, propensities = _explore(query, results, chosen, len(passing), refused=refused)
    below_threshold = ~passing[chosen]
    # Some refusals are not certified within a filter, and nothing is for a query that was truncated.
    everywhere = abstention is None or abstention.within_filters
    certified = everywhere or not (query.filter or query.permitted)
    certified = certified and not (query.truncated or query.unreadable)
    return Answer(
        positions=results.positions[chosen],
        scores=results.scores[chosen],
        ranks=chosen + 1,
        relevance=None if results.relevance is None else results.relevance[chosen],
        below_threshold=below_threshold,
        propensities=propensities,
        considered=len(passing),
        best_score=float(results.scores[0]) if len(passing) else None,
        threshold=None if threshold is None else float(threshold),
        policy=policy.kind,
        calibrated=not overridden and certified and policy.covers(query.k) and not below_threshold.any(),
        reason=_reason(query, len(passing), len(chosen), refused),
        refused=refused,
        refusal=results.refusal if len(passing) and not overridden else None,
        uncut=results.uncut,
        uncut_kept=results.uncut_kept,
        retrieved=results.positions,
        truncated=query.truncated,
        approximate=search_result.approximate,
        documents={
            position: search_result.candidates[position].document
            for position in results.positions[chosen].tolist()
            if position in search_result.candidates
        },
    )


def _explore(
    query: Query, results: UncutResults, chosen: NDArray[np.int64], considered: int, *, refused: bool
) -> tuple[NDArray[np.int64], Float32]:
    """Add the dropped results that exploration shows; returns the places of all results and their propensities.

    Args:
        query: Query with its exploration.
        results: Results before the cut.
        chosen: (n,) int64 places of the kept results.
        considered: Number of results before the cut.
        refused: Whether the query is refused as a whole; then nothing is explored.
    """
    if query.exploration is None or refused:
        return chosen, np.ones(len(chosen), dtype=np.float32)
    dropped = np.setdiff1d(np.arange(considered), chosen)
    explored = dropped[query.exploration.draw(query.text, results.positions[dropped])]
    together = np.concatenate([chosen, explored])
    propensities = np.repeat(np.array([1, query.exploration.share], np.float32), [len(chosen), len(explored)])
    order = np.argsort(together)
    return together[order], propensities[order]


def _answered(query: Query, answered: Mask | None) -> Mask | None:
    """Return the decision of the abstention rule; a query that the encoder cannot read is always refused."""
    return np.zeros(1, dtype=np.bool_) if query.unreadable else answered


def _reason(query: Query, considered: int, kept: int, refused: bool) -> Reason | None:
    """Return why nothing is kept; the index returns no result only if no document meets the filter."""
    if kept:
        return None
    if not considered:
        return "no_documents_match_filter"
    if refused:
        return "unreadable" if query.unreadable else "unanswerable"
    return "all_below_threshold"
