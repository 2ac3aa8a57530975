"""The tables of benchmarks/results/engines.md, by one command.

Needs TAUGATE_DATA and the extras calibration, sample and test. milvus-lite and PostgreSQL are started here; an engine of
your own is searched as well if TAUGATE_ENGINE_URL names it. Embeddings come through the project's own cache.
"""

import os

from benchmarks.engines import found, memory
from benchmarks.engines.plan import EnginePlan
from benchmarks.page import Option, Page, data_folder

SETS = ("squad_v2_dev", "mixed_large")
PAGE = Page[EnginePlan](
    file="engines.md",
    module="benchmarks.engines.tables",
    title="# Engines: what they find, beside exact search",
    introduction="""\
An engine proposes candidates; Taugate scores them again in float32 ([how](../../docs/how-to/use-an-engine.md#what-changes)). This page measures whether
results equal those of exact search in the process, to the bit, and whether the memory of a calibration grows with the corpus. The line
under each heading repeats its measurement. `make engine-tests` runs the tests that every engine has to pass, on a Milvus server of its own.

squad_v2_dev is small. PostgreSQL compares a query with all of its 1,204 documents, as its planner finds that cheaper than the graph. Its line
says what the path through PostgreSQL costs, and nothing about the graph. A calibration holds a shard of 8,192 documents at a time, so that
its memory grows up to two shards, and not beyond.

[Engines that were tried](../decisions.md#engines) has a collection of a million documents, switches of the release under load, and engines
that were killed. Nothing here covers a cluster of Milvus, Milvus 2.6 and 3 as servers, object storage of a cloud, or 100 million rows.""",
    sections={"found": found, "memory": memory},
    options=[
        Option("queries", 0, "queries to search for, 0 for all", {"found"}),
        Option("small", 20_000, "documents of the smaller corpus", {"memory"}),
        Option("large", 100_000, "documents of the larger corpus", {"memory"}),
    ],
    has_sets=True,
)


def main() -> None:
    """Measure the requested sections and write the page."""
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"  # pymilvus would warn each time that a process is started
    parser = PAGE.parser(__doc__)
    parser.add_argument("--server", default="", help="what answers at TAUGATE_ENGINE_URL, in words")
    arguments = PAGE.parse(parser)
    plan = EnginePlan(data_folder(), tuple(arguments.sets) or SETS, arguments.server, **PAGE.numbers(arguments))
    for name in arguments.tables:
        PAGE.measure(name, plan, arguments)


if __name__ == "__main__":
    main()
