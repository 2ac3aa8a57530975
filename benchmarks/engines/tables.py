"""The tables of docs/benchmarks/engines.md, by one command.

Needs TAUGATE_DATA and the extras calibration, sample and test. Engines are started here. For Milvus that takes an
environment with its package (`make .venv/.milvus`), and the run goes on in a network namespace of its own, as that
server listens on all interfaces. Services whose memory counts run in an environment with what a service needs
(`make .venv/.engine-service`). Embeddings come through the project's own cache.
"""

import os
import subprocess
import sys
from argparse import SUPPRESS
from pathlib import Path
from typing import get_args

from benchmarks.engines import found, kills, memory, million, switches
from benchmarks.engines.plan import EnginePlan
from benchmarks.page import Option, Page, data_folder
from taugate.retrieval.engines.engine import EngineKind
from taugate.storage.folders import cache_folder
from tests.retrieval.engines.milvus_process import alone

SETS = ("squad_v2_dev", "mixed_large")
_STARTED = {"million", "switches", "kills"}  # sections whose engines --engine names
_KINDS: tuple[EngineKind, ...] = get_args(EngineKind)
_INSIDE = "--inside"
PAGE = Page[EnginePlan](
    file="engines.md",
    module="benchmarks.engines.tables",
    title="# Engines: what they find, beside exact search",
    introduction="""\
An engine proposes candidates; Taugate scores them again in float32 ([architecture](../architecture.md#engines)). The line under each
heading repeats its measurement. `make engine-tests` runs the tests that every engine has to pass, on a Milvus server of its own.

| section | what it shows |
| --- | --- |
| What is found, and how fast | whether results equal those of exact search in the process, to the bit, and pass the gate |
| A large collection | upload, one query, and a service over the engine beside one that holds the corpus: time and memory |
| Switches of the release | whether a request fails, or a reply mixes two releases, while releases change |
| An engine that is killed | what callers are told meanwhile, and when they are answered again |
| Memory of a calibration | whether it grows with the corpus |

squad_v2_dev is small. PostgreSQL compares a query with all of its 1,204 documents, as its planner finds that cheaper than the graph. Its line
says what the path through PostgreSQL costs, and nothing about the graph. The documents of the large collection are copies with noise: they
show how fast and how large, and not how well real documents are found.

Services over a large collection run without pyarrow, in an environment that `make .venv/.engine-service` makes: the client of Milvus imports
pandas, and pandas imports pyarrow where it is installed. A calibration holds a shard of 8,192 documents at a time, so that its memory
grows up to two shards, and not beyond.

Nothing here covers a cluster of Milvus, Milvus 2.6 and 3 as servers, object storage of a cloud, or 100 million rows. Engine, service and
clients share one machine, so no figure has a network in it.""",
    sections={"found": found, "million": million, "switches": switches, "kills": kills, "memory": memory},
    options=[
        Option("queries", 0, "queries to search for, 0 for all", {"found", "million"}),
        Option("engine", "pgvector", "milvus, pgvector, or both, separated by a comma", _STARTED),
        Option("documents", 1_000_000, "of the large collection", {"million"}),
        Option("characters", 120, "of each of its texts, 0 for all", {"million"}),
        Option("breadth", 128, "of its searches", {"million"}),
        Option("rounds", 3, "in which the services over it take turns", {"million"}),
        Option("seconds", 8.0, "of each load, and between two events", {"million", "kills"}),
        Option("switches", 250, "of releases under load", {"switches"}),
        Option("small", 20_000, "documents of the smaller corpus", {"memory"}),
        Option("large", 100_000, "documents of the larger corpus", {"memory"}),
    ],
    needs_data={"found", "million", "memory"},
    has_sets=True,
)


def main() -> None:
    """Measure and write the page."""
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"  # tests/conftest.py says why
    parser = PAGE.parser(__doc__)
    parser.add_argument("--server", default="", help="what answers at TAUGATE_ENGINE_URL, in words")
    parser.add_argument("--url", default="", help="of an engine that runs already, for the large collection")
    parser.add_argument("--milvus-python", type=Path, default=Path(sys.prefix) / "milvus-server/bin/python")
    parser.add_argument("--service-python", type=Path, default=Path(sys.prefix) / "engine-service/bin/python")
    parser.add_argument("--work", type=Path, help="where collections and releases are kept (default: in TAUGATE_CACHE)")
    parser.add_argument("--note", default="", help="a sentence about the machine, for the line under the heading")
    parser.add_argument(_INSIDE, action="store_true", help=SUPPRESS)
    arguments = PAGE.parse(parser)
    kinds = _kinds(arguments.engine)
    if arguments.url and len(kinds) != 1:
        sys.exit("--url: is of one engine; name that with --engine")
    if "million" in arguments.tables:
        _check_there("--service-python", arguments.service_python, ".venv/.engine-service")
    if "milvus" in kinds and not arguments.inside and _starts_milvus(arguments.tables, arguments.url):
        _check_there("--milvus-python", arguments.milvus_python, ".venv/.milvus")
        sys.exit(subprocess.call(alone([sys.executable, "-m", PAGE.module, _INSIDE, *sys.argv[1:]])))
    plan = EnginePlan(
        data=data_folder(),
        sets=tuple(arguments.sets) or SETS,
        server=arguments.server,
        kinds=kinds,
        url=arguments.url,
        milvus_python=arguments.milvus_python,
        service_python=arguments.service_python,
        work=(arguments.work or cache_folder() / "engine-benchmarks").resolve(),
        **{name: value for name, value in PAGE.numbers(arguments).items() if name != "engine"},
    )
    for name in arguments.tables:
        PAGE.measure(name, plan, arguments, lambda: arguments.note)


def _check_there(option: str, python: Path, target: str) -> None:
    """Exit where an interpreter is missing.

    Args:
        target: Of the Makefile that makes it.
    """
    if not python.is_file():
        sys.exit(f"{python}: not there; run `make {target}`, or give {option}")


def _kinds(names: str) -> tuple[EngineKind, ...]:
    """Read --engine."""
    asked = names.split(",")
    if unknown := {*asked} - {*_KINDS}:
        sys.exit(f"--engine {names}: {min(unknown)!r} is none; there are {', '.join(_KINDS)}")
    return tuple(kind for kind in _KINDS if kind in asked)


def _starts_milvus(sections: list[str], url: str) -> bool:
    return not _STARTED.isdisjoint(sections if not url else {*sections} - {"million"})


if __name__ == "__main__":
    main()
