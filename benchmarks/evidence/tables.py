"""Every table of docs/benchmarks/evidence.md, by one command: what the evidence by document promises, and what it costs.

Needs TAUGATE_DATA and the extras calibration, sample and test. Embeddings come through the project's own cache.
"""

import argparse
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks" / "calibration"))  # data sets, workers, Markdown

import labels  # noqa: E402
import page  # noqa: E402
import power  # noqa: E402
import realised  # noqa: E402
import size  # noqa: E402
import stakes  # noqa: E402
import two_samples  # noqa: E402
from bench import Bench  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402
from workers import Workers  # noqa: E402

SECTIONS = {
    "size": size,
    "samples": two_samples,
    "power": power,
    "labels": labels,
    "realised": realised,
    "stakes": stakes,
}
TITLE = "# Evidence by document: how often it errs, what it can show"
INTRODUCTION = """\
Where queries share documents, gate, promotion and certificates count documents ([gate](../gate.md), `calibration/risk/e_values.py`).
A document here is a cluster: the queries that share a relevant document, and those they share others with in turn.
The line under each heading says how to measure it again."""


def main() -> None:
    """Measure what was asked for and write it to the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument(
        "--splits", type=int, default=1000, help="random splits for realised losses; fitted policies take fewer"
    )
    parser.add_argument("--seed", type=int, default=0, help="of every random choice")
    parser.add_argument("--sets", nargs="*", default=[], help="data sets, all where none is named")
    parser.add_argument("--tables", nargs="*", choices=[*SECTIONS], default=[*SECTIONS], help="sections to measure")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks" / "evidence.md")
    arguments = parser.parse_args()
    if "TAUGATE_DATA" not in os.environ:
        sys.exit("set TAUGATE_DATA to the folder with the public data sets")
    data = Path(os.environ["TAUGATE_DATA"]).resolve()
    headings = [module.HEADING for module in SECTIONS.values()]
    with threadpool_limits(limits=1), Workers() as workers:
        bench = Bench(data, frozenset(arguments.sets), arguments.splits, arguments.seed, workers)
        for name in arguments.tables:
            began = time.perf_counter()
            text = SECTIONS[name].section(bench)
            sets = f" --sets {' '.join(arguments.sets)}" if arguments.sets else ""
            splits = f" --splits {arguments.splits}" if name == "realised" else ""
            command = f"TAUGATE_DATA=… python benchmarks/evidence/tables.py --tables {name} --seed {arguments.seed}{splits}{sets}"
            section = f"{page.stamp(command, time.perf_counter() - began)}\n\n{text}"
            page.write(arguments.page, TITLE, INTRODUCTION, headings, {SECTIONS[name].HEADING: section})
            print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
