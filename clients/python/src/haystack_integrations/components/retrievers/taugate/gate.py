"""Component for Haystack that cuts the results of any retriever, joiner or ranker by a calibrated threshold."""

from dataclasses import replace
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict

from taugate_client.gating import SCORES, FrameworkGate, Scored, keep


@component
class TaugateGate:
    """Keep the documents that pass a threshold of `taugate calibrate-run`, best first.

    Empty `documents` mean that no document passed; `reason` says why. `meta` of a kept document gets `relevance`,
    `rank`, `calibrated` and `why_not`. Further scores are in its field `scores`, by name.
    """

    def __init__(self, releases: str, release: str | None = None, k: int | None = None) -> None:
        """Configure the component.

        Args:
            releases: The releases directory, or the URL of a service of such a release, whose key is in TAUGATE_KEY.
            release: Id of the release; the current one by default.
            k: Number of documents to consider; the calibrated K by default.
        """
        self.releases, self.release, self.k = releases, release, k
        self._gate: FrameworkGate | None = None

    def warm_up(self) -> None:
        """Open the release; `run` does this if it was not done before."""
        self._opened()

    @component.output_types(documents=list[Document], reason=str | None)
    def run(self, documents: list[Document], query: str | None = None) -> dict[str, Any]:
        """Cut the results of a query.

        Args:
            documents: Results with their scores, best first.
            query: Text of the query, for log and drift of a service.

        Returns:
            `documents`, and the `reason` if there are none.

        Raises:
            InvalidRequest: If a document has no score, or two have the same id.
        """
        kept, reply = keep(self._opened(), documents, _scored, query, self.k)
        return {
            "documents": [replace(document, meta=document.meta | fields) for document, fields in kept],
            "reason": reply.reason,
        }

    def _opened(self) -> FrameworkGate:
        if self._gate is None:
            self._gate = FrameworkGate(self.releases, self.release)
        return self._gate

    def to_dict(self) -> dict[str, Any]:
        """Return the component as a dictionary."""
        return default_to_dict(self, releases=self.releases, release=self.release, k=self.k)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "TaugateGate":
        """Make a component from the dictionary of `to_dict`."""
        return default_from_dict(cls, data)


def _scored(document: Document) -> Scored:
    return Scored(document.id, document.score, document.meta.get(SCORES))
