"""Every table of docs/benchmarks/drift.md, by one command. Needs TAUGATE_DATA and the extras calibration, sample and test."""

import argparse
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks" / "calibration"))  # Markdown
sys.path.append(str(ROOT / "benchmarks" / "serving"))  # services and loads

import canaries  # noqa: E402
import detection  # noqa: E402
import overhead  # noqa: E402
import overlap_band  # noqa: E402
import page  # noqa: E402
import quiet  # noqa: E402
import smallest  # noqa: E402
import swings  # noqa: E402
import theorem  # noqa: E402
from plan import Plan  # noqa: E402

from taugate.calibration.encoding.cache import cache_folder  # noqa: E402

TITLE = "# Drift: what alarms, how soon, how seldom for nothing, and what watching costs"
INTRODUCTION = """\
What the signals are, and what an alarm takes, is in [drift](../drift.md). The line under each heading says how to measure it again."""
SECTIONS = {
    "quiet": quiet,
    "swings": swings,
    "detection": detection,
    "theorem": theorem,
    "smallest": smallest,
    "canaries": canaries,
    "overlap": overlap_band,
    "overhead": overhead,
}


def main() -> None:
    """Measure what was asked for and write it to the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of every random choice")
    parser.add_argument("--queries", type=int, default=1_000_000, help="of each row without drift")
    parser.add_argument("--runs", type=int, default=50, help="of each change")
    parser.add_argument("--rounds", type=int, default=24, help="in which services take turns")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each load")
    parser.add_argument("--tables", nargs="*", choices=[*SECTIONS], default=[*SECTIONS], help="sections to measure")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks" / "drift.md")
    parser.add_argument("--work", type=Path, help="where releases are kept (default: in TAUGATE_CACHE)")
    arguments = parser.parse_args()
    if "TAUGATE_DATA" not in os.environ:
        sys.exit("set TAUGATE_DATA to the folder with the public data sets")
    work: Path = (arguments.work or cache_folder() / "drift-benchmarks").resolve()
    work.mkdir(parents=True, exist_ok=True)
    plan = Plan(
        data=Path(os.environ["TAUGATE_DATA"]).resolve(),
        work=work,
        queries=arguments.queries,
        runs=arguments.runs,
        seconds=arguments.seconds,
        rounds=arguments.rounds,
        seed=arguments.seed,
    )
    headings = [module.HEADING for module in SECTIONS.values()]
    for name in arguments.tables:
        began = time.perf_counter()
        text = SECTIONS[name].section(plan)
        command = f"TAUGATE_DATA=… python benchmarks/drift/tables.py --tables {name}"
        if name == "overhead":
            command += f" --rounds {plan.rounds} --seconds {plan.seconds:g}"
        stamp = page.stamp(f"{command} --seed {plan.seed}", time.perf_counter() - began)
        measured = {SECTIONS[name].HEADING: f"{stamp}\n\n{text}"}
        page.write(arguments.page, TITLE, INTRODUCTION, headings, measured)
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
