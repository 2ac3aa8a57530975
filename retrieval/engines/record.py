"""What a release says of the collection that holds its vectors and documents: the manifest's `engine` record."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from taugate.retrieval.engines.engine import EngineKind, GraphParameters, collection_name

# A manifest is read strictly, and JSON has lists.
_Texts = Annotated[tuple[str, ...], BeforeValidator(lambda texts: tuple(texts) if isinstance(texts, list) else texts)]


class EngineRecord(BaseModel):
    """The collection of a release, which lies outside of it, and the digests that tell it from any other.

    kind: of the engine. rows: how many documents. dimension: of their vectors. shards: SHA-256 of each shard of vectors
    and documents, in order. sample: SHA-256 of the 4,096 rows that `verify.sampled_positions` draws, or of all where
    there are fewer. fields: metadata fields that filters can name, sorted. edges, edge_candidates: how the graph was
    built. breadth: how broadly a search goes through it. consistency: of searches; a finished collection never changes,
    so that the weakest finds every row.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: EngineKind
    rows: int = Field(ge=1)
    dimension: int = Field(ge=1)
    shards: _Texts
    sample: str
    fields: _Texts = ()
    edges: int = GraphParameters.edges
    edge_candidates: int = GraphParameters.edge_candidates
    breadth: int = GraphParameters.breadth
    consistency: Literal["eventual"] = "eventual"

    @property
    def graph(self) -> GraphParameters:
        """The parameters of the graph and of its searches."""
        return GraphParameters(self.edges, self.edge_candidates, self.breadth)

    @property
    def collection(self) -> str:
        """The name of the collection; searches of any breadth share it."""
        parameters = {"kind": self.kind, "edges": self.edges, "edge_candidates": self.edge_candidates}
        return collection_name(self.shards, parameters)
