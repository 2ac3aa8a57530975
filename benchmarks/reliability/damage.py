"""Damage releases: flip bits, cut or swap files, and falsify manifests, arrays and graphs.

Every function makes one change at random; `name` is that of the file which a message has to say.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from benchmarks.reliability.forge import Change, forged, tampered
from taugate.retrieval.release.layout import MANIFEST, content_digest

Make = Callable[[Path, Path, Change], Path]
# Values that a reader of JSON may meet where it expects another.
STRANGE: list[Any] = [
    None,
    "",
    "x" * 5000,
    "-1",
    [],
    [[]],
    {},
    {"a": {}},
    True,
    1e308,
    -1,
    2**63,
    0.5,
    "\u0000",
    "../x",
]


@dataclass(frozen=True)
class Damage:
    """One change: `names` are the files of which the message has to say one."""

    kind: str
    make: Make
    change: Change
    names: frozenset[str]

    def to(self, release: Path, folder: Path) -> Path:
        """Write a damaged copy into an empty folder."""
        return self.make(release, folder, self.change)


def flipped(release: Path, rng: random.Random) -> Damage:
    """Flip one bit of one file; of a manifest, in what its id covers: times, parent and gains are for people to read."""
    name = rng.choice(files(release))
    content = (release / name).read_bytes()
    damaged = _flip(content, rng)
    while name == MANIFEST and _covered(damaged) == _covered(content):
        damaged = _flip(content, rng)

    def change(copy: Path, _: dict[str, Any]) -> None:
        (copy / name).write_bytes(damaged)

    return Damage("a bit flipped", tampered, change, frozenset({name}))


def _flip(content: bytes, rng: random.Random) -> bytes:
    place, damaged = rng.randrange(len(content) * 8), bytearray(content)
    damaged[place // 8] ^= 1 << place % 8
    return bytes(damaged)


def _covered(manifest: bytes) -> tuple[str, str] | None:
    """Return a manifest's digest and id, None where it has none any more."""
    try:
        raw = orjson.loads(manifest)
        return content_digest(raw), raw["release_id"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def truncated(release: Path, rng: random.Random) -> Damage:
    """Cut a file short, empty it, remove it or make it longer."""
    name = rng.choice(files(release))
    size = (release / name).stat().st_size
    # Less its last line feed, a manifest is the same.
    left = rng.choice([None, 0, size - 2, rng.randrange(size - 1), size + 1, size * 2])

    def change(copy: Path, _: dict[str, Any]) -> None:
        if left is None:
            (copy / name).unlink()
        else:
            with (copy / name).open("r+b") as file:
                file.truncate(left)

    return Damage("a file cut short, longer or gone", tampered, change, frozenset({name}))


def swapped(release: Path, rng: random.Random) -> Damage:
    """Two files in each other's place; with digests that fit, the parsers meet each other's files."""
    # The report is for people: nothing reads it, so that anything may stand in its place.
    names = [name for name in files(release) if name not in (MANIFEST, "report.html")]
    one, other = rng.sample(names, 2)

    def change(copy: Path, _: dict[str, Any]) -> None:
        contents = (copy / one).read_bytes(), (copy / other).read_bytes()
        (copy / other).write_bytes(contents[0])
        (copy / one).write_bytes(contents[1])

    make = rng.choice([tampered, forged])
    return Damage("two files swapped", make, change, frozenset({one, other}))


def mistyped(release: Path, rng: random.Random) -> Damage:
    """Replace a value of the manifest by one of another JSON type, or remove its key; digest and id fit."""
    manifest = json.loads((release / MANIFEST).read_bytes())
    # What is null may be something else; digests of files are made to fit.
    there = [path for path in paths(manifest) if value_at(manifest, path) is not None]
    fitting = [path for path in there if path == ("encoder", "sha256") or (path[0] == "files" and len(path) == 3)]
    path = rng.choice([path for path in there if path not in fitting])
    old = value_at(manifest, path)
    value = rng.choice([value for value in STRANGE if value is not None and kind_of(value) != kind_of(old)])

    def change(_: Path, raw: dict[str, Any]) -> None:
        value_at(raw, path[:-1])[path[-1]] = value

    return Damage("a value of another type in the manifest", forged, change, frozenset({MANIFEST}))


def files(release: Path) -> list[str]:
    """Every file of a release by its name in it."""
    return sorted(path.relative_to(release).as_posix() for path in release.rglob("*") if path.is_file())


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:  # noqa: ANN401 (any JSON value)
    """Ways to every value in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way for key, each in items for way in ((*prefix, key), *paths(each, (*prefix, key)))]


def value_at(value: Any, path: tuple[Any, ...]) -> Any:  # noqa: ANN401
    """Return the value at a path."""
    for key in path:
        value = value[key]
    return value


def kind_of(value: Any) -> str:  # noqa: ANN401
    """JSON's type; a number is a number."""
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
