"""The labels that are most likely wrong, with their queries and documents, for a person to check."""

from dataclasses import dataclass, replace

from taugate.calibration.relevance.label_errors import DoubtfulLabel, cross_fitted, doubtful_labels
from taugate.calibration.report.tradeoff import RetrievedDocument, retrieved_document, shortened
from taugate.calibration.study.outcomes import Calibrated
from taugate.retrieval.policy.background import Float64

MAX_DOUBTFUL = 20  # labels shown, half of each kind
_MAX_NAMED = 3  # document ids shown per query


@dataclass(frozen=True)
class ShownLabel:
    """A doubtful label with the texts that a person needs to judge it.

    The relevance of both documents is estimated by a model that was not fitted on the query.

    Attributes:
        id: Id of the query.
        text: Text of the query, shortened.
        document: The document with the doubtful label.
        rival: The most relevant result with the opposite label, if any.
        named: Ids of some documents labelled relevant.
        unnamed: Number of further documents labelled relevant.
    """

    id: str
    text: str
    document: RetrievedDocument
    rival: RetrievedDocument | None
    named: list[str]
    unnamed: int


@dataclass(frozen=True)
class ShownLabels:
    """The labels that the section shows, by the kinds of `DoubtfulLabels`."""

    irrelevant: list[ShownLabel]
    missing: list[ShownLabel]


def label_errors(calibrated: Calibrated) -> ShownLabels | None:
    """Find the labels of the answerable queries that are most likely wrong.

    None if no relevance model was fitted on these queries; an earlier release's model may have seen some of them.

    Args:
        calibrated: The study with its manifest.
    """
    if calibrated.fitted is None or calibrated.roles is None:
        return None
    probabilities = cross_fitted(calibrated.fitted, calibrated.roles)
    labels = doubtful_labels(probabilities, calibrated.scored.judged, MAX_DOUBTFUL // 2)
    return ShownLabels(
        [_shown(calibrated, probabilities, label) for label in labels.irrelevant],
        [_shown(calibrated, probabilities, label) for label in labels.missing],
    )


def _shown(calibrated: Calibrated, probabilities: Float64, label: DoubtfulLabel) -> ShownLabel:
    def document(rank: int) -> RetrievedDocument:
        shown = retrieved_document(calibrated, label.row, rank)
        return replace(shown, relevance=float(probabilities[label.row, rank]))

    search = calibrated.search
    query = search.dataset.answerable[label.row]
    named = [search.document(position).document_id for position in [*query.relevant][:_MAX_NAMED]]
    return ShownLabel(
        query.id,
        shortened(query.text),
        document(label.rank),
        None if label.rival is None else document(label.rival),
        named,
        len(query.relevant) - len(named),
    )
