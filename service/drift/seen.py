"""What requests leave behind for the watch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from taugate.drift.observations import Judgements, Observations, judgement_key, query_keys


class Seen(NamedTuple):
    """One reply; a tuple, as one is made for each request.

    at: Unix time in seconds; text: of the query; observed, shown: see Reply.
    """

    at: float
    query_id: str
    text: str
    observed: bytes
    shown: bytes


@dataclass(frozen=True, slots=True)
class Judged:
    """A document that was shown in a reply and judged relevant; similarity: with the query."""

    at: float
    query_id: str
    document_id: str
    similarity: float


def comparable(seen: Sequence[Seen], k: int, random: int) -> list[Seen]:
    """Those that can be compared with the calibration: searched without a filter, and kept whole by the cache."""
    size = 4 * (1 + k + random)
    return [each for each in seen if len(each.observed) == size]


def observations(seen: Sequence[Seen], k: int, random: int) -> Observations:
    """As columns; all of them `comparable`. random: how many random documents there are of each."""
    rows = np.frombuffer(b"".join(each.observed for each in seen), dtype=np.float32).reshape(-1, 1 + k + random)
    # A clock may be set back: what came later is not earlier for that.
    at = np.maximum.accumulate(np.array([each.at for each in seen], dtype=np.float64))
    keys = query_keys(each.text for each in seen)
    return Observations(at, keys, rows[:, 1 : 1 + k], rows[:, 1 + k :], rows[:, 0])


def joined(parts: Sequence[Observations]) -> Observations:
    """All of them, in their order; one part at least."""
    together = Observations.joined(parts)
    return replace(together, at=np.maximum.accumulate(together.at))


def judgements(judged: Sequence[Judged]) -> Judgements:
    """As columns."""
    at = np.maximum.accumulate(np.array([each.at for each in judged], dtype=np.float64))
    keys = np.array([judgement_key(each.document_id, each.similarity) for each in judged], dtype=np.uint64)
    return Judgements(at, keys, np.array([each.similarity for each in judged], dtype=np.float32))
