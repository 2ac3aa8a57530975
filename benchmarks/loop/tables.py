"""The table of benchmarks/results/loop.md, by one command.

Needs TAUGATE_DATA, a redis-server, and the extras calibration, sample and test.
"""

import tempfile
from pathlib import Path

from benchmarks.loop import walk
from benchmarks.loop.plan import LoopPlan
from benchmarks.page import Option, Page, data_folder

PAGE = Page[LoopPlan](
    file="loop.md",
    module="benchmarks.loop.tables",
    title="# The loop: from an alarm to a better release",
    introduction="""\
When traffic leaves what the calibration has seen, drift raises an alarm. `taugate recalibrate` then makes a release of the newer data, compares it,
tries it on live traffic and promotes it ([how to](../../docs/how-to/recalibrate.md)). This page walks that loop on real services under load, unattended, and counts
seconds and failed requests. The line under the heading repeats the measurement.""",
    sections={"walk": walk},
    options=[
        Option("documents", 400, "of each version of the collection"),
        Option("labelled", 400, "questions of each version that have labels"),
        Option("rate", 12.0, "questions a second"),
        Option("seed", 0, "of every random choice"),
    ],
)


def main() -> None:
    """Walk the loop and write the page."""
    arguments = PAGE.parse(PAGE.parser(__doc__))
    for name in arguments.tables:
        with tempfile.TemporaryDirectory(prefix="taugate-loop-") as work:
            PAGE.measure(name, LoopPlan(data_folder(), Path(work), **PAGE.numbers(arguments)), arguments)


if __name__ == "__main__":
    main()
