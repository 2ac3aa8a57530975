"""Every table of benchmarks/results/update.md, by one command.

Needs TAUGATE_DATA and the extras calibration, sample and test. Embeddings come through the project's own cache.
"""

import tempfile
from pathlib import Path

from benchmarks.page import Option, Page, data_folder
from benchmarks.update import kills, times
from benchmarks.update.plan import UpdatePlan

PAGE = Page[UpdatePlan](
    file="update.md",
    module="benchmarks.update.tables",
    title="# Updates: seconds, bytes, and what a kill leaves behind",
    introduction="""\
If only documents changed, `taugate recalibrate` makes a release of a newer corpus with the encoder and the threshold of the current one
([how to](../../docs/how-to/recalibrate.md#when-the-threshold-holds)). It encodes only texts that the current release does not have. This page measures how long that
takes, whether the files are those of a full run with the same threshold, and what is left when it is killed. The line under each heading
repeats the measurement.""",
    sections={"times": times, "kills": kills},
    options=[Option("kills", 20, "of updates", {"kills"}), Option("seed", 0, "of every random choice")],
    needs_data={"times"},
)


def main() -> None:
    """Measure what was asked for and write it to the page."""
    arguments = PAGE.parse(PAGE.parser(__doc__))
    for name in arguments.tables:
        with tempfile.TemporaryDirectory(prefix="taugate-update-") as work:
            PAGE.measure(name, UpdatePlan(data_folder(), Path(work), **PAGE.numbers(arguments)), arguments)


if __name__ == "__main__":
    main()
