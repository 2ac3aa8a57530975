"""The layout of releases: names in a releases directory and in a release, and the digest in a release's id."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from taugate.storage.files import sha256_json

CURRENT = "current"
POINTER_BYTES = 64  # limit for `current` and `shadow`; a release id has 29
SHADOW = "shadow"  # names a release that is tried alongside the current one
HISTORY = "history.jsonl"
MANIFEST = "manifest.json"
MANIFEST_BYTES = 8 << 20  # a hundred times the largest real manifest; a larger file is never read
SIGNATURE = "manifest.sig"  # not part of the content, because a release may be signed later
ENCODER_FOLDER = "encoder"
QUERY_FOLDER = "encoder-queries"  # if queries have their own encoder, `encoder` is that of documents
FLOAT32_FOLDER = "encoder-float32"  # the source of an encoder of queries in int8 or bfloat16
ENCODER_FOLDERS = (ENCODER_FOLDER, QUERY_FOLDER, FLOAT32_FOLDER)
RERANKER_FOLDER = "reranker"  # of a second stage
KNOWN_PAIRS = "pairs.json"  # in that folder
FIRST_STAGE_FOLDER = "first-stage"  # what the first stage needs to answer alone, in a release with two stages
GOLDEN = "golden.jsonl"
REFERENCE = "reference.safetensors"
RELEVANCE = "relevance.safetensors"
OUTCOMES = "outcomes.safetensors"
QUESTIONS = "questions.jsonl"
CHECK = "check_certificate.py"  # outside the releases: an auditor takes it from the source instead
EVIDENCE = "evidence.json"  # what `release check` recomputes the figures from
PROJECTION = "projection.safetensors"
METADATA = "metadata.safetensors"
ABSTENTION = "abstention.safetensors"
LEXICAL = "lexical.safetensors"
TEXTS, OFFSETS = "documents.jsonl", "documents.safetensors"
TOKEN_VECTORS = "token-vectors.safetensors"  # noqa: S105 (no password)
RERANKER_CONFIGS = {"cross-encoder": "reranker.json", "late-interaction": "late-interaction.json"}
REPORT = "report.html"
RELEASE_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{12}", re.ASCII)
STAGING_PREFIX = ".staging-"
PRUNED_PREFIX = ".pruned-"  # a release that is being removed
_NOT_CONTENT = frozenset({"release_id", "created_at", "parent"})  # keys of the manifest


def baseline_path(folder: Path, release: str) -> Path:
    """Return the path of a release's drift baseline, which is outside the release because releases never change."""
    return folder / f"baseline-{release}.json"


def content_digest(manifest: Mapping[str, Any]) -> str:
    """Return the hex digest of a release's content, given its manifest as JSON: all files and the manifest.

    Ids and times are excluded. `parent` is the id of the previously current release, which differs when the same
    command runs twice. The report is excluded because it compares with the parent, and the gate's gains, and candidates
    left out for theirs, because they are times of one processor.
    """
    content = {key: value for key, value in manifest.items() if key not in _NOT_CONTENT}
    content["gate"] = _without_gains(content.get("gate"))
    if isinstance(skipped := content.get("skipped"), list):
        content["skipped"] = [item for item in skipped if not (isinstance(item, dict) and "gain" in item)] or None
        if content["skipped"] is None:
            del content["skipped"]
    content["files"] = {name: record for name, record in content["files"].items() if name != REPORT}
    return sha256_json(content)


def _without_gains(gate: Any) -> Any:  # noqa: ANN401 (from an unchecked manifest)
    if not isinstance(gate, list):
        return gate
    return [
        {key: value for key, value in record.items() if key not in {"gain", "processor"}}
        if isinstance(record, dict)
        else record
        for record in gate
    ]


def digest_of(name: str) -> str:
    """Return the digest of a release's content that is in its id."""
    return name.rpartition("-")[2]


def release_id(created_at: datetime, digest: str) -> str:
    """Return the id `YYYYMMDDTHHMMSSZ-<12 hex>` of a release, from its time in UTC and the digest of its content."""
    return f"{created_at:%Y%m%dT%H%M%SZ}-{digest[:12]}"


def creation_time(identifier: str) -> datetime | None:
    """Return the time in a release's id, None if it is not a date."""
    try:
        return datetime.strptime(identifier.partition("-")[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def is_release_id(name: str) -> bool:
    """Return whether a name has the form of a release id; other names are never joined to a path."""
    return RELEASE_ID.fullmatch(name) is not None


def stored_files(release: Path) -> set[str]:
    """Return all files below a release except manifest and signatures, as relative paths with forward slashes."""
    names = {path.relative_to(release).as_posix() for path in release.rglob("*") if not path.is_dir()}
    return names - {MANIFEST, SIGNATURE}
