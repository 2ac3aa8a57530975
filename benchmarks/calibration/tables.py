"""Every table of docs/benchmarks/calibration.md, by one command: what the calibration promises and what comes true.

Needs TAUGATE_DATA and the extras calibration, sample and test. Embeddings come through the project's own cache.
"""

import argparse
import os
import shlex
import sys
import time
from pathlib import Path

import auto_and_named
import expected_loss
import kept_share
import labelled_queries
import models_tried
import page
import papers
import parts_tried
import recalibrations_tried
import relevance_reliability
import relevance_shift
import speed
from bench import Bench
from threadpoolctl import threadpool_limits
from workers import Workers

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = {
    "expected": expected_loss,
    "kept": kept_share,
    "auto": auto_and_named,
    "labels": labelled_queries,
    "reliability": relevance_reliability,
    "shift": relevance_shift,
    "recalibrations": recalibrations_tried,
    "speed": speed,
    "models": models_tried,
    "parts": parts_tried,
    "papers": papers,
}
TITLE = "# Calibration: what is promised, what comes true, what it costs"
INTRODUCTION = """\
Public data sets, all-MiniLM-L6-v2 exported to ONNX in float32, cosine, unless a table says otherwise. Loss is the share of
queries that had a relevant document among their top K and lost every one of them to the cut. Kept is the share of the top-K
results that is passed on: lower is better. Every figure is of queries that had no say in what they measure, and is made
by the functions that `taugate calibrate` calls. The line under each heading says how to measure it again."""


def main() -> None:
    """Measure what was asked for and write it to the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--splits", type=int, default=1000, help="random splits for the coverage; means take fewer")
    parser.add_argument("--seed", type=int, default=0, help="of every random choice")
    parser.add_argument("--sets", nargs="*", default=[], help="data sets, all where none is named")
    parser.add_argument("--tables", nargs="*", choices=[*SECTIONS], default=[*SECTIONS], help="sections to measure")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks" / "calibration.md")
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
            took = time.perf_counter() - began
            options = f"--splits {arguments.splits} --seed {arguments.seed}"
            sets = f" --sets {shlex.join(arguments.sets)}" if arguments.sets else ""
            command = f"TAUGATE_DATA=… python benchmarks/calibration/tables.py --tables {name} {options}{sets}"
            section = f"{page.stamp(command, took)}\n\n{text}"
            page.write(arguments.page, TITLE, INTRODUCTION, headings, {SECTIONS[name].HEADING: section})
            print(f"{name}: {took:.0f} s", flush=True)


if __name__ == "__main__":
    main()
