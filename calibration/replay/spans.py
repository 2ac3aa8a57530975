"""The times in which queries came, without the gaps in which none came for long."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from retrieval.drift.effect import Float64

_USUAL = 10  # times as long as a block usually takes
_SHARE = 1 / 50  # of the whole: a gap that can be seen on a drawing


class Span(NamedTuple):
    """Unix times."""

    start: float
    end: float


def spans(at: Float64, blocks: Sequence[Span]) -> list[Span]:
    """at: when things came, (n,) in order, n ≥ 1; blocks: that they filled, of which there may be none."""
    whole = Span(float(at[0]), float(at[-1]))
    usual = float(np.median([block.end - block.start for block in blocks or [whole]]))
    cuts = np.flatnonzero(np.diff(at) > max(_USUAL * usual, _SHARE * (whole.end - whole.start)))
    starts, ends = at[np.append(0, cuts + 1)], at[np.append(cuts, len(at) - 1)]
    return [Span(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
