"""The record of an engine that holds the vectors and documents of a release."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, StringConstraints
from pydantic_core import PydanticCustomError

from taugate.release.names import DATES, KINDS, shown

KIND = re.compile(r"[a-z][a-z0-9_-]{0,40}\Z")
EngineKind = Annotated[str, StringConstraints(pattern=KIND)]  # name of an entry point of the group `taugate.engines`
PREFIX = "tg_"
LISTS = "lists"  # listed beside the kinds of a field's values if documents have lists of them


def _read(written: object) -> Mapping[str, list[str]]:
    """Check the fields of a collection."""
    if not isinstance(written, dict):
        raise PydanticCustomError("fields", "not an object of fields with the kinds of their values")
    for name, words in written.items():
        valid = [word for word in (*KINDS, LISTS) if isinstance(words, list) and word in words]
        if not isinstance(words, list) or len(words) != len(valid) or valid in ([], [LISTS]):
            message = f"{shown(name)}: must be a list of kinds of values ({', '.join(KINDS)}), optionally with {LISTS}"
            raise PydanticCustomError("fields", "{message}", {"message": message})  # a name may have braces
    return dict(sorted(written.items()))


# Manifests are validated strictly, so JSON's lists have to be converted.
_Texts = Annotated[tuple[str, ...], BeforeValidator(lambda texts: tuple(texts) if isinstance(texts, list) else texts)]
_Fields = Annotated[Mapping[str, list[str]], PlainValidator(_read)]


class GraphParameters(BaseModel):
    """How an engine builds the graph of a collection, and how broadly it searches.

    The defaults are those of the in-process graph (retrieval/index/approximate.py): `edges` per document and layer (M),
    `edge_candidates` during the build (efConstruction). `breadth` is the length of a search's candidate list (ef),
    raised to the number of requested results if that is larger.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    edges: int = 32
    edge_candidates: int = 200
    breadth: int = 128


class EngineRecord(GraphParameters):
    """The collection of a release in an engine, with the digests that identify it."""

    kind: EngineKind
    rows: int = Field(ge=1)
    dimension: int = Field(ge=1)
    shards: _Texts  # SHA-256 of each shard of vectors and documents, in order
    sample: str  # SHA-256 of the 4,096 rows that `connect.sampled_positions` draws, or of all rows if there are fewer
    # Metadata fields that filters can name, with the kinds of their values, and LISTS if documents have lists of them:
    # {"year": ["numbers"], "tags": ["texts", "lists"]}. The collection's name depends only on whether any field has
    # dates.
    fields: _Fields = Field(default_factory=dict)
    # Consistency of searches. A finished collection never changes, so the weakest level finds all rows.
    consistency: Literal["eventual"] = "eventual"

    @property
    def collection(self) -> str:
        """The name of the collection, which does not depend on the breadth of searches."""
        parameters: dict[str, int | str] = {
            "kind": self.kind,
            "edges": self.edges,
            "edge_candidates": self.edge_candidates,
        }
        if any(KINDS[DATES] in words for words in self.fields.values()):
            parameters["dates"] = "moments"  # earlier versions uploaded rows without moments
        return collection_name(self.shards, parameters)


def collection_name(shards: Sequence[str], parameters: Mapping[str, int | str]) -> str:
    """Return the name of a collection, which is equal for equal contents only.

    `shards` are the SHA-256 of vectors and documents, in order; `parameters` are those of its index.
    """
    content = orjson.dumps({"shards": [*shards], "parameters": {**parameters}}, option=orjson.OPT_SORT_KEYS)
    return PREFIX + hashlib.sha256(content).hexdigest()[:32]
