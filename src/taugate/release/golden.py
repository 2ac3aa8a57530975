"""Golden queries: calibration queries with their scores, to check that another machine returns the same scores."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from taugate.errors import ReleaseError
from taugate.storage.files import read_bounded

# Between the effect of another processor's order of sums (5e-7) and the smallest effect of int8 weights (1e-2):
# benchmarks/results/encoder.md has the measurements.
TOLERANCE = 1e-4
_MAX_BYTES = 64 << 20  # a thousand times what calibration writes


@dataclass(frozen=True, slots=True)
class GoldenQuery:
    """One calibration query with its answer."""

    text: str
    relevant: list[str]  # ids of its relevant documents and of their chunks in `documents`
    documents: list[str]  # ids of the passages of its top-K, best first
    scores: list[float]  # float32 similarities of these passages
    # Its vector of unit length if the release has no encoder, (d,) float32; else None, and not written.
    vector: list[float] | None = None


def write_golden(path: Path, queries: Sequence[GoldenQuery]) -> None:
    """Write golden queries, one JSON object per line; all have the same number of scores."""
    records = [asdict(query) for query in queries]
    for record in records:
        if record["vector"] is None:
            del record["vector"]
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))


def read_golden(path: Path) -> list[GoldenQuery]:
    """Read the file that `write_golden` wrote.

    Raises ReleaseError if it does not hold golden queries with equal numbers of scores.
    """
    try:
        queries = [_parse(orjson.loads(line)) for line in read_bounded(path, _MAX_BYTES).splitlines()]
        with np.errstate(over="ignore"):  # an overflow gives infinity, which is refused below
            scores = np.array([query.scores for query in queries], dtype=np.float32)
    except (OSError, ValueError, TypeError) as error:
        raise ReleaseError(f"{path}: does not hold golden queries; calibrate again") from error
    if scores.ndim != 2 or not scores.size or not np.isfinite(scores).all():
        raise ReleaseError(f"{path}: does not hold golden queries with scores; calibrate again")
    return queries


def _parse(record: dict[str, Any]) -> GoldenQuery:
    """Parse one record and check its types, because an encoder accepts only texts."""
    query = GoldenQuery(**record)
    ids = (query.relevant, query.documents)
    if not isinstance(query.text, str) or not all(isinstance(field, list) for field in (*ids, query.scores)):
        raise ValueError("not a golden query")
    if not all(isinstance(name, str) for names in ids for name in names):
        raise ValueError("ids that are not strings")
    if not all(type(number) in (int, float) for number in [*query.scores, *(query.vector or [])]):
        raise ValueError("scores or vectors that are not numbers")
    return query
