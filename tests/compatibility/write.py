"""Writes a release with the code of this tree, to be kept as a fixture: `python -m tests.compatibility.write NAME […]`.

NAME is a new folder in tests/compatibility/releases; what follows are options of `taugate calibrate`. Do this for each
minor version, and whenever the schema version of manifests changes, before the change. The report, which is most of a
release's size and which no program reads, is replaced by an empty one; the digest in a release's id leaves it out.
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import tests.fake_encoder
from taugate.cli.main import main
from taugate.retrieval.release.layout import MANIFEST, REPORT

FOLDER = Path(__file__).parent
DATA = FOLDER / "data"
_EMPTY = b"<!doctype html><title>Report</title>\n"


def write(name: str, options: list[str]) -> int:
    """Calibrate on the tiny data set, with an encoder small enough to be kept; returns the command's exit code."""
    tests.fake_encoder.DIMENSION = 32
    lines = [line for file in ("corpus", "queries") for line in (DATA / f"{file}.jsonl").read_text().splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        encoder = tests.fake_encoder.write_fake_encoder(Path(folder), [json.loads(line)["text"] for line in lines])
        releases = FOLDER / "releases" / name
        small = ["--encoder", str(encoder), "--bootstraps", "100"]
        code = main(["calibrate", str(DATA), "--releases", str(releases), *small, *options])
    for manifest in releases.rglob(MANIFEST):
        _empty_report(manifest)
    return code


def _empty_report(manifest: Path) -> None:
    record = json.loads(manifest.read_bytes())
    (manifest.parent / REPORT).write_bytes(_EMPTY)
    record["files"][REPORT] = {"sha256": hashlib.sha256(_EMPTY).hexdigest(), "bytes": len(_EMPTY)}
    manifest.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(write(sys.argv[1], sys.argv[2:]))
