"""Releases that were tampered with: any file changed, and the digests made to fit again where that is asked for."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from taugate.retrieval.encoder.encoder import FILES
from taugate.retrieval.release.layout import ENCODER_FOLDER, MANIFEST, content_digest
from taugate.storage.files import sha256_files

Change = Callable[[Path, dict[str, Any]], None]


def tampered(release: Path, folder: Path, change: Change) -> Path:
    """Copy a release to `folder` with a change that its digests give away."""
    copy = shutil.copytree(release, folder / release.name)
    raw = json.loads((copy / MANIFEST).read_bytes())
    change(copy, raw)
    return copy


def forged(release: Path, folder: Path, change: Change) -> Path:
    """Copy a release with a change that manifest and id are made to fit, as somebody with write access could."""
    copy = shutil.copytree(release, folder / release.name)
    raw = json.loads((copy / MANIFEST).read_bytes())
    change(copy, raw)
    files = raw.get("files")
    for name, record in files.items() if isinstance(files, dict) else ():
        path = copy / str(name)
        if isinstance(record, dict) and path.is_file():
            content = path.read_bytes()
            record.update(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))
    if isinstance(raw.get("encoder"), dict) and all((copy / ENCODER_FOLDER / name).is_file() for name in FILES):
        raw["encoder"]["sha256"] = sha256_files(copy / ENCODER_FOLDER, FILES)
    if isinstance(files, dict) and isinstance(raw.get("release_id"), str):
        raw["release_id"] = raw["release_id"][:17] + content_digest(raw)[:12]
        copy = copy.rename(folder / raw["release_id"])
    (copy / MANIFEST).write_text(json.dumps(raw), encoding="utf-8")
    return copy
