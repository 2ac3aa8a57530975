"""Manifests of schema 2 are read as those of schema 3, without a loss."""

import json

import pytest

from taugate.registry.catalog import find, release_ids
from taugate.release.layout import MANIFEST
from taugate.release.verify import verify
from tests.compatibility.schema_2 import as_schema_2
from tests.compatibility.write import FOLDER

RELEASE = find(FOLDER / "releases" / "schema-2-last")


def _nulls(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_nulls, value.values()))
    return any(map(_nulls, value)) if isinstance(value, list) else value is None


def test_schema_2_survives_conversion_and_back() -> None:
    assert as_schema_2(verify(RELEASE)) == json.loads((RELEASE / MANIFEST).read_bytes())


@pytest.mark.parametrize("name", ["schema-2-baseline", "schema-2-everything", "schema-2-last", "schema-2-words"])
def test_written_manifest_has_no_null(name: str) -> None:
    releases = FOLDER / "releases" / name
    written = verify(find(releases, release_ids(releases)[0])).model_dump()
    assert written["schema_version"] == 3
    assert not _nulls(written)
