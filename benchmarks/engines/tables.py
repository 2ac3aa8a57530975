"""The table of docs/benchmarks/engines.md, by one command.

Needs TAUGATE_DATA and the extras calibration, sample and test. milvus-lite and PostgreSQL are started here; a server is
measured too where TAUGATE_ENGINE_URL names one. Embeddings come through the project's own cache.
"""

from benchmarks.engines import found, memory
from benchmarks.engines.plan import EnginePlan
from benchmarks.page import Option, Page, data_folder

SETS = ("squad_v2_dev",)
PAGE = Page[EnginePlan](
    file="engines.md",
    module="benchmarks.engines.tables",
    title="# Engines: what they find, beside exact search",
    introduction="""\
An engine proposes candidates; Taugate scores them again in float32 ([architecture](../architecture.md#engines)). This page compares the
results with those of exact search in the process. The line under the heading repeats the measurement. `make engine-tests` runs the tests
that every engine has to pass, on a Milvus server of its own.

squad_v2_dev is small. PostgreSQL compares a query with all of its 1,204 documents, as its planner finds that cheaper than the graph. The line
says what the path through PostgreSQL costs, and nothing about the graph.""",
    sections={"found": found, "memory": memory},
    options=[
        Option("queries", 0, "queries to search for, 0 for all", {"found"}),
        Option("small", 20_000, "documents of the smaller corpus", {"memory"}),
        Option("large", 100_000, "documents of the larger corpus", {"memory"}),
    ],
    has_sets=True,
)


def main() -> None:
    """Measure and write the page."""
    parser = PAGE.parser(__doc__)
    parser.add_argument("--server", default="", help="what answers at TAUGATE_ENGINE_URL, in words")
    parser.add_argument("--note", default="", help="a sentence about the machine, for the line under the heading")
    arguments = PAGE.parse(parser)
    sizes = arguments.small, arguments.large
    plan = EnginePlan(data_folder(), tuple(arguments.sets) or SETS, arguments.queries, arguments.server, sizes)
    for name in arguments.tables:
        PAGE.measure(name, plan, arguments, lambda: arguments.note)


if __name__ == "__main__":
    main()
