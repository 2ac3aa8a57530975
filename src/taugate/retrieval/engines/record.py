"""The manifest's `engine` record, which describes the collection that holds a release's vectors and documents."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator
from pydantic_core import PydanticCustomError

from taugate.retrieval.documents.field_types import FieldType, FieldTypes, shown
from taugate.retrieval.documents.filters import DATES, KINDS, composed
from taugate.retrieval.engines.engine import EngineKind, GraphParameters, collection_name

_LISTS = "lists"  # listed beside the kinds of a field's values if documents have lists of them


def _written(types: FieldTypes) -> dict[str, list[str]]:
    """Return the JSON form of field types: {"year": ["numbers"], "tags": ["texts", "lists"]}."""
    return {
        name: [*(KINDS[kind] for kind in sorted(field.kinds)), *([_LISTS] if field.has_lists else [])]
        for name, field in types.by_name.items()
    }


def _read(written: object) -> FieldTypes:
    """Parse the JSON form of `_written`.

    Raises:
        PydanticCustomError: If it is malformed.
    """
    if isinstance(written, FieldTypes):
        return written
    if not isinstance(written, dict):
        raise PydanticCustomError("fields", "not an object of fields with the kinds of their values")
    return FieldTypes({composed(name): _read_type(name, words) for name, words in sorted(written.items())})


def _read_type(name: str, words: object) -> FieldType:
    valid = [word for word in (*KINDS, _LISTS) if isinstance(words, list) and word in words]
    kinds = frozenset(KINDS.index(word) for word in valid if word != _LISTS)
    if not isinstance(words, list) or len(words) != len(valid) or not kinds:
        message = f"{shown(name)}: must be a list of kinds of values ({', '.join(KINDS)}), optionally with {_LISTS}"
        raise PydanticCustomError("fields", "{message}", {"message": message})  # a name may have braces
    return FieldType(kinds, _LISTS in valid)


# Manifests are validated strictly, so JSON's lists have to be converted.
_Texts = Annotated[tuple[str, ...], BeforeValidator(lambda texts: tuple(texts) if isinstance(texts, list) else texts)]
_Fields = Annotated[FieldTypes, PlainValidator(_read), PlainSerializer(_written)]


class EngineRecord(GraphParameters):
    """The collection of a release in an engine, with the digests that identify it.

    Attributes:
        kind: Kind of the engine.
        rows: Number of documents.
        dimension: Dimension of their vectors.
        shards: SHA-256 of each shard of vectors and documents, in order.
        sample: SHA-256 of the 4,096 rows that `verify.sampled_positions` draws, or of all rows if there are fewer.
        fields: Metadata fields that filters can name, with the kinds of their values. The collection's name depends
            only on whether any field has dates.
        consistency: Consistency of searches. A finished collection never changes, so the weakest level finds all rows.
    """

    kind: EngineKind
    rows: int = Field(ge=1)
    dimension: int = Field(ge=1)
    shards: _Texts
    sample: str
    fields: _Fields = FieldTypes()
    consistency: Literal["eventual"] = "eventual"

    @property
    def collection(self) -> str:
        """The name of the collection, which does not depend on the breadth of searches."""
        parameters: dict[str, int | str] = {
            "kind": self.kind,
            "edges": self.edges,
            "edge_candidates": self.edge_candidates,
        }
        if any(DATES in field.kinds for field in self.fields.by_name.values()):
            parameters["dates"] = "moments"  # earlier versions uploaded rows without moments
        return collection_name(self.shards, parameters)
