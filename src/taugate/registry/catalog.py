"""What a releases directory holds: which releases there are, which is current or shadow, and what their manifests say.

Reading takes no lock, and nothing here is verified: whoever opens or promotes a release verifies it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from taugate.errors import ReleaseError
from taugate.retrieval.release.layout import CURRENT, MANIFEST, MANIFEST_BYTES, POINTER_BYTES, SHADOW, is_release_id
from taugate.retrieval.release.records import State
from taugate.storage.files import read_bounded

_MAX_LISTED = 5  # releases that an error lists: the newest are those that somebody looks for
_SHORTEST = 4  # characters that name a release, as in git: fewer may be a slip


def release_ids(releases: Path) -> list[str]:
    """Return the ids of all releases, oldest first; entries without a release's name are passed over.

    Args:
        releases: The releases directory.

    Raises:
        ReleaseError: Where there is no such directory.
    """
    if not releases.is_dir():
        raise ReleaseError(f"{releases}: no such directory; `taugate calibrate DATA --releases {releases}` makes it")
    return sorted(entry.name for entry in releases.iterdir() if is_release_id(entry.name) and entry.is_dir())


def find(releases: Path, name: str | None = None) -> Path:
    """Return the folder of a release, whose name is the release's id.

    Args:
        releases: The releases directory.
        name: The release's id, or the beginning of one as in `match_id`; None for the current release.

    Raises:
        ReleaseError: Where there is no such release, or more than one.
    """
    if name is None:
        name = current_id(releases)
        if name is None:
            raise ReleaseError(
                f"{releases}: no release is current; run `taugate calibrate DATA --releases {releases}` first"
            )
    elif not is_release_id(name):
        name = match_id(release_ids(releases), name, str(releases))
    if not (releases / name / MANIFEST).is_file():
        raise ReleaseError(f"{releases}: holds no release {name!r}; it has {newest(release_ids(releases))}")
    return releases / name


def match_id(ids: Sequence[str], text: str, where: str) -> str:
    """Return the one id that begins with a text, or whose digest does.

    Args:
        ids: Of all releases, oldest first.
        text: From a user, four characters or more.
        where: The place that has them, for the error.

    Raises:
        ReleaseError: , which names the candidates, where none or several fit, or the text is too short.
    """
    if len(text) < _SHORTEST:
        raise ReleaseError(
            f"{where}: {text!r} is too short; give at least {_SHORTEST} characters of an id; it has {newest(ids)}"
        )
    found = [name for name in ids if any(part.startswith(text) for part in (name, name.partition("-")[2]))]
    if len(found) == 1:
        return found[0]
    if found:
        raise ReleaseError(f"{where}: {text!r} fits {len(found)} releases: {newest(found)}; give more of the id")
    raise ReleaseError(f"{where}: holds no release {text!r}; it has {newest(ids)}")


def newest(ids: Sequence[str]) -> str:
    """List the newest releases in words, and how many older ones there are.

    Args:
        ids: Oldest first.
    """
    if not ids:
        return "no releases"
    older = len(ids) - _MAX_LISTED
    return ", ".join(ids[: -_MAX_LISTED - 1 : -1]) + (f" and {older} older" if older > 0 else "")


def current_id(releases: Path) -> str | None:
    """Return the id of the promoted release, or None before the first promotion.

    Args:
        releases: The releases directory.

    Raises:
        ReleaseError: Where the pointer names no release that is there.
    """
    return _existing_id(releases, CURRENT, "promote one that is")


def shadow_id(releases: Path) -> str | None:
    """Return the id of the release that is tried beside the current one, or None.

    Args:
        releases: The releases directory.

    Raises:
        ReleaseError: Where the pointer names no release that is there.
    """
    return _existing_id(releases, SHADOW, "name one that is with `taugate release shadow`, or give --none")


def pointed_id(releases: Path, pointer: str) -> str | None:
    """Return the id that a pointer names, whether there is such a release or not; None where it names none.

    Args:
        releases: The releases directory.
        pointer: CURRENT or SHADOW.
    """
    try:
        name = read_bounded(releases / pointer, POINTER_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return name if is_release_id(name) else None


def _existing_id(releases: Path, pointer: str, remedy: str) -> str | None:
    path = releases / pointer
    try:
        name = read_bounded(path, POINTER_BYTES).decode("ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ReleaseError(f"{path}: cannot be read as one line with a release id; {remedy}") from error
    if is_release_id(name) and (releases / name / MANIFEST).is_file():
        return name
    if pointed_id(releases, pointer) not in {None, name}:  # moved meanwhile, and what it named before was pruned
        return _existing_id(releases, pointer, remedy)
    raise ReleaseError(f"{path}: names {name!r}, which is not a release in {releases}; {remedy}")


def parent_of(releases: Path, name: str | None) -> str | None:
    """Return the id of the release that was current when a release was written.

    Args:
        releases: The releases directory.
        name: The release's id; for None, and where its manifest does not say, the answer is None.
    """
    found = unverified_manifest(releases, name).get("parent")
    return found if isinstance(found, str) and is_release_id(found) else None


def erasure_source(releases: Path, name: str | None) -> str | None:
    """Return the id of the release that a release was made of by erasing documents; None where it was not.

    Args:
        releases: The releases directory.
        name: The release's id, or None.
    """
    record = unverified_manifest(releases, name).get("erasure")
    found = record.get("release") if isinstance(record, dict) else None
    return found if isinstance(found, str) and is_release_id(found) else None


def encoder_record(releases: Path, name: str | None) -> dict[str, Any]:
    """Return the manifest's record of a release's float32 encoder of queries; empty where none can be read.

    Args:
        releases: The releases directory.
        name: The release's id, or None.
    """
    manifest = unverified_manifest(releases, name)
    found = manifest.get("float32_encoder") or manifest.get("query_encoder") or manifest.get("encoder")
    return found if isinstance(found, dict) else {}


def calibration_state(releases: Path, name: str | None) -> State | None:
    """Tell whether a release is calibrated or provisional; None where there is no manifest that can be read.

    A manifest from before there was such a record counts as calibrated.

    Args:
        releases: The releases directory.
        name: The release's id, or None.
    """
    manifest = unverified_manifest(releases, name)
    if not manifest:
        return None
    found = manifest.get("calibration")
    return "provisional" if isinstance(found, dict) and found.get("state") == "provisional" else "calibrated"


def unverified_manifest(releases: Path, name: str | None) -> dict[str, Any]:
    """Read a manifest as plain JSON, without any check; empty where that cannot be done.

    Args:
        releases: The releases directory.
        name: The release's id, or None.
    """
    if name is None:
        return {}
    try:
        raw = orjson.loads(read_bounded(releases / name / MANIFEST, MANIFEST_BYTES))
    except (OSError, orjson.JSONDecodeError):
        return {}
    return raw if isinstance(raw, dict) else {}
