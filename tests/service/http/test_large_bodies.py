"""Large bodies are read in pieces: with the same outcome as a whole one, and with other work in between."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from taugate.service.api.gate import GateBatchRequest, GateRequest
from taugate.service.api.schemas import BatchRequest
from taugate.service.errors import ApiError, Invalid
from taugate.service.http import bodies
from taugate.service.http.bodies import read_json, read_large_json

LISTS: dict[type[BaseModel], Sequence[str]] = {
    GateRequest: ("results",),
    GateBatchRequest: ("queries", "results"),
    BatchRequest: ("queries",),
}


def results(number: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"id": f'd"[{place}\\', "score": 1 - place / (number + 1), **fields} for place in range(number)]


def outcomes(body: object, model: type[BaseModel]) -> list[object]:
    """What a body is read as, or the error: whole, and in pieces."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    read: list[object] = []
    for attempt in (
        lambda: read_json(content, model),
        lambda: asyncio.run(read_large_json(content, model, LISTS[model])),
    ):
        try:
            read.append(attempt())
        except ApiError as error:
            read.append((error.code, str(error)))
    return read


@pytest.mark.parametrize(
    ("body", "model"),
    [
        ({"query": "a [query", "results": results(10_000, scores={"a": 0.5, "b": None}), "k": 3}, GateRequest),
        ({"results": results(300, text='"lorem", \\"ipsum\\" [{' * 99)}, GateRequest),
        ({"queries": [{"query": f"{n}", "results": results(n)} for n in (0, 3000, 1, 10_000, 2)]}, GateBatchRequest),
        ({"queries": ["text, [", *({"query": "q", "vector": [0.5] * 3000} for _ in range(20))]}, BatchRequest),
    ],
    ids=["gate", "texts", "gate batch", "search batch"],
)
def test_pieces_are_read_as_the_whole(body: object, model: type[BaseModel]) -> None:
    whole, pieces = outcomes(body, model)
    assert isinstance(whole, model)
    assert pieces == whole


FEW, BAD = results(2), [*results(7000), {"id": "a", "score": "x"}, *results(2000)]
VALID = json.dumps({"results": results(5000)}).encode()


@pytest.mark.parametrize(
    ("body", "model"),
    [
        ({"results": BAD}, GateRequest),
        ({"queries": [{"results": FEW}, {"results": BAD}]}, GateBatchRequest),
        ({"queries": [{"results": FEW}, {"results": results(5000), "more": 1}]}, GateBatchRequest),
        ({"queries": ["a"] * 9000}, BatchRequest),
        (VALID[:-1] + b', "k": "3"}', GateRequest),
        (b'{"results": [' + b"[]," * 9000 + b"[]]}", GateRequest),
        (b'{"other": [' + b"[]," * 9000 + b"[]]}", GateRequest),
    ],
)
def test_fault_has_its_place_in_the_whole(body: object, model: type[BaseModel]) -> None:
    whole, pieces = outcomes(body, model)
    assert pieces == whole


@pytest.mark.parametrize(
    "body",
    [VALID[:-1], VALID + b"]", VALID[:-2] + b",]}", VALID.replace(b"}, {", b"}, , {", 1), b"[" * 9000],
    ids=["open", "closed twice", "comma", "nothing", "deep"],
)
def test_invalid_json_is_bad_json(body: bytes) -> None:
    assert [outcome[0] for outcome in outcomes(body, GateRequest)] == ["bad_json"] * 2  # type: ignore[index]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"results": [{"id": "a", "score": 1, "scores": {f"n{n}": 0 for n in range(40_000)}}]}, "results.0"),
        ({"results": [*results(3), {"id": "a", "score": 1, "payload": [[]] * 9000}]}, "results.3"),
        ({"queries": [{"results": FEW}, {"results": [*FEW, {"x": [0] * 9000}]}]}, "queries.1.results.2"),
        ({"queries": ["a", {"query": "b", "filter": {"x": [[]] * 20_000}}]}, "queries.1"),
        ({"results": [], **{f"x{number}": 0 for number in range(9000)}}, "results"),
    ],
    ids=["names", "payload", "in a batch", "filter", "outside"],
)
def test_too_many_values_are_refused_before_objects_are_built(
    body: dict[str, Any], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "read_json", None)
    model = GateRequest if "results" in body else GateBatchRequest if "results" in place else BatchRequest
    with pytest.raises(Invalid, match=f"^{place}: has "):
        asyncio.run(read_large_json(json.dumps(body).encode(), model, LISTS[model]))


def test_event_loop_runs_between_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, turns = [], [0]

    def read(body: bytes, *more: Any) -> BaseModel:
        sizes.append(body.count(b","))
        return read_json(body, *more)

    async def others() -> None:
        while True:
            turns.append(len(sizes))
            await asyncio.sleep(0)

    async def scenario() -> None:
        working = asyncio.create_task(others())
        body = json.dumps({"results": results(10_000, scores={"a": 1, "b": 2})}).encode()
        await read_large_json(body, GateRequest, LISTS[GateRequest])
        working.cancel()

    monkeypatch.setattr(bodies, "read_json", read)
    asyncio.run(scenario())
    assert len(sizes) > 10
    assert max(sizes) <= bodies._PIECE_VALUES
    assert {*range(1, len(sizes))} <= {*turns}, "after each piece"
