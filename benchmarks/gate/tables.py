"""Every table of benchmarks/results/gate.md, by one command.

Needs TAUGATE_DATA and the extras calibration, adaptation, sample and test. Embeddings come through the project's own cache.
"""

from benchmarks.experiment import Experiment
from benchmarks.gate import power, shuffled
from benchmarks.page import Option, Page, data_folder
from benchmarks.workers import Workers

PAGE = Page[Experiment](
    file="gate.md",
    module="benchmarks.gate.tables",
    title="# The gate: how often it errs",
    introduction="""\
The gate decides whether something cheaper may replace the exact float32 search: an int8 encoder, a projection to fewer dimensions, an
approximate index. It admits a candidate only if a test shows that the loss is below a margin. Unless a table says otherwise, figures
are of public data sets, exact search and float32. The line under each heading repeats the measurement.""",
    sections={"power": power, "shuffled": shuffled},
    options=[Option("seed", 0, "of every random choice")],
    has_sets=True,
)


def main() -> None:
    """Measure what was asked for and write it to the page."""
    arguments = PAGE.parse(PAGE.parser(__doc__))
    experiment = Experiment(data_folder(), frozenset(arguments.sets), 1, arguments.seed, Workers())
    for name in arguments.tables:
        PAGE.measure(name, experiment, arguments)


if __name__ == "__main__":
    main()
