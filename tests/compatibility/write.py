"""Write a release with this version, as a fixture for later ones: `python -m tests.compatibility.write NAME […]`.

NAME is a new folder in tests/compatibility/releases, followed by options of `taugate calibrate`. Run it for each minor
version, and before a change of the manifest's schema version. The report, most of a release's size, is replaced by an
empty one: no program reads it, and the digest in the release id does not cover it.
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import tests.fake_encoder
from taugate.cli.main import main
from taugate.release.layout import MANIFEST, REPORT

FOLDER = Path(__file__).parent
DATA = FOLDER / "data"
_EMPTY = b"<!doctype html><title>Report</title>\n"


def write(name: str, options: list[str]) -> int:
    """Calibrate on the tiny data set with a tiny encoder; returns the exit code of the command."""
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
