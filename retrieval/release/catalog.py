"""Which releases a directory holds and which one is promoted."""

import os
import tempfile
from pathlib import Path

from retrieval.errors import ReleaseError
from retrieval.release.layout import CURRENT, MANIFEST, is_release_id


def release_ids(releases: Path) -> list[str]:
    """Ids of all releases, oldest first. What does not carry a release's name is not one."""
    if not releases.is_dir():
        raise ReleaseError(f"{releases}: no such directory; `taugate calibrate DATA --releases {releases}` makes it")
    return sorted(entry.name for entry in releases.iterdir() if is_release_id(entry.name) and entry.is_dir())


def current_id(releases: Path) -> str | None:
    """The promoted release's id, or None before the first promotion. Raises ReleaseError when it names none."""
    pointer = releases / CURRENT
    try:
        name = pointer.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ReleaseError(f"{pointer}: cannot be read as one line with a release id") from error
    if not is_release_id(name) or not (releases / name / MANIFEST).is_file():
        raise ReleaseError(f"{pointer}: names {name!r}, which is no release in {releases}; promote one that is")
    return name


def shadow_id(releases: Path) -> str | None:
    """The id of the release to be tried beside the current one, or None. Raises ReleaseError when it names none."""
    path = releases / "shadow"
    try:
        name = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    find(releases, name)
    return name


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


def promote(releases: Path, name: str) -> None:
    """Make a release the current one, atomically: a reader sees the old id or the new one, never less."""
    find(releases, name)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{CURRENT}-", dir=releases)
    partial = Path(temporary)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(name + "\n")
            file.flush()
            os.fchmod(descriptor, 0o644)  # whoever serves may be another user
            os.fsync(descriptor)
        partial.replace(releases / CURRENT)
        sync_folder(releases)
    finally:
        partial.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make renames and new names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
