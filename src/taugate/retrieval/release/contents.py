"""The names of the files of a release. The class of each kind of content knows its own, and writes and opens them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from taugate.errors import ReleaseError

_NONE: frozenset[str] = frozenset()


class FileNames(NamedTuple):
    """The names of the files of one kind of content, by a manifest.

    Attributes:
        required: Files that must be there.
        optional: Files that may be there.
        recorded: Optional files that must be there, or must not, by the records of the manifest.
    """

    required: frozenset[str] = _NONE
    optional: frozenset[str] = _NONE
    recorded: Mapping[str, bool] = {}


@dataclass(frozen=True)
class ReleaseFolder:
    """One kind of content; a subclass has `names`, `write` and `open`.

    Attributes:
        path: Folder of the files: of the release, or one in it.
    """

    path: Path


def disagreement(release: Path, name: str) -> ReleaseError:
    """Return the error for a file or folder that the manifest has and the release has not, or the other way round."""
    return ReleaseError(f"{release}: the manifest and its files disagree on {name}; calibrate again")
