"""A few facts of releases that nobody has verified: a damaged one must keep nobody from leaving it."""

from pathlib import Path
from typing import Any

import orjson

from taugate.retrieval.release.layout import MANIFEST, MANIFEST_BYTES, is_release_id
from taugate.retrieval.release.standing import State
from taugate.storage.plain_file import read_plain


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
