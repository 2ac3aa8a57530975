"""Whether the inverted lists of an index, as FAISS read them, hold every document once."""

from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray


def hold_every_document(index: Any) -> bool:  # noqa: ANN401 (faiss has no types)
    """And whether the map from documents to lists, where there is one, says where: FAISS believes both in a search."""
    lists, count = index.invlists, int(index.ntotal)
    if lists.compute_ntotal() != count:  # the lists are no longer than their file, and the count is what it says
        return False
    places = np.full(count, -1, dtype=np.int64)
    for number in range(index.nlist):
        positions = _positions(lists, number)
        if ((positions < 0) | (positions >= count)).any():
            return False
        places[positions] = (number << 32) | np.arange(len(positions))  # as FAISS writes it in its map
    mapped = faiss.vector_to_array(index.direct_map.array)
    return bool((places >= 0).all()) and (not len(mapped) or _same(mapped, places))


def _positions(lists: Any, number: int) -> NDArray[np.int64]:  # noqa: ANN401
    size = lists.list_size(number)
    found: NDArray[np.int64] = faiss.rev_swig_ptr(lists.get_ids(number), size) if size else np.empty(0, np.int64)
    return found


def _same(mapped: NDArray[np.int64], places: NDArray[np.int64]) -> bool:
    return mapped.shape == places.shape and bool((mapped == places).all())
