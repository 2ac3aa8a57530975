"""The check that τ still holds: a paired comparison of accuracy at τ on the updated corpus and on the one before.

Every labelled query that both corpora can answer is asked in both, with the threshold as it is. The loss of a query is
its hit before less its hit now. τ holds where the mean loss is shown, one-sided with 95 % confidence, to be no more
than the margin: non-inferiority, by document where queries share documents (`calibration/risk/paired.py`).

All labelled queries count, also those that chose τ. They favour the corpus that τ was chosen on, so that a loss found
with them is rather too large than too small.

A query whose answers were all removed is left out: no threshold finds what is not there. So is a query about new
documents alone, which the corpus before could not answer. A document that was changed is taken to answer what it
answered before.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.encoding.changes import CorpusDigests
from taugate.calibration.engines.search import search_in_turns
from taugate.calibration.metrics.clusters import PerQuery, SamplingUnits, clusters
from taugate.calibration.metrics.own_documents import Own, max_own, others_of
from taugate.calibration.risk.paired import least_loss, paired_losses
from taugate.calibration.settings.rules import CONFIDENCE
from taugate.calibration.settings.update import UpdateSettings
from taugate.calibration.study.study import Findings
from taugate.errors import InputError
from taugate.ingestion.dataset.beir import Dataset, LabelledQuery
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.policy.policy import decision_scores, keep_answered
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.reader import Release
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True)
class ThresholdCheck:
    """The comparison of both corpora.

    Attributes:
        units: Of the queries that both can answer.
        before: Mean accuracy at τ over these queries.
        now: Mean accuracy at τ over these queries.
        loss: Of the average unit, with one-sided limits at CONFIDENCE each.
        margin: The largest loss that is allowed.
        widened: Whether it is above the default because the labels cannot show less.
        unpaired: How many queries are about new documents alone.
    """

    units: SamplingUnits
    before: float
    now: float
    loss: Interval
    margin: float
    widened: bool
    unpaired: int

    @property
    def holds(self) -> bool:
        """Whether the loss is shown to be no more than the margin."""
        return self.loss.upper <= self.margin

    @property
    def sentence(self) -> str:
        """Say in one sentence what was found."""
        verdict = "the threshold still holds" if self.holds else "the threshold is not shown to hold"
        change = f"from {self.before:.4f} to {self.now:.4f}"
        average = "average document" if self.units.unit == "document" else "average query"
        return (
            f"{verdict}: on {self.units.words}, accuracy at τ went {change}; the {average} "
            f"{'loses' if self.loss.mean >= 0 else 'gains'} {abs(self.loss.mean):.4f}, and loses "
            f"at most {self.loss.upper:.4f} ({100 * CONFIDENCE:g} % confidence), and {self.margin:g} is allowed"
        )


def check_threshold(
    release: Release,
    before: CorpusDigests,
    dataset: Dataset,
    vectors: Float32,
    found: Findings,
    settings: UpdateSettings,
) -> ThresholdCheck:
    """Compare accuracy at τ before and after an update.

    Args:
        release: Of the corpus before, opened.
        before: Its documents.
        dataset: The updated corpus with its queries.
        vectors: (n, d) float32, of the answerable ones.
        found: What the updated corpus gives them.
        settings: Of the update.

    Raises:
        InputError: Where no query can be answered by both.
    """
    relevant_before = _positions_before(before, dataset)
    pairs = np.array([row for row, relevant in enumerate(relevant_before) if relevant], dtype=np.int64)
    if not len(pairs):
        raise InputError(
            f"{dataset.name}: no labelled query of the split {dataset.split} has a relevant document in the current "
            "release, so nothing shows whether τ still holds; run taugate calibrate on the new corpus"
        )
    queries = [dataset.answerable[row] for row in pairs.tolist()]
    own = _own_before(before, dataset, queries)
    then = _hits(release, queries, vectors[pairs], [relevant_before[row] for row in pairs], own)
    scored = found.scored.take(pairs)
    now = scored.judged.accuracy(scored.kept(found.policy.kind, found.threshold))
    units = SamplingUnits.from_labels(clusters(queries))
    losses = paired_losses(then - now, units)
    least = least_loss(units, CONFIDENCE)
    margin = settings.margin_for(least)
    loss = Interval(mean=losses.mean, lower=losses.lower_limit(CONFIDENCE), upper=losses.upper_limit(CONFIDENCE))
    widened = settings.margin is None and margin > settings.margin_for(0)
    unpaired = len(dataset.answerable) - len(pairs)
    return ThresholdCheck(units, float(then.mean()), float(now.mean()), loss, margin, widened, unpaired)


def _positions_before(before: CorpusDigests, dataset: Dataset) -> list[frozenset[int]]:
    """Return, for each answerable query, where the corpus before has the passages that answer it.

    A document that answers as a whole is found by its id, in however many chunks it was; a single chunk by its own id.
    """
    named = [_named(query, dataset.documents) for query in dataset.answerable]
    places = before.positions(frozenset[str]().union(*named))
    return [frozenset(position for name in names for position in places.get(name, ())) for names in named]


def _named(query: LabelledQuery, documents: DocumentStore) -> set[str]:
    """Return the ids of what answers a query: of documents, and of chunks where not all of a document answers."""
    chunks = query.chunks or {}
    names = {documents[document].document_id for document in query.relevant if document not in chunks}
    return names | {documents[position].id for positions in chunks.values() for position in positions}


def _own_before(before: CorpusDigests, dataset: Dataset, queries: list[LabelledQuery]) -> Own:
    """Return where the corpus before has the passages that each query itself is."""
    named = [[dataset.documents[position].id for position in query.own] for query in queries]
    places = before.positions({name for names in named for name in names})
    return [tuple(position for name in names for position in places.get(name, ())) for names in named]


def _hits(
    release: Release, queries: list[LabelledQuery], vectors: Float32, relevant: list[frozenset[int]], own: Own
) -> PerQuery:
    """Return 1 for each query that the release answers with a relevant document, else 0; (q,).

    The steps are those by which `Retriever` answers a query, for all queries at once, except that a query is left out
    of its own results.
    """
    retriever, texts = release.retriever, [query.text for query in queries]
    search = partial(search_in_turns, retriever.index) if retriever.passages.remote else retriever.index.search
    top = others_of(own, search(vectors, retriever.policy.k + max_own(own)))
    relevance = None if retriever.relevance is None else retriever.relevance.estimate(vectors, top)
    decisions = decision_scores(retriever.policy.kind, top.scores, relevance)
    answered = None if retriever.abstention is None else retriever.abstention.answered(texts, vectors, top)
    kept = keep_answered(decisions, retriever.policy.threshold, answered)
    right = [
        [position in wanted for position in row] for row, wanted in zip(top.positions.tolist(), relevant, strict=True)
    ]
    hits: NDArray[np.bool_] = np.any(kept & np.array(right), axis=1)
    return hits.astype(np.float64)
