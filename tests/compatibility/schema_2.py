"""Maps a manifest back to schema 2, to compare releases of the code before and after schema 3 with each other.

`python -m tests.compatibility.schema_2 OLD NEW` lists what differs between two folders of releases.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from taugate.retrieval.release.layout import MANIFEST, REPORT, stored_files
from taugate.retrieval.release.manifest import ReleaseManifest
from taugate.retrieval.release.verify import verify

# The fields that schema 2 left out if they were None, by their records; it wrote every other one.
_LEFT_OUT = {
    "Estimate": {"by_document"},
    "EvidenceRecord": {"drawn"},
    "Certificate": {"count_at_most"},
    "RelevanceRecord": {"unanswerable_share", "unanswerable", "error_of_answerable"},
    "ScoreCandidate": {"standard_error"},
    "RefusedQuestions": {"uncertified"},
    "RefusalRecord": {"request"},
    "AdaptationRecord": {"lexical_weight", "training", "measures"},
    "UpdateRecord": {"documents"},
    "PolicyRecord": {"unrestricted", "shortage", "certified"},
    "MetricsRecord": {"roe"},
    "ProjectionRecord": {"centred", "accepted"},
    "GateRecord": {"processor"},
    "DataRecord": {"empty_documents", "own_documents", "relevant_from"},
    "SecondStageRecord": {"token_vectors"},
    "EncoderRecord": {"max_query_length", "max_norm", "stored_type", "endpoint"},
}
_OF_ALL = {"refusal", "checked", "summary", "update", "labels", "withdrawn", "adaptation"}
_OF_CORPUS = {"accepts_vectors", "query_encoder", "encoder_fit", "engine", "lexical", "skipped", "second_stage"}
_LEFT_OUT |= {"RunManifest": _OF_ALL, "Manifest": _OF_ALL | _OF_CORPUS}
# What two calibrations of the same data with the same seed do not have in common.
_OF_THE_RUN = ("release_id", "created_at", "parent")


def as_schema_2(manifest: ReleaseManifest) -> dict[str, Any]:
    """Return the JSON that schema 2 had for a manifest."""
    written: dict[str, Any] = json.loads(json.dumps(_as_schema_2(manifest)))
    return written | {"schema_version": 2}


def _as_schema_2(value: Any) -> Any:
    match value:
        case BaseModel():
            plain = value.model_dump(exclude_none=False)
            left_out = _LEFT_OUT.get(type(value).__name__, set())
            return {
                name: _as_schema_2(getattr(value, name))
                if isinstance(getattr(value, name), BaseModel | list | dict)
                else of
                for name, of in plain.items()
                if of is not None or name not in left_out
            }
        case list():
            return [*map(_as_schema_2, value)]
        case dict():
            return {name: _as_schema_2(item) for name, item in value.items()}
    return value


def differences(old: Path, new: Path) -> Iterator[str]:
    """Yield the files, and the fields of the manifests, that differ between two releases of the same calibration."""
    for name in sorted({*stored_files(old), *stored_files(new)} - {REPORT}):
        one, other = ((release / name) for release in (old, new))
        if not (one.exists() and other.exists() and one.read_bytes() == other.read_bytes()):
            yield name
    before, after = (_comparable(release) for release in (old, new))
    yield from _unequal(MANIFEST, before, after)


def _comparable(release: Path) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads((release / MANIFEST).read_bytes())
    if raw["schema_version"] != 2:
        raw = as_schema_2(verify(release))
    for name in _OF_THE_RUN:
        raw.pop(name)
    raw["files"].pop(REPORT)
    for record in raw.get("gate", []):
        record["gain"] = sorted(record["gain"])  # times
    return raw


def _unequal(path: str, one: Any, other: Any) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in {**one, **other}:
            yield from _unequal(f"{path} {name}", one.get(name, "absent"), other.get(name, "absent"))
    elif one != other:
        yield f"{path}: {one} -> {other}"


def main(old: Path, new: Path) -> int:
    """Print what differs between the newest releases of two folders; returns the exit code."""
    newest = [max(folder.glob(f"*/{MANIFEST}")).parent for folder in (old, new)]
    found = [*differences(*newest)]
    sys.stdout.write("".join(f"{each}\n" for each in found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
