"""Document compressor for LangChain: a calibrated threshold for the results of any retriever or re-ranker."""

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import Callbacks, dispatch_custom_event
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import PrivateAttr

from taugate_client.gating import SCORES, FrameworkGate, Scored, keep, reason_of_empty


class TaugateCompressor(BaseDocumentCompressor):
    """Keep the documents that pass a threshold of `taugate calibrate-run`, best first.

    An empty list means that no document passed. The custom event `taugate_empty` and a log line of `taugate_client` say
    why. The metadata of a kept document gets `relevance`, `rank`, `calibrated` and `why_not`.

    Attributes:
        releases: The releases directory, or the URL of a service of such a release, whose key is in TAUGATE_KEY.
        release: Id of the release; the current one by default.
        score: Metadata field with the score that was calibrated. Further scores are in the field `scores`, by name.
        k: Number of documents to consider; the calibrated K by default.
    """

    releases: str
    release: str | None = None
    score: str = "score"
    k: int | None = None
    _gate: FrameworkGate = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:  # noqa: ANN401 (pydantic's signature)
        """Open the release."""
        super().model_post_init(context)
        self._gate = FrameworkGate(self.releases, self.release)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Cut the results of a query; see BaseDocumentCompressor.

        Raises:
            InvalidRequest: If a document has no score, or two have the same id.
        """
        kept, reply = keep(self._gate, documents, self._scored, query, self.k)
        if not kept and callbacks is not None:
            dispatch_custom_event("taugate_empty", reason_of_empty(reply), config={"callbacks": callbacks})
        return [document.model_copy(update={"metadata": document.metadata | fields}) for document, fields in kept]

    def _scored(self, document: Document) -> Scored:
        return Scored(document.id, document.metadata.get(self.score), document.metadata.get(SCORES))
