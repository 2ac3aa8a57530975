"""Falsified files within digests that fit: what somebody with write access can make where nothing is signed."""

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from safetensors.numpy import load, save

from benchmarks.reliability.damage import STRANGE, Damage, files, paths, value_at
from benchmarks.reliability.forge import forged

_SIZES = [0, 1, -1, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, 1000, 503, 504]
_NUMBERS = [np.nan, np.inf, -np.inf, 1e38, -1.0, 0.0]


def forge_file(release: Path, rng: random.Random) -> Damage:
    """Choose a file of any kind and a way to falsify it."""
    name = rng.choice([name for name in files(release) if name not in ("manifest.json", "report.html")])
    suffix = name.rpartition(".")[2]
    ways: list[Callable[[bytes, random.Random], bytes]] = [_noise, _size]
    if suffix == "safetensors":
        ways += [_header, _array, _array]
    elif suffix in ("json", "jsonl"):
        ways += [_value, _nested]
    way, seed = rng.choice(ways), rng.random()

    def change(copy: Path, _: dict[str, Any]) -> None:
        path = copy / name
        path.write_bytes(way(path.read_bytes(), random.Random(seed)))  # noqa: S311 (nothing secret)

    return Damage(f"forged, {suffix}: {way.__name__.strip('_')}", forged, change, frozenset({name}))


def _noise(content: bytes, rng: random.Random) -> bytes:
    """Change some bytes, more often near the beginning, where headers are."""
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 4, 32])):
        changed[rng.randrange(rng.choice([min(200, len(changed)), len(changed)]))] = rng.randrange(256)
    return bytes(changed)


def _size(content: bytes, rng: random.Random) -> bytes:
    """Change a number of 4 or 8 bytes, such as a count or a length."""
    changed, width = bytearray(content), rng.choice([4, 8])
    place = rng.randrange(max(1, min(len(changed), rng.choice([120, 4000, len(changed)])) - width))
    number = rng.choice(_SIZES) & (2 ** (8 * width) - 1)
    changed[place : place + width] = number.to_bytes(width, "little")
    return bytes(changed)


def _header(content: bytes, rng: random.Random) -> bytes:
    """safetensors: a header that says other types, shapes or places."""
    length = struct.unpack("<Q", content[:8])[0]
    header = orjson.loads(content[8 : 8 + length])
    record = header[rng.choice([name for name in header if name != "__metadata__"])]
    match rng.randrange(4):
        case 0:
            record["dtype"] = rng.choice(["BF16", "F8_E4M3", "I8", "F64", "BOOL", "x", 1])
        case 1:
            record["shape"] = rng.choice([[2**40], [-1], [0], [2**32, 2**32], [], [[1]], "x", [1] * 200])
        case 2:
            record["data_offsets"] = rng.choice([[0, 2**60], [2**63, 2**64 - 1], [5, 1], [0], [0, 8], "x"])
        case _:
            header["more"] = dict(record)
    changed = orjson.dumps(header)
    said = rng.choice([len(changed), len(changed), 2**62, 0])
    return struct.pack("<Q", said) + changed + content[8 + length :]


def _array(content: bytes, rng: random.Random) -> bytes:
    """safetensors: an array of another shape or type, or with numbers that nobody can reckon with."""
    arrays = load(content)
    name = rng.choice(sorted(arrays))
    array = arrays[name].copy()
    match rng.randrange(5):
        case 0:
            array = array[: rng.randrange(len(array) + 1)]
        case 1:
            with np.errstate(over="ignore"):
                array = array.astype(rng.choice([np.float16, np.float64, np.int8, np.uint64, np.bool_]))
        case 2:
            array = array.reshape(-1, 1)
        case 3 if array.dtype.kind == "f" and array.size:
            array.reshape(-1)[rng.randrange(array.size)] = rng.choice(_NUMBERS)
        case _ if array.size and array.dtype.kind in "iu":
            limits = np.iinfo(array.dtype)
            array.reshape(-1)[rng.randrange(array.size)] = rng.choice([limits.min, limits.max, 0])
        case _:
            array = array[::-1]
    return save(arrays | {name: np.ascontiguousarray(array)})


def _value(content: bytes, rng: random.Random) -> bytes:
    """JSON, or one of its lines: a value is another, or gone."""
    lines = content.splitlines()
    row = rng.randrange(len(lines)) if content.endswith(b"}\n") and len(lines) > 1 else None
    value = orjson.loads(content if row is None else lines[row])
    way = rng.choice(paths(value))
    if rng.random() < 0.2:
        del value_at(value, way[:-1])[way[-1]]
    else:
        value_at(value, way[:-1])[way[-1]] = rng.choice(STRANGE)
    changed = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    return changed if row is None else b"\n".join([*lines[:row], changed, *lines[row + 1 :]]) + b"\n"


def _nested(_: bytes, rng: random.Random) -> bytes:
    """JSON that is nothing but brackets, or numbers without end."""
    depth = rng.choice([100, 5_000, 500_000])
    return rng.choice([b"[" * depth, b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth, b"9" * depth])
