"""Many releases from one, in a millisecond each: the same files as hard links, another time and what is changed."""

import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from taugate.release.layout import MANIFEST, content_digest, release_id

BEGAN = datetime(2030, 1, 1, tzinfo=UTC)


def clone(
    source: Path, minute: int, change: Callable[[dict], None] = lambda manifest: None, parent: str | None = None
) -> str:
    """A release beside `source` that verifies, written `minute` minutes after BEGAN; returns its id."""
    manifest = json.loads((source / MANIFEST).read_bytes())
    change(manifest)
    created = BEGAN + timedelta(minutes=minute)
    identifier = release_id(created, content_digest(manifest))
    manifest |= {"release_id": identifier, "created_at": created.isoformat(), "parent": parent}
    staging = source.parent / f".clone-{os.getpid()}"
    shutil.copytree(source, staging, copy_function=os.link, ignore=shutil.ignore_patterns(MANIFEST))
    (staging / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    staging.rename(source.parent / identifier)
    return identifier


def without_a_cut(manifest: dict) -> None:
    manifest["policy"] |= {"kind": "none", "tau": None}


SUMMARY = "Keeps 4.7 of 5 results, loses 1 of 151 answers (at most 3.2 %), refuses 19 of 20 off-topic questions."


def with_refusals(manifest: dict) -> None:
    """What a calibration with two thresholds records."""
    refused = {"queries": 20, "refused": 19, "lower": 0.784}
    lost = {"mean": 1 / 151, "lower": 0.0, "upper": 0.031}
    manifest["summary"] = SUMMARY
    manifest["refusal"] = {
        "score": "best_similarity",
        "rho": 0.390625,
        "evidence": {"off_topic": refused, "near_miss": refused | {"refused": 14, "lower": 0.492}},
        "lost": lost,
    }


def without_refusals(manifest: dict) -> None:
    """As older versions wrote it."""
    manifest.pop("summary", None)
    manifest.pop("refusal", None)


def of_another_encoder(manifest: dict) -> None:
    manifest["encoder"] |= {"sha256": "f" * 64, "name": "another"}
