"""Any change of a manifest is detected, written manifests verify, and no name leads out of a releases directory."""

import copy
import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from taugate.errors import ReleaseError
from taugate.registry.catalog import current_id, find, release_ids
from taugate.registry.promotion import promote
from taugate.registry.writer import write
from taugate.release.files import names_of
from taugate.release.layout import CURRENT, MANIFEST, content_digest, is_release_id
from taugate.release.manifest import Manifest
from taugate.release.verify import verify
from tests.compatibility.write import FOLDER

FILES = names_of(verify(find(FOLDER / "releases" / "schema-2-last")))  # of a release with a corpus
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False)
    )
    | st.text(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3),
    max_leaves=5,
)
# Ids and times are no content: docs/calibration.md says so, and a signature covers them.
TIMES = (["created_at"], ["parent"])


@pytest.fixture(scope="module")
def release(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release that examples change and put back."""
    return find(shutil.copytree(releases, tmp_path_factory.mktemp("changed") / "releases"))


def places(value: Any, above: list[str | int] | None = None) -> Iterator[list[str | int]]:
    """The path of every value inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inside:
        path = [*(above or []), name]
        yield path
        yield from places(each, path)


def changed(release: Path, content: bytes) -> None:
    """A manifest with other content is refused, or says the same but for times."""
    path = release / MANIFEST
    original = path.read_bytes()
    path.write_bytes(content)
    try:
        verify(release)
    except ReleaseError:
        return
    finally:
        path.write_bytes(original)
    assert _content(content) == _content(original)


def _content(manifest: bytes) -> str:
    """What of it is content, for comparison by kind as well: 1 is not 1.0, nor true."""
    raw = json.loads(manifest)
    for (name,) in TIMES:
        raw.pop(name, None)
    raw["gate"] = [{k: v for k, v in item.items() if k != "gain"} for item in raw["gate"]]
    return json.dumps(raw, sort_keys=True)


@given(data=st.data())
def test_changed_manifest_value_is_refused(release: Path, data: st.DataObject) -> None:
    raw = orjson.loads((release / MANIFEST).read_bytes())
    path = data.draw(st.sampled_from([*places(raw)]))
    other = copy.deepcopy(raw)
    above = other
    for name in path[:-1]:
        above = above[name]
    if data.draw(st.booleans()):
        above[path[-1]] = data.draw(JSON)
    else:
        del above[path[-1]]
    changed(release, orjson.dumps(other))


@given(data=st.data())
def test_changed_manifest_byte_is_refused(release: Path, data: st.DataObject) -> None:
    content = bytearray((release / MANIFEST).read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    changed(release, bytes(content))


@pytest.mark.slow
@settings(max_examples=20)  # each draws thousands of numbers
@given(st.randoms(use_true_random=False))
def test_key_order_does_not_change_digest(release: Path, random: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, list):
            return [shuffled(item) for item in value]
        if not isinstance(value, dict):
            return value
        names = [*value]
        random.shuffle(names)
        return {name: shuffled(value[name]) for name in names}

    raw = orjson.loads((release / MANIFEST).read_bytes())
    assert content_digest(shuffled(raw)) == content_digest(raw)
    changed(release, orjson.dumps(shuffled(raw)))


def _fill(files: dict[str, bytes]) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)

    return fill


CONTENTS = st.fixed_dictionaries(
    {name: st.binary(max_size=99) for name in FILES.required},
    optional={name: st.binary(max_size=99) for name in FILES.optional},
)
NUMBERS = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 5e-324])
FACTS = {
    ("data", "name"): st.text(),
    ("policy", "guarantee"): st.text(),
    ("query_set", "warnings"): st.lists(st.text(), max_size=3),
    ("policy", "tau"): NUMBERS,
    ("isotropy", "i_a"): NUMBERS,
    ("metrics", "calibration"): st.fixed_dictionaries({"kept_fraction": NUMBERS}),
    ("bootstrap", "seed"): st.integers(0, 2**63 - 1),
}


@settings(max_examples=60)
@given(contents=CONTENTS, facts=st.fixed_dictionaries({}, optional=FACTS))
def test_written_manifest_verifies(release: Path, contents: dict[str, bytes], facts: dict[Any, Any]) -> None:
    """Or it is refused before anything is there: a number that JSON does not have, for one."""
    raw = orjson.loads((release / MANIFEST).read_bytes())
    for (part, name), value in facts.items():
        raw[part][name] = raw[part][name] | value if isinstance(value, dict) else value
    with TemporaryDirectory() as folder:
        releases = Path(folder) / "releases"
        try:
            draft = Manifest.model_validate(raw)
        except ValidationError:
            return
        manifest = write(releases, draft, _fill(contents))
        assert verify(releases / manifest.release_id) == manifest
        assert release_ids(releases) == [manifest.release_id]
        assert all((find(releases, manifest.release_id) / name).read_bytes() == contents[name] for name in contents)


NAMES = st.text(max_size=40) | st.from_regex(r"\d{8}T\d{6}Z-[0-9a-f]{12}", fullmatch=True)


@given(NAMES)
def test_foreign_names_are_refused(release: Path, name: str) -> None:
    assume(name != release.name)
    before = (release.parent / CURRENT).read_bytes()
    for ask in (find, promote):
        with pytest.raises(ReleaseError):
            ask(release.parent, name)
    assert (release.parent / CURRENT).read_bytes() == before
    if is_release_id(name):
        assert name.isascii()
        assert Path(name).name == name


@given(st.binary(max_size=60) | NAMES.map(lambda name: name.encode("utf-8", "surrogatepass")))
def test_any_pointer_resolves_or_is_refused(release: Path, pointer: bytes) -> None:
    path = release.parent / CURRENT
    original = path.read_bytes()
    path.write_bytes(pointer)
    try:
        assert current_id(release.parent) == release.name
    except ReleaseError as error:
        assert CURRENT in str(error)
    finally:
        path.write_bytes(original)
