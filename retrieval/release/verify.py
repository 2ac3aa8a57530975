"""Whether a release is whole and is what its id says: digests before any parser but JSON's sees a byte."""

from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from retrieval.digest import sha256_file
from retrieval.errors import ReleaseError
from retrieval.release.layout import FILES, MANIFEST, OPTIONAL_FILES, content_digest, stored_files
from retrieval.release.manifest import SCHEMA_VERSION, Manifest

_REMEDY = "calibrate again, or promote another release"


def verify(release: Path) -> Manifest:
    """Check schema version, id, content digest, and the digest and size of every file.

    Returns the manifest. Raises ReleaseError with the first thing that is wrong.
    """
    raw = _read_manifest(release / MANIFEST)
    if raw.get("schema_version") != SCHEMA_VERSION:
        raise ReleaseError(
            f"{release / MANIFEST}: schema version {raw.get('schema_version')!r}, this taugate reads {SCHEMA_VERSION}; "
            "calibrate with this version, or install the one that wrote it"
        )
    try:
        manifest = Manifest.model_validate(raw)
    except ValidationError as error:
        detail = error.errors()[0]
        where = ".".join(map(str, detail["loc"]))
        raise ReleaseError(f"{release / MANIFEST}: {where}: {detail['msg']}; {_REMEDY}") from error
    if manifest.release_id != release.name:
        raise ReleaseError(f"{release / MANIFEST}: says it is {manifest.release_id}, not {release.name}; {_REMEDY}")
    if content_digest(raw)[:12] != manifest.release_id[-12:]:
        raise ReleaseError(f"{release / MANIFEST}: its content digest is not the one in its id; {_REMEDY}")
    _verify_files(release, manifest)
    return manifest


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        raw = orjson.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise ReleaseError(f"{path}: missing; {_REMEDY}") from error
    except (OSError, orjson.JSONDecodeError) as error:
        raise ReleaseError(f"{path}: cannot be read as JSON; {_REMEDY}") from error
    if not isinstance(raw, dict):
        raise ReleaseError(f"{path}: not a JSON object; {_REMEDY}")
    return raw


def _verify_files(release: Path, manifest: Manifest) -> None:
    """Exactly the files of this schema version, each as recorded. Names come from FILES, never from the manifest."""
    if set(manifest.files) - OPTIONAL_FILES != FILES:
        names = ", ".join(sorted(FILES ^ (set(manifest.files) - OPTIONAL_FILES)))
        raise ReleaseError(f"{release / MANIFEST}: lists other files than this version has ({names}); {_REMEDY}")
    stored = stored_files(release)
    for name in sorted(set(manifest.files) | stored):
        path, record = release / name, manifest.files.get(name)
        if record is None:
            raise ReleaseError(f"{path}: not part of this release; remove it")
        if name not in stored or not path.is_file() or path.is_symlink():
            raise ReleaseError(f"{path}: missing, or not a plain file; {_REMEDY}")
        size = path.stat().st_size
        if size != record.bytes:
            raise ReleaseError(f"{path}: {size} bytes, the manifest says {record.bytes}; {_REMEDY}")
        if sha256_file(path) != record.sha256:
            raise ReleaseError(f"{path}: SHA-256 differs from the manifest's; {_REMEDY}")
