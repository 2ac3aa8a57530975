"""Calls the kernel of a folder with models, texts and buffers of random sizes: `hostile_calls.py FOLDER SEED CALLS`.

Run under AddressSanitizer and UBSan, which end the process at the first fault. NumPy would be slow under them.
"""

import importlib
import random
import sys
from array import array
from collections import Counter
from functools import partial
from types import ModuleType

BLOCK, PANEL, TOKENS = 64, 48, 3  # as in kernel.c
HUGE = [-1, 0, 1, 15, 63, 65, 1 << 16, (1 << 16) + 64, 1 << 24, 1 << 28, (1 << 31) - 1]


_EXPONENTS = b"\x3b\x3c\x3d\x3e" * 64  # of the numbers of `valid`, by a random byte


def product_bytes(precision: int, outputs: int, inputs: int) -> list[int]:
    """Sizes of the arrays of a product: weights and bias, and in int8 scales and factors."""
    n, k = -(-outputs // PANEL) * PANEL, -(-inputs // BLOCK) * BLOCK
    scales = [] if precision else [n * k // BLOCK * 4, 4 * k]
    return [n * k << precision, 4 * n, *scales]


def array_bytes(precision: int, tables: tuple[int, ...], hidden: int, inner: int, layers: int) -> list[int]:
    """Sizes of all arrays of a model, weights of products being of its precision and the others float32.

    `tables` are the numbers of words, positions and token types.
    """
    linear = partial(product_bytes, precision)
    layer = [*linear(3 * hidden, hidden), *linear(hidden, hidden), 8 * hidden]
    layer += [*linear(inner, hidden), *linear(hidden, inner), 8 * hidden]
    return [4 * rows * hidden for rows in (*tables, 2)] + layer * layers


def valid(rng: random.Random, size: int) -> bytes:
    """Bytes of float32 numbers between 0.004 and 0.25, which are also pairs of bfloat16, and weights in int8."""
    content = bytearray(size // 2 * 2)
    content[::2] = rng.randbytes(size // 2).replace(b"\0", b"\1")
    content[1::2] = rng.randbytes(size // 2).translate(_EXPONENTS)
    return bytes(content)


def call(rng: random.Random, kernel: ModuleType) -> str:
    """Make a model and encode with every path; return what came of it."""
    vocabulary, positions, heads, layers = (rng.randint(1, 9) for _ in range(4))
    types = rng.randint(1, 2)
    layers, hidden, inner = 1 + layers // 5, BLOCK * rng.randint(1, 3), BLOCK * rng.randint(1, 3)
    if rng.random() < 0.8:
        heads = rng.choice([count for count in range(1, 13) if hidden % (16 * count) == 0])
    finite = rng.random() < 0.5  # otherwise many numbers are NaN or infinite
    draw = partial(valid, rng) if finite else rng.randbytes
    precision = rng.randrange(3)
    arrays = [draw(size) for size in array_bytes(precision, (vocabulary, positions, types), hidden, inner, layers)]
    if rng.random() < 0.2:
        place = rng.randrange(len(arrays))
        arrays[place] = arrays[place][: rng.choice([0, 1, -1, -4])]
    if rng.random() < 0.1:
        arrays = arrays[: rng.randrange(len(arrays))] if rng.random() < 0.5 else [*arrays, b""]
    sizes = [precision, vocabulary, types, positions, hidden, inner, heads, layers, rng.randint(0, TOKENS)]
    if rng.random() < 0.3:
        sizes[rng.randrange(9)] = rng.choice(HUGE)
    try:
        model = kernel.model(*sizes, 1e-12 if finite else rng.choice([0.0, -1.0, float("nan")]), arrays)
    except (ValueError, MemoryError):
        return "no model"
    lengths = [rng.randint(1, positions) for _ in range(rng.randint(1, 20))]
    ids = [rng.randrange(vocabulary * types) for _ in range(sum(lengths))]
    ends = [sum(lengths[: place + 1]) for place in range(len(lengths))]
    if rng.random() < 0.3:
        for numbers in (ids, ends):
            numbers[rng.randrange(len(numbers))] = rng.choice([*HUGE, -(1 << 31)])
    if rng.random() < 0.1:
        del rng.choice([ids, ends])[-1:]
    missing = rng.choice([0] * 9 + [1])
    results, paths = [], len(kernel.paths(precision))
    for path in range(-1, paths + 1):
        vectors = bytearray(4 * hidden * len(ids if sizes[8] == TOKENS else ends) - missing)
        try:
            kernel.encode(model, array("i", ids), array("i", ends), vectors, path)
        except ValueError:
            continue
        results.append(bytes(vectors))
    if not results:
        return "no vectors"
    assert len(results) == paths
    assert not finite or len(set(results)) == 1, "paths differ"
    return "vectors"


def compare(rng: random.Random, kernel: ModuleType) -> str:
    """Compare a query with stored documents by every path; return what came of it."""
    blocks, tokens, documents = rng.randint(1, 3), PANEL * rng.randint(1, 2), rng.randint(1, 9)
    k = BLOCK * blocks
    offsets = [0]
    for _ in range(documents):
        offsets.append(offsets[-1] + rng.choice([0, 1, 2, 3, 5, 64, 65, 130]))
    rows = offsets[-1]
    positions = [rng.randrange(documents) for _ in range(rng.randint(1, 20))]
    inputs = [valid(rng, tokens * k), valid(rng, 4 * tokens * blocks), rng.randbytes(rows * k), valid(rng, 4 * rows)]
    if rng.random() < 0.3:
        numbers = rng.choice([offsets, positions])
        numbers[rng.randrange(len(numbers))] = rng.choice([*HUGE, -(1 << 31), 1 << 62])
    if rng.random() < 0.3:
        place = rng.randrange(4)
        inputs[place] = inputs[place][: rng.choice([0, 1, -1, -4])]
    size = rng.choice([k] * 9 + HUGE)
    missing = rng.choice([0] * 9 + [1])
    results, paths = [], len(kernel.paths(0))
    for path in range(-1, paths + 1):
        best = bytearray(4 * tokens * len(positions) - missing)
        try:
            kernel.largest_products(size, *inputs, array("q", offsets), array("q", positions), best, path)
        except (ValueError, MemoryError):
            continue
        results.append(bytes(best))
    assert len(results) in {0, paths}
    assert len(set(results)) <= 1, "paths differ"
    return "products" if results else "no products"


if __name__ == "__main__":
    folder, seed, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    sys.path.insert(0, folder)
    built = importlib.import_module("kernel")
    draws = random.Random(seed)  # noqa: S311 (the same calls in every run)
    sys.stdout.write(f"{dict(Counter(ask(draws, built) for ask in (call, compare) for _ in range(calls)))}\n")
