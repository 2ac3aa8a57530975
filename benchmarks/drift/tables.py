"""Every table of benchmarks/results/drift.md, by one command. Needs TAUGATE_DATA and the extras calibration, sample and test."""

from pathlib import Path

from benchmarks.drift import detection, near, overhead, quiet, sites, swings
from benchmarks.drift.plan import DriftPlan
from benchmarks.page import Option, Page, data_folder
from taugate.storage.folders import cache_folder

PAGE = Page[DriftPlan](
    file="drift.md",
    module="benchmarks.drift.tables",
    title="# Drift: how soon alarms come, how often they are false, and what monitoring costs",
    introduction="""\
Drift is a lasting change in what people ask or in what the service finds. [drift.md](../../docs/drift.md) explains the signals, and what an
alarm takes. This page measures how soon alarms come, and how seldom without a reason, with releases that have neither ρ nor
shared words (`--refuse off --lexical off`), unlike those of the default. The line under each heading repeats the measurement.""",
    sections={
        "quiet": quiet,
        "swings": swings,
        "detection": detection,
        "near": near,
        "sites": sites,
        "overhead": overhead,
    },
    options=[
        Option("queries", 1_000_000, "of each row without drift", ()),
        Option("runs", 50, "of each change", ()),
        Option("rounds", 24, "in which services take turns", {"overhead"}),
        Option("seconds", 3.0, "of each load", {"overhead"}),
        Option("seed", 0, "of every random choice"),
    ],
)


def main() -> None:
    """Measure what was asked for and write it to the page."""
    parser = PAGE.parser(__doc__)
    parser.add_argument("--work", type=Path, help="where releases are kept (default: in TAUGATE_CACHE)")
    arguments = PAGE.parse(parser)
    work: Path = (arguments.work or cache_folder() / "drift-benchmarks").resolve()
    work.mkdir(parents=True, exist_ok=True)
    plan = DriftPlan(data=data_folder(), work=work, **PAGE.numbers(arguments))
    for name in arguments.tables:
        PAGE.measure(name, plan, arguments)


if __name__ == "__main__":
    main()
