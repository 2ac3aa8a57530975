"""The check that τ still holds: a paired comparison of accuracy at τ on the corpus before and after the update.

Every labelled query that both corpora can answer is run on both, with the same threshold. The loss of a query is its
hit before minus its hit now. τ holds if the mean loss is shown, one-sided with 95 % confidence, to be within the margin
(non-inferiority), by document if queries share documents (`calibration/risk/paired.py`).

All labelled queries count, including those that chose τ. They favour the corpus that τ was chosen on, so they
overestimate the loss rather than underestimate it.

A query is left out if all its answers were removed, which no threshold can make up for, or if it is only about new
documents, which the old corpus could not answer. A changed document is assumed to answer the queries that it answered
before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.encoding.changes import CorpusDigests
from taugate.calibration.metrics.clusters import PerQuery, SamplingUnits
from taugate.calibration.metrics.own_documents import OwnPassages
from taugate.calibration.metrics.ranking import ScoredQueries
from taugate.calibration.relevance.probes import LabelledSearch
from taugate.calibration.risk.paired import min_detectable_loss, paired_losses
from taugate.calibration.settings.rules import CONFIDENCE
from taugate.calibration.settings.update import UpdateSettings
from taugate.errors import InputError
from taugate.ingestion.dataset.beir import Dataset, LabelledQuery
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.policy import Mask
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.outcome_records import PolicyRecord
from taugate.retrieval.vectors.queries import QueryVectors


@dataclass(frozen=True)
class ThresholdCheck:
    """The comparison of both corpora.

    Attributes:
        units: Sampling units of the queries that both corpora can answer.
        before: Mean accuracy at τ over these queries on the old corpus.
        now: Mean accuracy at τ over these queries on the new corpus.
        loss: Loss of the average unit, with one-sided limits at CONFIDENCE each.
        margin: The largest loss allowed.
        widened: Whether the margin is above the default because the labels cannot show less.
        unpaired: Number of queries that are only about new documents.
        name: What is checked.
    """

    units: SamplingUnits
    before: float
    now: float
    loss: Interval
    margin: float
    widened: bool
    unpaired: int
    name: str = "the threshold"

    @property
    def holds(self) -> bool:
        """Whether the loss is shown to be within the margin."""
        return self.loss.upper <= self.margin

    @property
    def sentence(self) -> str:
        """The result as one sentence, without its full stop."""
        verdict = f"{self.name} still holds" if self.holds else f"{self.name} is not shown to hold"
        change = f"from {self.before:.4f} to {self.now:.4f}"
        average = "average document" if self.units.unit == "document" else "average query"
        return (
            f"{verdict}: on {self.units.words}, accuracy at τ went {change}; the {average} "
            f"{'loses' if self.loss.mean >= 0 else 'gains'} {abs(self.loss.mean):.4f}, and loses "
            f"at most {self.loss.upper:.4f} ({100 * CONFIDENCE:g} % confidence); {self.margin:g} is allowed"
        )


class PairedQueries(NamedTuple):
    """The queries that both corpora can answer.

    Attributes:
        rows: (q,) positions among the answerable queries.
        queries: The queries.
        vectors: (q, d) float32.
        own_passages: Positions in the old corpus that are excluded from the results of each query.
    """

    rows: NDArray[np.int64]
    queries: list[LabelledQuery]
    vectors: QueryVectors
    own_passages: OwnPassages


# Returns the (q, K) results of the queries in the old corpus, and the mask of those that were kept, as the release did.
ResultsBefore = Callable[[PairedQueries], tuple[TopK, Mask]]


def check_threshold(
    results_before: ResultsBefore,
    before: CorpusDigests,
    search: LabelledSearch,
    scored: ScoredQueries,
    policy: PolicyRecord,
    settings: UpdateSettings,
) -> ThresholdCheck:
    """Compare accuracy at τ before and after an update.

    Args:
        results_before: Searches the old corpus.
        before: Digests of its documents.
        search: The updated corpus with the results of its labelled queries.
        scored: Scores of these queries.
        policy: The release's policy.
        settings: Settings of the update.

    Raises:
        InputError: If no query can be answered by both corpora.
    """
    dataset, vectors = search.dataset, search.encoded.answerable
    relevant_before = _positions_before(before, dataset)
    pairs = np.array([row for row, relevant in enumerate(relevant_before) if relevant], dtype=np.int64)
    if not len(pairs):
        raise InputError(
            f"{dataset.name}: no labelled query of the split {dataset.split} has a relevant document in the current "
            "release, so there is no way to check τ; run taugate calibrate on the new corpus"
        )
    queries = [dataset.answerable[row] for row in pairs.tolist()]
    paired_queries = PairedQueries(pairs, queries, vectors[pairs], _own_before(before, dataset, queries))
    then = _hits(*results_before(paired_queries), [relevant_before[row] for row in pairs])
    paired = scored.take(pairs)
    now = paired.judged.accuracy(paired.kept(policy.kind, policy.threshold))
    units = SamplingUnits.of_queries(queries, search.units.drawn)
    losses = paired_losses(then - now, units)
    detectable = min_detectable_loss(units, CONFIDENCE)
    margin = settings.margin_for(detectable)
    loss = Interval(mean=losses.mean, lower=losses.lower_limit(CONFIDENCE), upper=losses.upper_limit(CONFIDENCE))
    widened = settings.margin is None and margin > settings.margin_for(0)
    unpaired = len(dataset.answerable) - len(pairs)
    return ThresholdCheck(units, float(then.mean()), float(now.mean()), loss, margin, widened, unpaired)


def _positions_before(before: CorpusDigests, dataset: Dataset) -> list[frozenset[int]]:
    """Return, for each answerable query, the positions of its relevant passages in the old corpus.

    A relevant document is looked up by its id, whatever its chunks were; a relevant chunk by its own id.
    """
    named = [_named(query, dataset.documents) for query in dataset.answerable]
    places = before.positions(frozenset[str]().union(*named))
    return [frozenset(position for name in names for position in places.get(name, ())) for names in named]


def _named(query: LabelledQuery, documents: DocumentStore) -> set[str]:
    """Return the ids of a query's relevant documents, or of the relevant chunks if only a part answers it."""
    chunks = query.chunks or {}
    names = {documents[document].document_id for document in query.relevant if document not in chunks}
    return names | {documents[position].id for positions in chunks.values() for position in positions}


def _own_before(before: CorpusDigests, dataset: Dataset, queries: list[LabelledQuery]) -> OwnPassages:
    """Return the positions in the old corpus of each query's own passages, which are excluded from its results."""
    named = [[dataset.documents[position].id for position in query.own_passages] for query in queries]
    places = before.positions({name for names in named for name in names})
    return [tuple(position for name in names for position in places.get(name, ())) for names in named]


def _hits(top: TopK, kept: Mask, relevant: list[frozenset[int]]) -> PerQuery:
    """Return 1 for each query that is answered with a relevant document, else 0; (q,)."""
    relevant_results = [
        [position in relevant_positions for position in row]
        for row, relevant_positions in zip(top.positions.tolist(), relevant, strict=True)
    ]
    hits: NDArray[np.bool_] = np.any(kept & np.array(relevant_results), axis=1)
    return hits.astype(np.float64)
