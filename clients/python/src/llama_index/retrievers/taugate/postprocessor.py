"""Node postprocessor for LlamaIndex: a calibrated threshold in place of SimilarityPostprocessor's guessed one."""

from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index_instrumentation import get_dispatcher

from llama_index.retrievers.taugate.retriever import TaugateEmptyEvent
from taugate_client.gating import GATE_FIELDS, SCORES, FrameworkGate, Scored, keep, reason_of_empty

_DISPATCHER = get_dispatcher(__name__)


class TaugatePostprocessor(BaseNodePostprocessor):
    """Keep the nodes that pass a threshold of `taugate calibrate-run`, best first.

    An empty list means that no node passed. A TaugateEmptyEvent and a log line of `taugate_client` say why. The
    metadata of a kept node gets `relevance`, `rank`, `calibrated` and `why_not`, which a language model does not see.
    Further scores are in the metadata field `scores`, by name.

    Attributes:
        releases: The releases directory, or the URL of a service of such a release, whose key is in TAUGATE_KEY.
        release: Id of the release; the current one by default.
        k: Number of nodes to consider; the calibrated K by default.
    """

    releases: str
    release: str | None = None
    k: int | None = None
    _gate: FrameworkGate = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:  # noqa: ANN401 (pydantic's signature)
        """Open the release."""
        super().model_post_init(context)
        self._gate = FrameworkGate(self.releases, self.release)

    @classmethod
    def class_name(cls) -> str:
        """Return the component's name."""
        return "TaugatePostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = None if query_bundle is None else query_bundle.query_str
        kept, reply = keep(self._gate, nodes, _scored, query, self.k)
        if not kept:
            _DISPATCHER.event(TaugateEmptyEvent(reply=reason_of_empty(reply)))
        for node, fields in kept:
            node.node.metadata |= fields
            for hidden in (node.node.excluded_llm_metadata_keys, node.node.excluded_embed_metadata_keys):
                hidden += [name for name in (*GATE_FIELDS, SCORES) if name not in hidden]
        return [node for node, _ in kept]


def _scored(node: NodeWithScore) -> Scored:
    return Scored(node.node_id, node.score, node.metadata.get(SCORES))
