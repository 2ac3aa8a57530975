"""Reads the vectors in the reply of an endpoint, with memory for these vectors and little more.

JSON of a hostile server takes up to 30 times its size in memory, as a list of empty objects does. So the arrays of
numbers are taken out of the text one by one, each of the expected length, and only the small rest is parsed as a whole.
"""

import re
from typing import Any

import numpy as np
import orjson

from taugate.retrieval.encoder.endpoint_record import Dialect
from taugate.retrieval.vectors.similarity import Float32

MAX_DIMENSION = 1 << 16  # as of any encoder
_NUMBER_BYTES = 32  # of a number in JSON: at most 24 characters in double precision, a comma and spaces
_OUTLINE_BYTES = 16 << 10  # of everything else in a reply, and
_ENTRY_BYTES = 256  # of the object around a vector
_ARRAY = re.compile(rb'\[([^\[\]{}"]+)\]')
_NOT_FINITE = re.compile(rb"[+-]?(?:nan|inf(?:inity)?)", re.IGNORECASE)


def max_reply_bytes(texts: int, dimension: int) -> int:
    """Return the size of the largest valid reply, in bytes.

    Args:
        texts: Number of texts.
        dimension: Length of a vector.
    """
    return texts * (dimension * _NUMBER_BYTES + _ENTRY_BYTES) + _OUTLINE_BYTES


def read_vectors(dialect: Dialect, content: bytes, texts: int, dimension: int | None) -> Float32:
    """Return the vectors in a reply as unit vectors, (texts, dimension) float32, in the order of the texts.

    Args:
        dialect: Dialect of the endpoint.
        content: The reply.
        texts: Number of texts that were sent.
        dimension: Length of a vector; None if it is not known yet.

    Raises:
        orjson.JSONDecodeError: If the reply is not JSON.
        ValueError: If it has other vectors than it should, with a reason that continues "as …".
        LookupError: If it is other JSON, like TypeError.
    """
    vectors: list[Float32] = []

    def keep(array: re.Match[bytes]) -> bytes:
        if len(vectors) == texts:
            raise ValueError(f"it has more than {texts} vectors")
        length = len(vectors[0]) if vectors else dimension
        vectors.append(_unit_vector(array[1], len(vectors), length))
        return b"%d" % (len(vectors) - 1)

    outline = _ARRAY.sub(keep, content)
    if len(outline) > _OUTLINE_BYTES + texts * _ENTRY_BYTES:
        raise ValueError("most of it is not vectors")
    parsed: Any = orjson.loads(outline)
    if dialect == "openai":
        # Some servers leave the index out, and keep the order.
        entries = {
            int(place if entry.get("index") is None else entry["index"]): int(entry["embedding"])
            for place, entry in enumerate(parsed["data"])
        }
        if len(vectors) == texts and sorted(entries) != [*range(texts)]:
            raise ValueError(f"its indices are not 0 to {texts - 1}")
        places = [entries[number] for number in sorted(entries)]
    else:
        places = [int(place) for place in iter(parsed)]
    if len(vectors) != texts or len(places) != texts:
        raise ValueError(f"it has {len(vectors)} vectors for {texts} texts")
    return np.stack([vectors[place] for place in places])


def _unit_vector(numbers: bytes, place: int, dimension: int | None) -> Float32:
    if numbers.count(b",") >= MAX_DIMENSION:
        raise ValueError(f"vector {place} has more than {MAX_DIMENSION:,} numbers")
    values = orjson.loads(b"[" + _NOT_FINITE.sub(b"null", numbers) + b"]")
    if dimension is not None and len(values) != dimension:
        raise ValueError(f"vector {place} has {len(values)} numbers, not {dimension}")
    vector = np.array(values, dtype=np.float64)  # NaN for null
    if not np.isfinite(vector).all():
        raise ValueError(f"vector {place} has NaN or infinity")
    if not vector.any():
        raise ValueError(f"vector {place} is zero")
    vector /= np.abs(vector).max()  # so that no square overflows
    unit: Float32 = (vector / np.linalg.norm(vector)).astype(np.float32)
    return unit
