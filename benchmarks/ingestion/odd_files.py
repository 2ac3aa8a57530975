"""Import a folder of odd files: each is read or named, in bounded memory, and nothing outside the folder is read."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.checkout import environment
from benchmarks.ingestion.odd_folder import OUTSIDE, make_odd_folder
from benchmarks.ingestion.plan import ImportPlan
from benchmarks.markdown import Target, table, targets

HEADING = "Odd files"
_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") >> 10
_SHOWN = 20  # reasons


def section(plan: ImportPlan) -> str:
    """Make the folder, import it twice, and return the table."""
    source, data = plan.work / "source", plan.work / "data"
    present = make_odd_folder(source, plan.files, plan.seed)
    found, seconds, peak = _imported(source, data)
    again, _, _ = _imported(source, data)
    corpus = (data / "corpus.jsonl").read_text(encoding="utf-8")
    read = {json.loads(line)["metadata"]["path"] for line in corpus.rstrip("\n").split("\n")}
    named = {os.path.relpath(each["path"], source) for each in found["skipped"]}
    accounted = sum(_as_named(path) in named or _as_read(path) in read for path in present)
    reasons = Counter(each["reason"].partition("; save it as")[0] for each in found["skipped"])
    rows = [
        Target("files and links that are read or named", accounted, len(present), len(present)),
        Target("texts from outside the folder", corpus.count(OUTSIDE), at_most=0),
        Target("peak memory of importer and parser", peak / 1024, at_most=1024, unit=" MiB"),
        Target(
            "added, changed or removed by a second import",
            sum(again[name] for name in ("added", "changed", "removed")),
            at_most=0,
        ),
    ]
    count = [["read", len(read)], *([reason, number] for reason, number in reasons.most_common(_SHOWN))]
    return (
        f"{len(present)} files and links became {found['documents']} documents in {found['chunks']} chunks, in "
        f"{seconds:.0f} seconds. {len(read)} files were read, {len(named)} named with a reason. Importer and parser "
        f"together held at most {peak / 1024:.0f} MiB.{_permissions()}\n\n{targets(rows)}\n\n"
        f"{table(['what became of a file', 'files'], count)}\n"
    )


def _permissions() -> str:
    if os.geteuid():
        return ""
    return " A superuser ran this, who may open what is closed to everybody else."


def _imported(source: Path, data: Path) -> tuple[dict[str, Any], float, int]:
    """Run `taugate import`; returns what it printed, the seconds it took, and its peak memory in KiB."""
    command = [sys.executable, "-m", "taugate", "import", str(source), "--to", str(data), "--json"]
    began = time.perf_counter()
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        peak = [0]
        watcher = threading.Thread(target=_watch, args=(process, peak))
        watcher.start()
        printed, _ = process.communicate()
        watcher.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")
    return json.loads(printed), time.perf_counter() - began, peak[0]


def _watch(process: "subprocess.Popen[str]", peak: list[int]) -> None:
    """Put the most resident memory of a process and its children, in KiB, into `peak`, looking every 20 ms."""
    while process.poll() is None:
        peak[0] = max(peak[0], _resident(process.pid))
        time.sleep(0.02)


def _resident(pid: int) -> int:
    """Return the resident memory of a process and all below it, in KiB; pages that they share count once each."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, IndexError):  # it has just ended
        return 0
    return pages * _PAGE_KIB + sum(_resident(int(child)) for child in children)


def _as_named(path: str) -> str:
    """Return a path as the command names it if it is skipped."""
    return os.fsencode(path).decode("utf-8", "replace")


def _as_read(path: str) -> str:
    """Return a path as the metadata of its documents has it."""
    from taugate_import.files import document_id

    return document_id(path)
