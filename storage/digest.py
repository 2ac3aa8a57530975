"""SHA-256 of files and of JSON values: the identity of everything that is kept."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson


def sha256_file(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_files(folder: Path, names: Iterable[str]) -> str:
    """Hex digest of several files of a folder, their names included."""
    return sha256_json({name: sha256_file(folder / name) for name in names})


def sha256_json(value: Any) -> str:  # noqa: ANN401 (any JSON value)
    """Hex digest of a JSON value: compact, keys sorted, shortest form of every number."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
