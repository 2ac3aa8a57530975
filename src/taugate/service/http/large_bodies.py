"""Large bodies: divided into small ones, so that no other request waits for the whole of one.

Brackets and commas outside of strings show where the items of a list end, before an object is made of any of them. The
small bodies are the whole one with some of its items each, so they are validated as any other body is.
"""

import asyncio
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from taugate.service.errors import BadJson, Invalid
from taugate.service.http.bodies import read_json

MAX_SMALL_BYTES = 16 << 10  # of a body that takes at most some milliseconds, whatever is in it
# Values of a piece, which takes about a millisecond, and of an item that is alone in one: a query may have a vector.
_PIECE_VALUES, _MAX_VALUES = 1 << 12, 1 << 14
_STEP, _OTHER = {b"[": 1, b"{": 1, b",": 0, b"]": -1, b"}": -1}, 2
_STEPS = np.array([_STEP.get(bytes([code]), _OTHER) for code in range(256)], dtype=np.int8)


async def read_large_json(body: bytes, model: type[BaseModel], lists: Sequence[str]) -> BaseModel:
    """Do the same as `read_json`, but let other requests run in between.

    Args:
        body: The body.
        model: Its model.
        lists: Name of the list that has most of the body, and of the list in each of its items, if there is one.

    Raises:
        BadJson, Invalid, TooLarge: As `read_json`; also Invalid if too much of the body is in none of these lists.
    """
    (first, place), *others = await asyncio.to_thread(lambda: [*_divide(body, lists)])
    whole = read_json(first, model, place)
    for piece, place in others:
        await asyncio.sleep(0)
        part = read_json(piece, model, place)
        items, more = getattr(whole, lists[0]), getattr(part, lists[0])
        if place[1]:  # more of the last item
            items, more = getattr(items[-1], lists[1]), getattr(more[0], lists[1])
        items.extend(more)
    return whole


def _divide(body: bytes, lists: Sequence[str], path: str = "") -> Iterator[tuple[bytes, Sequence[int]]]:
    """Yield bodies with some of the items of a body each, and the place of the first of these."""
    at, steps, depth = _structure(body)
    if len(at) <= _PIECE_VALUES:
        yield body, (0, 0)
        return
    first = int(np.argmax((depth == 2) & (steps == 1)))
    if depth[-1] != 0 or depth[first] != 2:
        raise BadJson(f"the body is not JSON, or has no list {path}{lists[0]}")
    last = first + int(np.argmax(depth[first:] < 2))
    if len(at) - (last - first) > _PIECE_VALUES:
        raise Invalid(f"{path}{lists[0]}: has little of the body; leave other fields out")
    cuts = np.append(first + np.flatnonzero((depth[first:last] == 2) & (steps[first:last] >= 0)), last)
    head, tail, start = body[: at[first] + 1], body[at[last] :], 0
    while start < len(cuts) - 1:
        stop = max(start + 1, int(np.searchsorted(cuts, cuts[start] + _PIECE_VALUES, "right")) - 1)
        items = body[at[cuts[start]] + 1 : at[cuts[stop]]]
        values, name = cuts[stop] - cuts[start], f"{path}{lists[0]}.{start}"
        if values > _PIECE_VALUES and len(lists) > 1:
            for piece, place in _divide(items, lists[1:], f"{name}."):
                yield head + piece + tail, (start, *place)
        elif values > (_MAX_VALUES if lists[0] == "queries" else _PIECE_VALUES):
            raise Invalid(f"{name}: has {values:,} values; leave out what is not needed")
        elif not items.strip():
            raise BadJson(f"the body is not JSON: {name} is missing")
        else:
            yield head + items + tail, (start, 0)
        start = stop


def _structure(body: bytes) -> tuple[NDArray[np.intp], NDArray[np.int8], NDArray[np.int32]]:
    """Return the place of each bracket and comma outside of strings, its step of nesting, and the depth after it."""
    codes = np.frombuffer(body.replace(rb"\\", b"__").replace(rb"\"", b"__"), dtype=np.uint8)
    quoted = np.bitwise_xor.accumulate((codes == ord('"')).view(np.uint8)).view(np.bool_)
    steps = np.where(quoted, np.int8(_OTHER), _STEPS[codes])
    at = np.flatnonzero(steps != _OTHER)
    return at, steps[at], np.cumsum(steps[at], dtype=np.int32)
