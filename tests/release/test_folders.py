"""Each kind of content of a release knows its files, and no other kind does."""

import pytest

from taugate.registry.catalog import find, release_ids
from taugate.release.files import KINDS, names_of
from taugate.release.verify import check_optional_files, verify_searchable
from tests.compatibility.write import FOLDER


@pytest.mark.parametrize("name", ["schema-2-baseline", "schema-2-everything", "schema-2-last", "schema-2-words"])
def test_every_file_has_one_kind(name: str) -> None:
    releases = FOLDER / "releases" / name
    release = find(releases, release_ids(releases)[0])
    manifest = verify_searchable(release)
    kinds = [kind(manifest) for kind in KINDS]
    every = [file for kind in kinds for file in (*kind.required, *kind.optional)]
    assert len(every) == len({*every})
    assert {*manifest.files} <= {*every}
    assert names_of(manifest).required <= {*manifest.files}
    check_optional_files(release, manifest)
