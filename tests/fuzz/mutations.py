"""Mutations of inputs without a fuzzer, the same in every run, for CI."""

import random
import re
from collections.abc import Iterator, Sequence

_NUMBERS = [b"-1", b"0", b"1e999", b"9" * 30, b"0.5", b"null", b"true", b"[]", b"{}", b'""', b"NaN", b'"\\ud800"']
_MAX_BYTES = 1 << 16
_BEFORE_VALUE, _AFTER_VALUE = re.compile(rb"[:,\[]"), re.compile(rb"[,\]}\n]")


def mutations(seeds: Sequence[bytes], words: Sequence[bytes], count: int) -> Iterator[bytes]:
    """Yield the seeds, prefixes of them, and `count` mutations."""
    rng = random.Random(0)  # noqa: S311 (nothing secret)
    yield from (b"", b"\x00", b"{}", b"[]", b"null", *seeds)
    for seed in seeds:
        yield from (seed[: len(seed) * part // 16] for part in range(16))
        yield seed + seed
    for _ in range(count):
        yield mutated(rng.choice(seeds), words, rng)[:_MAX_BYTES]


def mutated(content: bytes, words: Sequence[bytes], rng: random.Random) -> bytes:
    """Return an input with one to four changes."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _change(changed, rng, [*words, *_NUMBERS])
    return bytes(changed)


def _change(content: bytearray, rng: random.Random, words: Sequence[bytes]) -> None:
    """Change a bit or a byte, insert a word, replace a JSON value, or delete or double a part."""
    place = rng.randrange(len(content) + 1)
    length = rng.choice((1, 2, 4, 8, 32))
    kind = rng.randrange(6)
    if kind == 0 and content:
        content[place % len(content)] ^= 1 << rng.randrange(8)
    elif kind == 1 and content:
        content[place % len(content)] = rng.choice((0, 1, 9, 10, 34, 44, 58, 91, 123, 127, 128, 255))
    elif kind == 2:
        content[place : place + length] = rng.choice(words)
    elif kind == 3:
        del content[place : place + length]
    elif kind == 4:
        content[place:place] = content[place : place + length]
    else:
        _replace_value(content, rng, words)


def _replace_value(content: bytearray, rng: random.Random, words: Sequence[bytes]) -> None:
    """Replace the text between a colon or comma and the next comma or bracket."""
    starts = [match.end() for match in _BEFORE_VALUE.finditer(content, 0, 4096)]
    if not starts:
        return
    start = rng.choice(starts)
    found = _AFTER_VALUE.search(content, start)
    content[start : found.start() if found else len(content)] = rng.choice(words)
