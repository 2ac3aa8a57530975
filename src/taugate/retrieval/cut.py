"""Cuts the results of queries: which are kept, why the others are not, and whether the calibration covers that.

What depends on the policy alone is computed for all queries of a batch at once. /search and /gate cut by the same code.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from taugate.policy.abstention import RefusalScore
from taugate.policy.arrays import Float32
from taugate.policy.policy import POLICIES, Mask, Policy, keep, keep_answered
from taugate.retrieval.index.top_k import Parents, TopK, first_of_each
from taugate.retrieval.query import MAY_BE_CALIBRATED, SAME_SCORES, Answer, NotComparable, Query, Reason


def cut(  # noqa: PLR0913 (facts about the results that belong to no record of their own)
    queries: Sequence[Query],
    top: TopK,
    policy: Policy,
    relevance: Float32 | None,
    refusals: Sequence[RefusalScore] | None,
    departures: Callable[[Query], Sequence[NotComparable]],
    *,
    parents: Parents | None = None,
) -> Iterator[Answer]:
    """Keep the results among the first k that pass; if they are too few, add the best of the dropped ones.

    Args:
        queries: n queries with the same filter, marked by `Query.as_read`.
        top: Their results, w each, best first.
        relevance: (n, w) float32 or None.
        refusals: Scores by which queries are refused; None if none is refused.
        departures: Why a query's results are not comparable with those of the calibration, the reason to give first.
        parents: (N,) as in DocumentStore.parents, to cut the best passage of each document; None to cut passages.
    """
    decisions, tau = POLICIES[policy.kind].decide(top.scores, relevance), policy.threshold
    answered = None if refusals is None else np.array([score.answered for score in refusals])
    uncut_kept = keep_answered(decisions[:, : policy.k], tau, answered).sum(axis=1).tolist()
    decided = [_is_answered(query, refusals[row] if refusals else None) for row, query in enumerate(queries)]
    passing_rows = _passing(queries, decisions, tau, decided)
    for row, query in enumerate(queries):
        places = slice(None) if parents is None else first_of_each(parents, top.positions[row])
        positions, passing = top.positions[row, places], passing_rows[row, places][: query.k].tolist()
        overridden, refused, applies = query.threshold is not None, decided[row] is False, departures(query)
        shown, below, propensities = _shown(query, positions, passing, refused=refused)
        threshold = query.threshold if overridden else tau
        kept = positions[shown]
        yield Answer(
            positions=kept,
            scores=top.scores[row, places][shown],
            ranks=np.arange(1, len(positions) + 1)[shown],
            relevance=None if relevance is None else relevance[row, places][shown],
            below_threshold=below,
            propensities=propensities,
            considered=len(passing),
            best_score=float(top.scores[row, 0]) if passing else None,
            threshold=None if threshold is None else float(np.float32(threshold)),
            policy=policy.kind,
            not_comparable=applies[0] if applies else None,
            calibrated=MAY_BE_CALIBRATED.issuperset(applies) and policy.covers(query.k) and not below.any(),
            reason=_reason(query, len(passing), len(kept), refused=refused),
            refused=refused,
            refusal=refusals[row] if refusals and passing and not overridden else None,
            uncut=top.scores[row, : policy.k] if SAME_SCORES.issuperset(applies) else None,
            uncut_kept=uncut_kept[row],
            retrieved=top.positions[row] if parents is None else None,
            truncated=query.truncated,
            approximate=top.approximate,
            documents={
                position: top.candidates[position].document
                for position in (kept.tolist() if top.candidates else ())
                if position in top.candidates
            },
        )


def _reason(query: Query, considered: int, kept: int, *, refused: bool) -> Reason | None:
    """Return why nothing is kept; the index returns no result only if no document meets the filter."""
    if kept:
        return None
    if not considered:
        return "no_documents_match_filter"
    if refused:
        return "unreadable" if query.unreadable else "unanswerable"
    return "all_below_threshold"


def _is_answered(query: Query, refusal: RefusalScore | None) -> bool | None:
    """Return whether a query as a whole is answered; None if nothing but the cut decides that."""
    if query.threshold is not None:
        return None
    if query.unreadable:
        return False
    return None if refusal is None else refusal.answered


def _passing(
    queries: Sequence[Query], decisions: Float32, tau: np.float32 | None, answered: Sequence[bool | None]
) -> Mask:
    """Return which results of n queries pass the cut, (n, w); see `keep_answered` for those that are answered."""
    usual = -np.inf if tau is None else tau
    thresholds = np.array([usual if query.threshold is None else query.threshold for query in queries], np.float32)
    passing = keep(decisions, thresholds[:, None])
    passing[[row for row, answer in enumerate(answered) if answer], :1] = True
    passing[[row for row, answer in enumerate(answered) if answer is False]] = False
    return passing


def _shown(
    query: Query, positions: NDArray[np.int64], passing: list[bool], *, refused: bool
) -> tuple[slice | NDArray[np.int64], Mask, Float32]:
    """Select the results of a query to show, and those that exploration adds."""
    # Returns their places in the list, and `below_threshold` and `propensities` as in Answer. `positions` are those of
    # its w results, `passing` says which of the first k pass; if the query is refused as a whole, nothing is explored.
    kept = sum(passing)
    exploration = None if refused else query.exploration
    if kept >= query.min_results and all(passing[:kept]) and exploration is None:
        # Nearly every query: the first results pass, and nothing else is shown.
        return slice(kept), np.zeros(kept, dtype=np.bool_), np.ones(kept, dtype=np.float32)
    mask = np.array(passing, dtype=np.bool_)
    chosen = np.flatnonzero(mask)
    if query.min_results > kept:
        chosen = np.sort(np.concatenate([chosen, np.flatnonzero(~mask)[: query.min_results - kept]]))
    propensities = np.ones(len(chosen), dtype=np.float32)
    if exploration is not None:
        dropped = np.setdiff1d(np.arange(len(passing)), chosen)
        explored = dropped[exploration.draw(query.identity, positions[dropped])]
        together = np.concatenate([chosen, explored])
        shares = np.repeat(np.array([1, exploration.share], np.float32), [len(chosen), len(explored)])
        order = np.argsort(together)
        chosen, propensities = together[order], shares[order]
    return chosen, ~mask[chosen], propensities
