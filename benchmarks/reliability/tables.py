"""Every table of docs/benchmarks/reliability.md, by one command. Needs the extras calibration, sample and test."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # what the tests have: an encoder without PyTorch, processes that change releases
sys.path.append(str(ROOT / "benchmarks" / "calibration"))  # Markdown

import kills  # noqa: E402
import page  # noqa: E402
from plan import Plan  # noqa: E402

TITLE = "# Reliability: what a bad day leaves"
INTRODUCTION = """\
What is promised is in [releases](../releases.md). The line under each heading says how to measure it again."""
SECTIONS = {"kills": kills}


def main() -> None:
    """Measure what was asked for and write it to the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of every random choice")
    parser.add_argument("--kills", type=int, default=500, help="of commands that change releases")
    parser.add_argument("--tables", nargs="*", choices=[*SECTIONS], default=[*SECTIONS], help="sections to measure")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks" / "reliability.md")
    arguments = parser.parse_args()
    headings = [module.HEADING for module in SECTIONS.values()]
    for name in arguments.tables:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="taugate-reliability-") as work:
            plan = Plan(work=Path(work), kills=arguments.kills, seed=arguments.seed)
            text = SECTIONS[name].section(plan)
        command = f"python benchmarks/reliability/tables.py --tables {name} {SECTIONS[name].options(plan)}"
        stamp = page.stamp(f"{command} --seed {plan.seed}", time.perf_counter() - began)
        measured = {SECTIONS[name].HEADING: f"{stamp}\n\n{text}"}
        page.write(arguments.page, TITLE, INTRODUCTION, headings, measured)
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
