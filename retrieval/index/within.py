"""The documents that a search is confined to."""

from functools import cached_property
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray


class Within:
    """Some of the N documents of an index; mask: (N,) bool."""

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        self._mask = mask
        self.positions = np.flatnonzero(mask)

    def __len__(self) -> int:
        return len(self.positions)

    @cached_property
    def selector(self) -> Any:  # noqa: ANN401 (faiss has no types)
        """The same for FAISS, one bit a document."""
        return faiss.IDSelectorBitmap(np.packbits(self._mask, bitorder="little"))
