"""A database may reply with any values: each that is of another type gives one sentence, or is not read."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taugate.data.runs.search_request import StoreSearch
from taugate.errors import InputError
from taugate_engines.stores import MilvusStore, PostgresStore
from tests.data.runs.test_odd_replies import JSON, ODD, QUERY, check, good_result, places, replaced, request_of

KINDS = ["pgvector", "milvus"]


class Servers:
    """Stands in for the clients of PostgreSQL and Milvus."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.description = [type("Column", (), {"name": name}) for name in ("id", "score", "text", "words")]

    def run(self, name: str, request: Callable[..., Any], deadline: float) -> Any:
        return request(self, deadline) if request.__code__.co_argcount == 2 else request(self)

    def execute(self, statement: bytes, values: Any) -> "Servers":
        return self

    def fetchall(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.reply]

    def search(self, path: str, **arguments: Any) -> Any:
        return self.reply

    def query(self, path: str, **arguments: Any) -> Any:
        return self.reply


def good_reply(kind: str) -> Any:
    if kind == "pgvector":
        return [{"id": "d1", "score": 0.5, "text": "a roof", "words": 0.25}]
    return [[good_result(request_of(kind))]]


def search_with(kind: str, path: tuple[str | int, ...], odd: Any) -> StoreSearch:
    store: Any = object.__new__(PostgresStore if kind == "pgvector" else MilvusStore)
    store._servers = Servers(replaced(good_reply(kind), path, odd))
    return StoreSearch(request_of(kind), store)


def all_places(kind: str) -> list[tuple[str | int, ...]]:
    paths = places(good_reply(kind))
    # A database gives rows with the columns of the statement; only their values are of any type.
    return [path for path in paths if len(path) == 2] if kind == "pgvector" else paths


@pytest.mark.parametrize("kind", KINDS)
def test_odd_value_at_every_place_gives_one_sentence(kind: str) -> None:
    (result,) = search_with(kind, (), good_reply(kind)).search(QUERY)
    assert (result.id, result.score, result.text) == ("d1", 0.5, "a roof")
    for path in all_places(kind):
        for odd in ODD:
            check(search_with(kind, path, odd))


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(KINDS), place=st.integers(0, 100), odd=JSON)
def test_any_value_gives_one_sentence(kind: str, place: int, odd: Any) -> None:
    paths = all_places(kind)
    check(search_with(kind, paths[place % len(paths)], odd))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("odd", [None, True, {"a": 1}, [1], ""])
def test_result_without_usable_id_is_refused(kind: str, odd: Any) -> None:
    place = (0, "id") if kind == "pgvector" else (0, 0, "id")
    with pytest.raises(InputError, match="has no id at"):
        search_with(kind, place, odd).search(QUERY)
