"""Seconds and bytes of an update beside a full calibration with the same threshold, and whether their files are equal."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.checkout import environment
from benchmarks.markdown import Target, table, targets
from benchmarks.update.corpora import newer, repeated
from benchmarks.update.plan import UpdatePlan
from taugate.registry.catalog import find

HEADING = "Seconds and bytes"
_LARGE, _MOST = 100_000, 10.0
_MARGIN = "0.05"  # wide enough for the table: what is timed does not depend on it


@dataclass(frozen=True)
class Timed:
    """One command: its result, its wall-clock seconds, and those of each stage."""

    result: dict[str, Any]
    seconds: float
    stages: dict[str, float]


@dataclass(frozen=True)
class Compared:
    """An update and a full run of the same newer corpus: row of the table, and the update's seconds less encoding."""

    row: list[object]
    without_encoding: float


def section(plan: UpdatePlan) -> str:
    """Update mixed_large, exact and approximate, and a corpus of 100,000 documents."""
    mixed = plan.data / "mixed_large"
    large = repeated(mixed, plan.work / "large", _LARGE)
    found = [
        _compared(plan, mixed, 0.01, "flat"),
        _compared(plan, mixed, 0.10, "flat"),
        _compared(plan, mixed, 0.01, "hnsw"),
        _compared(plan, large, 0.01, "flat"),
    ]
    header = [
        "documents",
        "changed",
        "index",
        "texts encoded",
        "update, s",
        "of it encoding, s",
        "of it index and gate, s",
        "full run, s",
        "release, MB",
        "files equal",
    ]
    goal = Target("update of 1 % of 100,000 documents, without encoding", found[-1].without_encoding, at_most=_MOST)
    return (
        f"{table(header, [each.row for each in found])}\n\n"
        "Of the documents that count as changed, a third is changed, a third removed and a third added. The full run is "
        "`taugate calibrate --policy P --tau X` on the same corpus, whose embeddings the update left in the cache: it "
        "encodes nothing. Files equal: of all files but `report.html`, those with the same SHA-256. The approximate "
        "index is built in full both times, and judged by the gate. 100,000 documents are those of mixed_large, "
        "repeated under other ids. Other programs count, too: the machine's load over the last 15 minutes was "
        f"{os.getloadavg()[2]:.1f}.\n\n"
        f"{targets([goal])}"
    )


def _compared(plan: UpdatePlan, data: Path, share: float, kind: str) -> Compared:
    releases, changed = plan.work / "releases", plan.work / "newer"
    for folder in (releases, changed):
        shutil.rmtree(folder, ignore_errors=True)
    index = [] if kind == "flat" else ["--index", kind, "--margin", _MARGIN]
    _run("calibrate", data, releases, "--refuse", "off", *index)  # as the full run, whose --tau sets no ρ
    newer(data, changed, share, plan.seed)
    update = _run("update", changed, releases, "--no-promote", "--margin", _MARGIN)
    policy = json.loads((find(releases) / "manifest.json").read_bytes())["policy"]
    fixed = ["--policy", policy["kind"], "--tau", repr(policy["tau"]), "--no-promote", *index]
    full = _run("calibrate", changed, releases, *fixed)
    made = json.loads((releases / update.result["release"] / "manifest.json").read_bytes())
    files = [_digests(made), _digests(full.result["manifest"])]
    equal = sum(files[0][name] == files[1].get(name) for name in files[0])
    encoding = update.stages["encode"]
    documents = made["data"]["documents"]
    row: list[object] = [
        f"{documents:,}",
        f"{100 * share:g} %",
        kind,
        f"{update.result['added'] + update.result['changed']:,}",
        f"{update.seconds:.1f}",
        f"{encoding:.1f}",
        f"{update.stages['index'] + update.stages.get('gate', 0):.1f}",
        f"{full.seconds:.1f}",
        f"{sum(record['bytes'] for record in made['files'].values()) / 1e6:.0f}",
        f"{equal} of {len(files[0])}",
    ]
    return Compared(row, update.seconds - encoding)


def _digests(manifest: dict[str, Any]) -> dict[str, str]:
    return {name: record["sha256"] for name, record in manifest["files"].items() if name != "report.html"}


def _run(command: str, data: Path, releases: Path, *more: str) -> Timed:
    """Run a subcommand that writes a release, as a process; ends the program if it fails."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "taugate", command, str(data), "--releases", str(releases), "--json", *more],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"taugate {command}: exit code {done.returncode}\n{done.stderr}")
    stages = re.findall(r"(\w[\w ]*) (\d+\.\d)[,)]", done.stderr[done.stderr.rindex("(seconds: ") + 10 :])
    return Timed(json.loads(done.stdout), seconds, {name: float(value) for name, value in stages})
