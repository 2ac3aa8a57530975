"""An engine that only keeps bytes: damage and failures; the contract of engines is tested with it beside the others."""

from collections.abc import Mapping

import numpy as np
import pytest

from taugate.errors import EngineUnavailable, InputError, ReleaseError
from taugate.retrieval.documents.filters import OneOf
from taugate.retrieval.engines.engine import open_verified
from taugate.retrieval.engines.search import EngineIndex
from tests.retrieval.engines.corpus import D, corpus, recorded, soon, upload
from tests.retrieval.engines.dictionary_store import DictionaryStore

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
