"""Measures benchmarks/results/certificate.md: releases that the script re-derives alone, and edits that it finds."""

import argparse
import random
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.certificate.edits import KINDS, edit
from taugate.release import check_certificate


def main() -> None:
    """Print both tables for the releases in some directories."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="+", type=Path, help="releases directories, one release each")
    parser.add_argument("--edits", type=int, default=200, help="number of edits in all")
    options = parser.parse_args()
    folders = [next(path for path in directory.glob("2*") if path.is_dir()) for directory in options.releases]
    print("| release | figures | CPU seconds |\n|---|---|---|")
    for folder in folders:
        began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        command = [sys.executable, "-I", check_certificate.__file__, str(folder)]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        print(
            f"| {folder.parent.name} | {said} | {resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - began:.1f} |",
            flush=True,
        )
    rng = random.Random(0)  # noqa: S311 (no secret)
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    with tempfile.TemporaryDirectory(dir=folders[0].parent) as scratch:
        for number in range(options.edits):
            kind, folder = KINDS[number % len(KINDS)], folders[number // len(KINDS) % len(folders)]
            made = edit(folder, kind, rng, Path(scratch))
            outcome = (
                "script" if made.by_script else "command" if made.by_command else "lost" if made.changes else "none"
            )
            counts[kind][outcome] += 1
            if outcome in ("lost", "none"):
                print(f"{outcome}: {folder.parent.name}: {made.place} changes {made.changes}", file=sys.stderr)
    columns = {
        "script": "the script",
        "command": "the command only",
        "lost": "neither",
        "none": "no stated figure changes",
    }
    print(f"\n| edits of | {' | '.join(columns.values())} |\n|---|{'---|' * len(columns)}")
    for kind, outcomes in counts.items():
        print(f"| {kind} | {' | '.join(str(outcomes[name]) for name in columns)} |")


if __name__ == "__main__":
    main()
