"""Products in int8 have the same bits by every path, for odd sizes and for the largest sums."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from taugate.retrieval.encoder import bert

kernel = pytest.importorskip("taugate_kernel.kernel", reason="needs a compiler at installation")
INT8 = bert.PRECISIONS["int8"]
PATHS = kernel.paths(INT8)
WORDS, POSITIONS = 40, 12
LENGTHS = [*range(1, POSITIONS + 1)]  # of texts: all numbers of rows that a tile has
Arrays = list[NDArray[Any]]


def floats(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return rng.standard_normal(shape).astype(np.float32)


def linear(rng: np.random.Generator, outputs: int, inputs: int, *, extreme: bool) -> Arrays:
    """A product's arrays as kernel.c reads them; `extreme` has no weight but -127 and 127."""
    weight = rng.integers(-127, 128, size=(outputs, inputs)).astype(np.int8)
    if extreme:
        weight = np.where(weight < 0, np.int8(-127), np.int8(127))
    padding = -outputs % 48
    scale = np.abs(floats(rng, outputs, inputs // bert.BLOCK)) / 2000
    smooth = np.ones(inputs, np.float32) if extreme else 1 + np.abs(floats(rng, inputs))
    return [bert.panels(weight), np.pad(floats(rng, outputs), (0, padding)), bert.scale_panels(scale), smooth]


def model(rng: np.random.Generator, hidden: int, inner: int, heads: int, *, extreme: bool) -> object:
    """A random model of two layers; `extreme` starts from words of which every number rounds to -127 or 127."""
    words = floats(rng, WORDS, hidden)
    if extreme:
        words = rng.permuted(np.tile(np.repeat(np.float32([-1, 1]), hidden // 2), (WORDS, 1)), axis=1)
    places = floats(rng, POSITIONS, hidden) * (not extreme)
    norm = np.stack([np.ones(hidden, np.float32), np.zeros(hidden, np.float32)])
    arrays = [words, places, np.zeros((1, hidden), np.float32), norm]
    for _ in range(2):
        for outputs, inputs, ends in ((3 * hidden, hidden, False), (hidden, hidden, True)):
            arrays += [*linear(rng, outputs, inputs, extreme=extreme), *([norm] if ends else [])]
        for outputs, inputs, ends in ((inner, hidden, False), (hidden, inner, True)):
            arrays += [*linear(rng, outputs, inputs, extreme=extreme), *([norm] if ends else [])]
    sizes = WORDS, 1, POSITIONS, hidden, inner, heads, 2, bert.TOKENS
    return kernel.model(INT8, *sizes, 1e-12, arrays)


def vectors(read: object, hidden: int, ids: NDArray[np.int32], lengths: list[int], path: str) -> bytes:
    found = np.empty((len(ids), hidden), dtype=np.float32)
    kernel.encode(read, ids, np.cumsum(lengths, dtype=np.int32), found, PATHS.index(path))
    assert np.isfinite(found).all()
    return found.tobytes()


@pytest.mark.parametrize("path", PATHS[:-1])
@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize(
    ("hidden", "inner", "heads"),
    [(64, 64, 4), (128, 1088, 2), (192, 576, 3), (320, 512, 5)],  # outputs that fill no panel, inputs beyond a chunk
)
def test_path_returns_bits_of_plain_c_for_odd_sizes(
    path: str, extreme: bool, hidden: int, inner: int, heads: int
) -> None:
    rng = np.random.default_rng([hidden, inner, extreme])
    read = model(rng, hidden, inner, heads, extreme=extreme)
    for lengths in ([length] for length in LENGTHS[:6]):
        ids = rng.integers(0, WORDS, size=sum(lengths)).astype(np.int32)
        assert vectors(read, hidden, ids, lengths, path) == vectors(read, hidden, ids, lengths, "plain")


@pytest.mark.parametrize("path", PATHS)
def test_row_has_same_bits_in_tile_of_any_height(path: str) -> None:
    rng = np.random.default_rng(5)
    read, hidden = model(rng, 128, 1088, 2, extreme=False), 128
    texts = [rng.integers(0, WORDS, size=length).astype(np.int32) for length in LENGTHS]
    together = vectors(read, hidden, np.concatenate(texts), LENGTHS, path)
    alone = b"".join(vectors(read, hidden, ids, [len(ids)], path) for ids in texts)
    assert together == alone


@pytest.mark.parametrize("path", PATHS[:-1])
def test_largest_product_of_extreme_codes_has_bits_of_plain_c(path: str) -> None:
    rng = np.random.default_rng(6)
    k, outputs, rows = 192, 70, 150
    signs = rng.integers(0, 2, size=(outputs, k)).astype(np.int8) * np.int8(2) - np.int8(1)
    weights, scales = bert.panels(np.int8(127) * signs), bert.scale_panels(np.abs(floats(rng, outputs, k // 64)))
    codes = (np.int8(127) * signs[rng.integers(0, outputs, size=rows)]).astype(np.int8)  # some products are whole sums
    offsets, positions = np.array([0, 1, 8, 83, 150], dtype=np.int64), np.array([3, 0, 2, 1], dtype=np.int64)
    steps = np.abs(floats(rng, rows))
    found = {}
    for name in (path, "plain"):
        best = np.empty((len(positions), scales.shape[0] * 48), dtype=np.float32)
        kernel.largest_products(k, weights, scales, codes, steps, offsets, positions, best, PATHS.index(name))
        found[name] = best.tobytes()
    assert found[path] == found["plain"]
