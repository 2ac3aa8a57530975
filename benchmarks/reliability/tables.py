"""Every table of benchmarks/results/reliability.md, by one command.

Needs the extras calibration, sample and test, and TAUGATE_DATA for all sections except `distinct`.
"""

import tempfile
from pathlib import Path

from benchmarks.page import Option, Page, data_folder
from benchmarks.reliability import connections, distinct, hung_redis, keys, permissions, swaps
from benchmarks.reliability.plan import ReliabilityPlan
from taugate.storage.folders import cache_folder

PAGE = Page[ReliabilityPlan](
    file="reliability.md",
    module="benchmarks.reliability.tables",
    title="# Reliability: swaps, a hung Redis, keys and open connections",
    introduction="""\
This page tests the promises of [releases.md](../../docs/releases.md), [access.md](../../docs/access.md) and [security.md](../../docs/security.md). The line under
each heading repeats the measurement.""",
    sections={
        "swaps": swaps,
        "redis": hung_redis,
        "connections": connections,
        "keys": keys,
        "distinct": distinct,
        "permissions": permissions,
    },
    options=[
        Option("swaps", 200, "promotions under load; a quarter as many rollbacks", {"swaps"}),
        Option("seconds", 20.0, "of each load", {"connections", "keys"}),
        Option("rounds", 6, "in which services take turns", {"keys"}),
        Option("hung-seconds", 60.0, "that Redis does not answer", {"redis"}),
        Option("distinct", 200_000, "queries that never come again", {"distinct"}),
        Option("pairs", 1000, "of queries whose times are compared", {"permissions"}),
        Option("seed", 0, "of every random choice"),
    ],
    needs_data={"swaps", "redis", "connections", "keys", "permissions"},
)


def main() -> None:
    """Measure what was asked for and write it to the page."""
    parser = PAGE.parser(__doc__)
    parser.add_argument("--kept", type=Path, help="where releases are kept (default: in TAUGATE_CACHE)")
    arguments = PAGE.parse(parser)
    kept: Path = (arguments.kept or cache_folder() / "drift-benchmarks").resolve()
    kept.mkdir(parents=True, exist_ok=True)
    numbers = PAGE.numbers(arguments)
    for name in arguments.tables:
        with tempfile.TemporaryDirectory(prefix="taugate-reliability-") as work:
            PAGE.measure(name, ReliabilityPlan(data=data_folder(), kept=kept, work=Path(work), **numbers), arguments)


if __name__ == "__main__":
    main()
