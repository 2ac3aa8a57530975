"""Cuts a million result lists in one process, and checks that its memory does not grow.

`python -m tests.gate_soak [--calls N]`. The exit status is 1 if the process is larger at the end than after a tenth of
the calls.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from taugate.cli import main as cli
from taugate_client import Gate

_QUERIES, _DEPTH = 400, 20
_MAX_GROWTH_KB = 1024  # rounding of the allocator; one byte that each of a million calls keeps is as much


def write_run(folder: Path, seed: int = 0) -> tuple[Path, Path]:
    """Write a run with a component score, and its qrels; relevant documents score higher."""
    rng, lines, qrels = np.random.default_rng(seed), [], ["query-id\tcorpus-id\tscore"]
    for query in range(_QUERIES):
        relevant, scores = rng.random(_DEPTH) < 0.1, rng.random(_DEPTH)
        order = np.argsort(-(scores + relevant))
        results = [
            {"id": f"d{query}-{place}", "score": float(scores[place] + relevant[place]), "scores": {"bm25": place / 7}}
            for place in order.tolist()
        ]
        lines.append(json.dumps({"query_id": f"q{query}", "results": results}))
        qrels += [f"q{query}\td{query}-{place}\t1" for place in np.flatnonzero(relevant)]
    paths = folder / "run.jsonl", folder / "qrels.tsv"
    for path, content in zip(paths, (lines, qrels), strict=True):
        path.write_text("\n".join(content) + "\n", encoding="utf-8")
    return paths


def resident_kb() -> int:
    """Return the memory of this process."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def main() -> None:
    """Run the calls, and print what the process holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000_000)
    calls = parser.parse_args().calls
    with tempfile.TemporaryDirectory() as name:
        run, qrels = write_run(Path(name))
        releases = Path(name) / "releases"
        if cli.main(["calibrate-run", str(run), str(qrels), "--releases", str(releases), "--max-loss", "0.1"]) != 0:
            sys.exit("calibrate-run failed")
        gate = Gate(releases)
        lists = [json.loads(line)["results"] for line in run.read_text(encoding="utf-8").splitlines()]
    sizes, began = [], time.process_time()
    for call in range(1, calls + 1):
        gate.cut(lists[call % len(lists)])
        if call % max(1, calls // 10) == 0:
            sizes.append(resident_kb())
            milliseconds = 1e3 * (time.process_time() - began) / call
            sys.stdout.write(f"{call:,} calls, {sizes[-1] / 1024:.1f} MiB, {milliseconds:.3f} ms each\n")
    sys.exit(1 if sizes[-1] > sizes[0] + _MAX_GROWTH_KB else 0)


if __name__ == "__main__":
    main()
