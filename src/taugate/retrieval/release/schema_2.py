"""Reads manifests of schema 2, whose records wrote most fields that are None."""

from collections.abc import Mapping
from typing import Final

from taugate.storage.json_values import Json

SCHEMA_2: Final = 2


def migrated(manifest: Mapping[str, Json], version: int) -> dict[str, Json]:
    """Return a manifest of schema 2 as one of this version, both as unchecked JSON.

    Args:
        manifest: The manifest of a release.
        version: Schema version of the result.
    """
    return {**manifest, "schema_version": version}
