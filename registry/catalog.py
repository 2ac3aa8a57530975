"""Which releases a directory holds, and which of them is current or shadow. Reading takes no lock."""

import os
from pathlib import Path
from typing import Any

import orjson

from taugate.errors import ReleaseError
from taugate.retrieval.release.layout import CURRENT, MANIFEST, MANIFEST_BYTES, POINTER_BYTES, SHADOW, is_release_id
from taugate.retrieval.release.records import State
from taugate.storage.files import read_plain


def release_ids(releases: Path) -> list[str]:
    """Ids of all releases, oldest first. What does not carry a release's name is not one."""
    if not releases.is_dir():
        raise ReleaseError(f"{releases}: no such directory; `taugate calibrate DATA --releases {releases}` makes it")
    return sorted(entry.name for entry in releases.iterdir() if is_release_id(entry.name) and entry.is_dir())


def current_id(releases: Path) -> str | None:
    """The promoted release's id, or None before the first promotion. Raises ReleaseError when it names none."""
    return _named(releases, CURRENT, "promote one that is")


def shadow_id(releases: Path) -> str | None:
    """The id of the release to be tried beside the current one, or None. Raises ReleaseError when it names none."""
    return _named(releases, SHADOW, "name one that is with `taugate release shadow`, or give --none")


def pointed_id(releases: Path, pointer: str) -> str | None:
    """What a pointer says, whether there is such a release or not; None where it says nothing of that form."""
    try:
        name = read_plain(releases / pointer, POINTER_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return name if is_release_id(name) else None


def _named(releases: Path, pointer: str, remedy: str) -> str | None:
    path = releases / pointer
    try:
        name = read_plain(path, POINTER_BYTES).decode("ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ReleaseError(f"{path}: cannot be read as one line with a release id; {remedy}") from error
    if is_release_id(name) and (releases / name / MANIFEST).is_file():
        return name
    if pointed_id(releases, pointer) not in {None, name}:  # moved meanwhile, and what it named before was pruned
        return _named(releases, pointer, remedy)
    raise ReleaseError(f"{path}: names {name!r}, which is no release in {releases}; {remedy}")


def find(releases: Path, name: str | None = None) -> Path:
    """Folder of a release; `None` is the current one. Raises ReleaseError when there is no such release."""
    if name is None:
        name = current_id(releases)
        if name is None:
            raise ReleaseError(
                f"{releases}: no release is current; run `taugate calibrate DATA --releases {releases}` first"
            )
    elif not is_release_id(name) or not (releases / name / MANIFEST).is_file():
        raise ReleaseError(f"{releases}: holds no release {name!r}; `taugate release list` shows those it has")
    return releases / name


def sync_folder(folder: Path) -> None:
    """Make renames and new names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def parent(releases: Path, name: str | None) -> str | None:
    """The release that was current when this one was written; None where that cannot be said."""
    found = _manifest(releases, name).get("parent")
    return found if isinstance(found, str) and is_release_id(found) else None


def erased_from(releases: Path, name: str | None) -> str | None:
    """The release that this one was made of by an erasure; None where there was none, or that cannot be said."""
    record = _manifest(releases, name).get("erasure")
    found = record.get("release") if isinstance(record, dict) else None
    return found if isinstance(found, str) and is_release_id(found) else None


def encoder(releases: Path, name: str | None) -> dict[str, Any]:
    """The record of a release's float32 encoder, empty where that cannot be said."""
    manifest = _manifest(releases, name)
    found = manifest.get("float32_encoder") or manifest.get("encoder")
    return found if isinstance(found, dict) else {}


def state(releases: Path, name: str | None) -> State | None:
    """Whether a release is calibrated, as one is that says nothing of it; None where there is none that can be read."""
    manifest = _manifest(releases, name)
    if not manifest:
        return None
    found = manifest.get("calibration")
    return "provisional" if isinstance(found, dict) and found.get("state") == "provisional" else "calibrated"


def _manifest(releases: Path, name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    try:
        raw = orjson.loads(read_plain(releases / name / MANIFEST, MANIFEST_BYTES))
    except (OSError, orjson.JSONDecodeError):
        return {}
    return raw if isinstance(raw, dict) else {}
