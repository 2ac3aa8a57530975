"""Show the labels that are most likely wrong, each with its query and documents, so that a person can judge again."""

from dataclasses import dataclass, replace

from taugate.calibration.relevance.label_errors import DoubtfulLabel, cross_fitted, doubtful_labels
from taugate.calibration.relevance.model import EstimatedRelevance
from taugate.calibration.report.tradeoff import RetrievedDocument, retrieved_document, shortened
from taugate.calibration.study.study import Findings
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.policy.background import Float64

MAX_DOUBTFUL = 20  # labels shown, half of each kind
_MAX_NAMED = 3  # documents of a query that are named


@dataclass(frozen=True)
class ShownLabel:
    """A doubtful label with the texts that a person needs to judge it.

    Attributes:
        id: Of the query, shortened.
        text: Of the query, shortened.
        document: Whose label is doubtful.
        rival: The likeliest result with the opposite label, None where there is none.
        named: Ids of documents that are labelled relevant, a few at most.
        unnamed: How many more there are. The relevance of both documents is by a model that did not learn from the
            query.
    """

    id: str
    text: str
    document: RetrievedDocument
    rival: RetrievedDocument | None
    named: list[str]
    unnamed: int


@dataclass(frozen=True)
class ShownLabels:
    """The labels of the section.

    Attributes:
        irrelevant: See `DoubtfulLabels`.
        missing: See `DoubtfulLabels`.
    """

    irrelevant: list[ShownLabel]
    missing: list[ShownLabel]


def label_errors(dataset: Dataset, found: Findings) -> ShownLabels | None:
    """Find the labels that are most likely wrong, among all answerable queries.

    Args:
        dataset: Texts of queries and documents.
        found: Findings of the study.

    Returns:
        None where no model of relevance was fitted on these queries: there is none, or it was kept from an earlier
        release, which may have learned from them.
    """
    if not isinstance(found.estimated, EstimatedRelevance) or found.roles is None:
        return None
    probabilities = cross_fitted(found.estimated, found.roles)
    labels = doubtful_labels(probabilities, found.scored.judged, MAX_DOUBTFUL // 2)
    return ShownLabels(
        [_shown(dataset, found, probabilities, each) for each in labels.irrelevant],
        [_shown(dataset, found, probabilities, each) for each in labels.missing],
    )


def _shown(dataset: Dataset, found: Findings, probabilities: Float64, label: DoubtfulLabel) -> ShownLabel:
    def document(rank: int) -> RetrievedDocument:
        shown = retrieved_document(dataset, found, label.row, rank)
        return replace(shown, relevance=float(probabilities[label.row, rank]))

    query = dataset.answerable[label.row]
    named = [dataset.documents[position].document_id for position in [*query.relevant][:_MAX_NAMED]]
    return ShownLabel(
        query.id,
        shortened(query.text),
        document(label.rank),
        None if label.rival is None else document(label.rival),
        named,
        len(query.relevant) - len(named),
    )
