"""The manifest's engine record: readable JSON that round-trips, and errors for anything else."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import orjson
import pytest
from pydantic import ValidationError

from taugate import plugins
from taugate.errors import EngineUnavailable, InputError, ReleaseError
from taugate.release.engine import EngineRecord
from taugate.retrieval.documents.filters import OneOf, Range
from taugate.retrieval.documents.metadata import FieldTypes
from taugate.retrieval.documents.store import Document
from taugate.retrieval.engines import engine
from taugate.retrieval.engines.engine import (
    CollectionState,
    Positions,
    Rows,
    engine_from_environment,
    field_types,
    open_verified,
    recorded_fields,
)
from taugate.retrieval.engines.filters import FilterDialect, condition, date_key, filterable
from taugate.retrieval.engines.search import EngineIndex
from tests.retrieval.engines.corpus import D, corpus, recorded, soon, upload
from tests.retrieval.engines.dictionary_store import DictionaryStore

RECORD = EngineRecord(
    kind="pgvector",
    rows=1500,
    dimension=24,
    shards=("a", "b"),
    sample="c",
    fields=recorded_fields(FieldTypes.of(corpus().documents)),
)


def test_field_types_json_round_trips() -> None:
    written = orjson.loads(RECORD.model_dump_json())
    assert written["fields"] == {
        "day": ["texts", "dates"],
        "lang": ["texts"],
        "odd [\"name\\']": ["numbers"],
        "one": ["booleans", "numbers", "texts"],
        "rare": ["numbers"],
        "tags": ["texts", "lists"],
        "year": ["numbers"],
    }
    assert EngineRecord.model_validate(written, strict=True) == RECORD
    assert EngineRecord.model_validate(RECORD.model_dump()) == RECORD


def test_collection_name_ignores_fields_without_dates() -> None:
    fields = {name: kinds for name, kinds in RECORD.fields.items() if name != "day"}
    without = RECORD.model_copy(update={"fields": fields})
    assert without.model_copy(update={"fields": {}}).collection == without.collection


def test_collection_name_depends_on_dates() -> None:
    assert RECORD.model_copy(update={"fields": {}}).collection != RECORD.collection


WRONG: dict[str, tuple[Any, str]] = {
    "names alone": (["year"], "not an object of fields with the kinds of their values"),
    "nothing": (None, "not an object of fields with the kinds of their values"),
    "one word": ({"year": "numbers"}, "year: must be a list of kinds of values (booleans, numbers, texts"),
    "no kind": ({"year": []}, "year: must be a list of kinds"),
    "lists of nothing": ({"tags": ["lists"]}, "tags: must be a list of kinds"),
    "a kind that is none": ({"year": ["numbers", "colours"]}, "year: must be a list of kinds"),
    "a kind twice": ({"year": ["numbers", "numbers"]}, "year: must be a list of kinds"),
    "a list in a list": ({"{year}": [["numbers"]]}, "{year}: must be a list of kinds"),
    "a long name": ({"y" * 99: 1}, "y" * 40 + "…: must be a list of kinds"),
}


@pytest.mark.parametrize(("fields", "message"), WRONG.values(), ids=WRONG)
def test_invalid_fields_are_refused_by_name(fields: Any, message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        EngineRecord.model_validate(RECORD.model_dump() | {"fields": fields})
    (error,) = refused.value.errors()
    assert error["loc"] == ("fields",)
    assert error["msg"].startswith(message)


def test_filter_finds_every_unicode_form() -> None:
    """Rows are uploaded in the composed form, and by earlier versions as the corpus had them."""
    dialect = FilterDialect(has_any=" ".join, compares=lambda key, sign, number: f"{key}{sign}")
    forms = [(normalize(name, "é"), normalize(value, "ü")) for name in ("NFC", "NFD") for value in ("NFC", "NFD")]
    uploaded = {token for name, value in forms for token in filterable(Document("d", "", None, {name: value})).tokens}
    earlier = {hashlib.sha256(orjson.dumps((2, name, value))).hexdigest()[:24] for name, value in forms}
    assert len(uploaded) == 2  # its id, and the value in one form
    asked = condition((OneOf.of(*forms[-1]),), dialect)
    assert all(token in asked for token in earlier)
    within = condition((Range(forms[0][0], gt=0, kind=3),), dialect)
    assert all(f"{date_key(name)}>" in within for name, _ in forms)


def test_field_of_earlier_collection_is_named_in_composed_form() -> None:
    written = RECORD.model_dump() | {"fields": {normalize("NFD", "é"): ["texts"]}}
    field_types(EngineRecord.model_validate(written)).check((OneOf.of("é", "a"),))


def test_urls_and_secret_from_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[list[str], str]] = []
    monkeypatch.setattr(engine, "load_one", lambda group, name: lambda urls, secret: made.append((urls, secret)))
    (tmp_path / "data").write_text("hunter2\n")
    (tmp_path / "token").symlink_to("data")  # as Kubernetes mounts it
    one, two = "postgresql://a@h/db", "postgresql:///db?host=/run/pg"
    engine_from_environment("pgvector", {"TAUGATE_ENGINE_URL": f"{one}, {two},"})
    engine_from_environment(
        "pgvector", {"TAUGATE_ENGINE_URL": one, "TAUGATE_ENGINE_TOKEN_FILE": str(tmp_path / "token")}
    )
    assert made == [([one, two], ""), ([one], "hunter2")]


@pytest.mark.parametrize("url", [None, "", " , "])
def test_missing_url_is_named(url: str | None) -> None:
    environ = {} if url is None else {"TAUGATE_ENGINE_URL": url}
    with pytest.raises(InputError, match="TAUGATE_ENGINE_URL is not set, and the vectors are in milvus"):
        engine_from_environment("milvus", environ)


def test_unreadable_secret_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("none", "binary", ""):
        environ = {"TAUGATE_ENGINE_URL": "http://h", "TAUGATE_ENGINE_TOKEN_FILE": str(tmp_path / name)}
        with pytest.raises(InputError, match="TAUGATE_ENGINE_TOKEN_FILE: .* cannot be read as text"):
            engine_from_environment("milvus", environ)


def test_missing_plugin_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "provided", lambda group: {})
    environ = {"TAUGATE_ENGINE_URL": "http://h"}
    for kind, message in (
        ("milvus", "milvus is not installed: it is in the plug-in taugate-engines"),
        ("foo", "foo is not installed; the installed plug-ins have none"),
    ):
        with pytest.raises(InputError, match=message):
            engine_from_environment(kind, environ)


COUNT = 90


class FailingStore(DictionaryStore):
    error: Exception = ConnectionError("no route\nto host")

    def read(self, collection: str) -> Mapping[int, bytes]:
        raise self.error


@pytest.fixture
def store() -> DictionaryStore:
    return DictionaryStore()


@pytest.fixture
def name(store: DictionaryStore) -> str:
    """A collection of 90 documents."""
    name = recorded(store, corpus(COUNT)).collection
    upload(store, name, corpus(COUNT))
    return name


def test_verified_collection_is_searched_exactly(store: DictionaryStore, name: str) -> None:
    rows = corpus(COUNT)
    index = EngineIndex(open_verified(store, recorded(store, rows), D, soon()), COUNT, 60)
    top = index.find(rows.vectors[:1], 3, (OneOf.of("lang", "de"),))
    cosines = rows.vectors[2::3] @ rows.vectors[0]
    assert top.positions[0].tolist() == (2 + 3 * np.argsort(-cosines)[:3]).tolist()
    assert not top.approximate or len(top.candidates) >= 3


@pytest.mark.parametrize(("number", "message"), [(-1, "first row is damaged"), (7, "the row at 7 is not a document")])
def test_damaged_row_is_named(store: DictionaryStore, name: str, number: int, message: str) -> None:
    store.kept[name][number] = b"\x00"
    with pytest.raises(ReleaseError, match=f"^{name}: .*{message}; upload"):
        store.collection(name, 128, soon())


def test_failure_of_store_is_an_unavailable_engine(name: str) -> None:
    failing = FailingStore()
    with pytest.raises(EngineUnavailable, match=r"^the engine dictionary does not respond \(no route\); check"):
        failing.collection(name, 128, soon())
    failing.error = InputError("a message for the user")
    with pytest.raises(InputError, match="^a message for the user$"):
        failing.collection(name, 128, soon())


def test_names_and_ages_are_those_of_collections(store: DictionaryStore, name: str) -> None:
    store.kept["of others"][1] = b"row"
    assert store.names(soon()) == [name]
    assert store.created(name, soon()) is not None
    store.drop(name, soon())
    assert (store.names(soon()), store.created(name, soon())) == ([], None)


ROWS = corpus(9)
VERIFIED = EngineRecord(kind="milvus", rows=9, dimension=D, shards=("a",), sample="b")


class Fake:
    """An engine whose one collection is in some state, and its own collection."""

    kind = "milvus"

    def __init__(self, state: CollectionState) -> None:
        self._state = state

    def collection(self, name: str, breadth: int, deadline: float) -> "Fake":
        assert (name, breadth) == (VERIFIED.collection, VERIFIED.breadth)
        return self

    def state(self, deadline: float) -> CollectionState:
        return self._state

    def fetch(self, positions: Positions, deadline: float) -> Rows:
        return Rows(ROWS.vectors[positions], [ROWS.documents[at] for at in positions.tolist()])


UNVERIFIED = [
    (CollectionState(7, 8, built=False, pending=9, loaded=False), f"holds vectors of dimension 7, .* makes {D}"),
    (CollectionState(D, 8, built=False, pending=9, loaded=False), "has no finished index"),
    (CollectionState(D, 8, built=True, pending=3, loaded=False), "3 rows are still being added to its index"),
    (CollectionState(D, 8, built=True, pending=0, loaded=False), "is not loaded on every replica"),
    (CollectionState(D, 8, built=True, pending=0, loaded=True), "holds 8 rows, not 9"),
    (CollectionState(D, 9, built=True, pending=0, loaded=True), "vectors or documents differ"),
]


@pytest.mark.parametrize(("state", "message"), UNVERIFIED)
def test_unready_state_has_own_message(state: CollectionState, message: str) -> None:
    with pytest.raises(ReleaseError, match=f"^{VERIFIED.collection}: {message}"):
        open_verified(Fake(state), VERIFIED, D, soon())  # type: ignore[arg-type]
