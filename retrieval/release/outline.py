"""A few facts of releases that nobody has verified: a damaged one must keep nobody from leaving it."""

from pathlib import Path
from typing import Any

import orjson

from retrieval.release.layout import MANIFEST, is_release_id


def parent(releases: Path, name: str | None) -> str | None:
    """The release that was current when this one was written; None where that cannot be said."""
    found = _manifest(releases, name).get("parent")
    return found if isinstance(found, str) and is_release_id(found) else None


def encoder(releases: Path, name: str | None) -> dict[str, Any]:
    """The record of a release's float32 encoder, empty where that cannot be said."""
    manifest = _manifest(releases, name)
    found = manifest.get("float32_encoder") or manifest.get("encoder")
    return found if isinstance(found, dict) else {}


def _manifest(releases: Path, name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    try:
        raw = orjson.loads((releases / name / MANIFEST).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return raw if isinstance(raw, dict) else {}
