"""Every table of docs/benchmarks/gate.md, by one command; `million` takes half an hour, 10 GB of memory and of disk.

Needs TAUGATE_DATA and the extras calibration, sample and test. Embeddings come through the project's own cache.
"""

import argparse
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks" / "calibration"))  # what all tables need: data sets, workers, Markdown

import indexes  # noqa: E402
import million  # noqa: E402
import page  # noqa: E402
import power  # noqa: E402
import precisions  # noqa: E402
import projections  # noqa: E402
import promotion  # noqa: E402
import unseen  # noqa: E402
from bench import Bench  # noqa: E402
from workers import Workers  # noqa: E402

TITLE = "# The gate: what is cheaper, and what it loses"
SECTIONS = {
    "power": power,
    "promotion": promotion,
    "projections": projections,
    "unseen": unseen,
    "precisions": precisions,
    "indexes": indexes,
    "million": million,
}
_WITHOUT_DATA = {"power", "promotion"}
INTRODUCTION = """\
Public data sets, exact search, float32 but where a table says otherwise. The line under each heading says how to measure
it again."""


def main() -> None:
    """Measure what was asked for and write it to the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of every random choice")
    parser.add_argument("--sets", nargs="*", default=[], help="data sets, all where none is named")
    parser.add_argument("--tables", nargs="*", choices=[*SECTIONS], default=[*SECTIONS], help="sections to measure")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks" / "gate.md")
    arguments = parser.parse_args()
    if "TAUGATE_DATA" not in os.environ:
        sys.exit("set TAUGATE_DATA to the folder with the public data sets")
    data = Path(os.environ["TAUGATE_DATA"]).resolve()
    headings = [module.HEADING for module in SECTIONS.values()]
    bench = Bench(data, frozenset(arguments.sets), 1, arguments.seed, Workers())
    for name in arguments.tables:
        began = time.perf_counter()
        module = SECTIONS[name]
        text = module.section() if name in _WITHOUT_DATA else module.section(bench)
        sets = f" --sets {' '.join(arguments.sets)}" if arguments.sets else ""
        command = f"TAUGATE_DATA=… python benchmarks/gate/tables.py --tables {name} --seed {arguments.seed}{sets}"
        section = f"{page.stamp(command, time.perf_counter() - began)}\n\n{text}"
        page.write(arguments.page, TITLE, INTRODUCTION, headings, {module.HEADING: section})
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
