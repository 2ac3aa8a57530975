"""What a release says of the collection that holds its vectors and documents: the manifest's `engine` record."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, PlainValidator
from pydantic_core import PydanticCustomError

from taugate.retrieval.documents.field_types import FieldType, FieldTypes, shown
from taugate.retrieval.documents.filters import DATES, KINDS
from taugate.retrieval.engines.engine import EngineKind, GraphParameters, collection_name

_LISTS = "lists"  # beside the kinds of a field's values, where documents have lists of them


def _written(types: FieldTypes) -> dict[str, list[str]]:
    """Return what JSON says of fields: {"year": ["numbers"], "tags": ["texts", "lists"]}."""
    return {
        name: [*(KINDS[kind] for kind in sorted(each.kinds)), *([_LISTS] if each.has_lists else [])]
        for name, each in types.by_name.items()
    }


def _read(written: object) -> FieldTypes:
    """Parse what `_written` makes.

    Raises:
        PydanticCustomError: For anything else.
    """
    if isinstance(written, FieldTypes):
        return written
    if not isinstance(written, dict):
        raise PydanticCustomError("fields", "no object of fields, each with the kinds of its values")
    return FieldTypes({name: _read_type(name, words) for name, words in sorted(written.items())})


def _read_type(name: str, words: object) -> FieldType:
    known = [each for each in (*KINDS, _LISTS) if isinstance(words, list) and each in words]
    kinds = frozenset(KINDS.index(each) for each in known if each != _LISTS)
    if not isinstance(words, list) or len(words) != len(known) or not kinds:
        wrong = (
            f"{shown(name)}: no list of the kinds of its values, which are {', '.join(KINDS)}, and {_LISTS} beside them"
        )
        raise PydanticCustomError("fields", "{wrong}", {"wrong": wrong})  # a name may have braces
    return FieldType(kinds, _LISTS in known)


# A manifest is read strictly, and JSON has lists.
_Texts = Annotated[tuple[str, ...], BeforeValidator(lambda texts: tuple(texts) if isinstance(texts, list) else texts)]
_Fields = Annotated[FieldTypes, PlainValidator(_read), PlainSerializer(_written)]


class EngineRecord(BaseModel):
    """The collection of a release, which lies outside of it, and the digests that tell it from any other.

    Attributes:
        kind: Of the engine.
        rows: How many documents.
        dimension: Of their vectors.
        shards: SHA-256 of each shard of vectors and documents, in order.
        sample: SHA-256 of the 4,096 rows that `verify.sampled_positions` draws, or of all if there are fewer.
        fields: Metadata fields that filters can name, and what they hold; the collection's name says only whether there
            are dates.
        edges: How the graph was built.
        edge_candidates: How the graph was built.
        breadth: How broadly a search goes through it.
        consistency: Of searches; a finished collection never changes, so that the weakest finds every row.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: EngineKind
    rows: int = Field(ge=1)
    dimension: int = Field(ge=1)
    shards: _Texts
    sample: str
    fields: _Fields = FieldTypes()
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
        parameters: dict[str, int | str] = {
            "kind": self.kind,
            "edges": self.edges,
            "edge_candidates": self.edge_candidates,
        }
        if any(DATES in each.kinds for each in self.fields.by_name.values()):
            parameters["dates"] = "moments"  # rows without them, of an earlier version, are another collection
        return collection_name(self.shards, parameters)
