"""The layout of releases: names in a releases directory and in a release, and the digest that names a release."""

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from taugate.retrieval.documents.store import OFFSETS, TEXTS
from taugate.retrieval.encoder import encoder
from taugate.retrieval.index.kinds import INDEX, VECTORS
from taugate.storage.files import sha256_json

CURRENT = "current"
POINTER_BYTES = 64  # of `current` and `shadow` at most: a release id has 29
SHADOW = "shadow"  # a release that is tried beside the current one
HISTORY = "history.jsonl"
MANIFEST = "manifest.json"
MANIFEST_BYTES = 8 << 20  # a hundred times one with evidence of every kind; a larger file is never read
SIGNATURE = "manifest.sig"  # beside a release, not of it: it may be signed after it was written
ENCODER_FOLDER = "encoder"
QUERY_FOLDER = "encoder-queries"  # where queries have an encoder of their own: `encoder` is that of documents
FLOAT32_FOLDER = "encoder-float32"  # of a release whose queries are encoded in int8: the one that theirs was made of
ENCODER_FOLDERS = (ENCODER_FOLDER, QUERY_FOLDER, FLOAT32_FOLDER)
GOLDEN = "golden.jsonl"
REFERENCE = "reference.safetensors"
RELEVANCE = "relevance.safetensors"
OUTCOMES = "outcomes.safetensors"
PROJECTION = "projection.safetensors"
METADATA = "metadata.safetensors"
ABSTENTION = "abstention.safetensors"
REPORT = "report.html"
FILES = frozenset(
    {*(f"{ENCODER_FOLDER}/{name}" for name in encoder.FILES), INDEX, TEXTS, OFFSETS, GOLDEN, REFERENCE, REPORT}
)
OPTIONAL_FILES = frozenset(
    {
        RELEVANCE,  # where there were enough queries to fit a model on
        PROJECTION,  # where one was admitted
        VECTORS,  # of an index whose codes are not exact
        METADATA,  # where documents have metadata
        OUTCOMES,  # which promotion rules compare; 0.1 did not write it
        ABSTENTION,  # where queries are refused as a whole
        *(f"{folder}/{name}" for folder in (QUERY_FOLDER, FLOAT32_FOLDER) for name in encoder.FILES),
    }
)

# Of these an engine has the contents, where the manifest names one.
IN_ENGINE = frozenset({INDEX, VECTORS, TEXTS, OFFSETS, METADATA})

RELEASE_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{12}", re.ASCII)  # as a pointer is read
STAGING_PREFIX = ".staging-"
PRUNED_PREFIX = ".pruned-"  # of a release that is being removed
_NOT_CONTENT = frozenset({"release_id", "created_at", "parent"})  # keys of the manifest


def files_differ(names: Collection[str], *, in_engine: bool) -> frozenset[str]:
    """Return which files a release lacks, or has although it must not; none where it is as it should be.

    Args:
        names: Of its files.
        in_engine: Whether its vectors and documents are in an engine.
    """
    outside = IN_ENGINE if in_engine else frozenset()
    return (FILES - outside) ^ (frozenset(names) - (OPTIONAL_FILES - outside))


def baseline_path(folder: Path, release: str) -> Path:
    """Return the path of a release's drift baseline, which is beside it: a release never changes after it is written.

    Args:
        folder: The releases directory.
        release: The release's id.
    """
    return folder / f"baseline-{release}.json"


def content_digest(manifest: Mapping[str, Any]) -> str:
    """Return the hex digest of a release's content: every file, through `files`, and the manifest less ids and times.

    `parent` is an id as well: it says what was current before, so it differs when the same command runs twice. The
    report is left out for the same reason, as it compares with the parent. The gate's gains are times.

    Args:
        manifest: As JSON has it.
    """
    content = {key: value for key, value in manifest.items() if key not in _NOT_CONTENT}
    content["gate"] = _without_gains(content.get("gate"))
    content["files"] = {name: record for name, record in content["files"].items() if name != REPORT}
    return sha256_json(content)


def _without_gains(gate: Any) -> Any:  # noqa: ANN401 (of a manifest that nobody has checked yet)
    if not isinstance(gate, list):
        return gate
    return [{k: v for k, v in each.items() if k != "gain"} if isinstance(each, dict) else each for each in gate]


def release_id(created_at: datetime, digest: str) -> str:
    """Return the id `YYYYMMDDTHHMMSSZ-<12 hex>` of a release.

    Args:
        created_at: In UTC.
        digest: Of its content.
    """
    return f"{created_at:%Y%m%dT%H%M%SZ}-{digest[:12]}"


def is_release_id(name: str) -> bool:
    """Tell whether a name has the form of a release id; anything else is never joined to a path."""
    return RELEASE_ID.fullmatch(name) is not None


def stored_files(release: Path) -> set[str]:
    """Return every file below a release but its manifest and signatures, as relative paths with forward slashes."""
    found = {path.relative_to(release).as_posix() for path in release.rglob("*") if not path.is_dir()}
    return found - {MANIFEST, SIGNATURE}
