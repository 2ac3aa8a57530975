"""Maps a manifest back to schema 2, to compare releases of the code before and after schema 3 with each other.

`python -m tests.compatibility.schema_2 OLD NEW` lists what differs between two folders of releases.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from taugate.release.layout import MANIFEST, REPORT, stored_files
from taugate.release.manifest import ReleaseManifest
from taugate.release.refusal_records import RefusalRecord
from taugate.release.search_records import FirstStageRecord
from taugate.release.verify import verify

# The fields that schema 2 left out if they were None, by their records; it wrote every other one.
_LEFT_OUT = {
    "Estimate": {"by_document"},
    "EvidenceRecord": {"drawn"},
    "Certificate": {"count_at_most"},
    "RelevanceRecord": {"unanswerable_share", "unanswerable", "error_of_answerable"},
    "ScoreCandidate": {"standard_error"},
    "RefusedQuestions": {"uncertified"},
    "AdaptationRecord": {"lexical_weight", "training", "measures"},
    "UpdateRecord": {"documents"},
    "PolicyRecord": {"unrestricted", "shortage", "certified"},
    "MetricsRecord": {"nauc", "roe"},
    "ProjectionRecord": {"centred", "accepted"},
    "GateRecord": {"processor", "decided_by"},
    "SkippedCandidate": {"gain"},
    "DataRecord": {"empty_documents", "own_documents", "relevant_from"},
    "SecondStageRecord": {"token_vectors"},
    "EncoderRecord": {"max_query_length", "max_norm", "stored_type", "endpoint"},
}
_OF_ALL = {"refusal", "checked", "summary", "update", "labels", "withdrawn", "adaptation"}
_OF_CORPUS = {"accepts_vectors", "query_encoder", "encoder_fit", "engine", "lexical", "skipped", "second_stage"}
_LEFT_OUT |= {"RunManifest": _OF_ALL, "Manifest": _OF_ALL | _OF_CORPUS}
_DIGITS = 12  # of a limit that schema 3 states of the refused questions, and schema 2 of the answered ones
# What two calibrations of the same data with the same seed do not have in common.
_OF_THE_RUN = ("release_id", "created_at", "parent")


def as_schema_2(manifest: ReleaseManifest) -> dict[str, Any]:
    """Return the JSON that schema 2 had for a manifest."""
    written: dict[str, Any] = json.loads(json.dumps(_as_schema_2(manifest)).replace("--refuse off", "--no-refusal"))
    return written | {"schema_version": 2}


def _as_schema_2(value: Any) -> Any:
    match value:
        case BaseModel():
            plain = value.model_dump(exclude_none=False)
            left_out = _LEFT_OUT.get(type(value).__name__, set())
            written = {
                name: _as_schema_2(getattr(value, name))
                if isinstance(getattr(value, name), BaseModel | list | dict)
                else of
                for name, of in plain.items()
                if of is not None or name not in left_out
            }
            if not isinstance(value, ReleaseManifest | FirstStageRecord):
                return written
            three = _three_records(value.refusal, written.pop("refusal", None))
            if not isinstance(value, ReleaseManifest):
                three.pop("no_answer")  # the first of two stages
            return written | {name: of for name, of in three.items() if of is not None or name not in left_out}
        case list():
            return [*map(_as_schema_2, value)]
        case dict():
            return {name: _as_schema_2(item) for name, item in value.items()}
    return value


def _three_records(refusal: RefusalRecord | None, record: dict[str, Any] | None) -> dict[str, Any]:
    """Return the records of schema 2 for what refuses queries; `record` is the one of schema 3."""
    three: dict[str, Any] = {"abstention": None, "refusal": None, "no_answer": None}
    if refusal is None or record is None:
        return three
    counted, limits = record["evidence"], record["limits"]
    if refusal.is_default:
        three["refusal"] = {name: record[name] for name in ("score", "rho", "provisional", "lost", "left_out")}
        for kind in ("off_topic", "request", "near_miss", "unanswerable"):
            questions = counted.get(kind)
            if questions is not None and (questions["evidence"] or {}).get("unit") == "query":
                questions["evidence"] = None
            if questions is not None or kind != "request":
                three["refusal"][kind] = questions
        return three
    if limits is not None:
        limits["answered_unanswerable"], limits["empty_answerable"] = limits.pop("answered"), limits.pop("refused")
        three["abstention"] = {"score": refusal.score, "tau": refusal.rho, "certified": refusal.certified, **limits}
    for kind, questions in refusal.evidence.items():
        three["no_answer"] = {
            "asked": kind,
            "queries": questions.queries,
            "answered": questions.answered,
            "upper": round(1 - questions.lower, _DIGITS),
            "evidence": counted[kind]["evidence"],
        }
    return three


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
    elif raw.get("no_answer"):
        raw["no_answer"]["upper"] = round(raw["no_answer"]["upper"], _DIGITS)
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
