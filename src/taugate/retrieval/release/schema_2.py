"""Reads manifests of schema 2, whose records wrote most fields that are None."""

from collections.abc import Mapping
from typing import Final

from taugate.retrieval.release.refusal_records import refusal_of_schema_2
from taugate.storage.json_values import Json

SCHEMA_2: Final = 2


def migrated(manifest: Mapping[str, Json], version: int) -> dict[str, Json]:
    """Return a manifest of schema 2 as one of this version, both as unchecked JSON.

    Args:
        manifest: The manifest of a release.
        version: Schema version of the result.
    """
    second = manifest.get("second_stage")
    if isinstance(second, Mapping) and isinstance(first := second.get("first"), Mapping):
        manifest = {**manifest, "second_stage": {**second, "first": _with_one_refusal(first)}}
    return {**_with_one_refusal(manifest), "schema_version": version}


def _with_one_refusal(record: Mapping[str, Json]) -> dict[str, Json]:
    """Return a manifest, or its first stage, with one record of refusals in place of three."""
    remaining = {name: value for name, value in record.items() if name not in {"abstention", "refusal", "no_answer"}}
    refusal = refusal_of_schema_2(record)
    return remaining if refusal is None else {**remaining, "refusal": refusal}
