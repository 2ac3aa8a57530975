"""Every table of benchmarks/results/serving.md, by one command; on a machine that does nothing else.

Needs TAUGATE_DATA and the extras calibration, sample, test and benchmarks.
"""

import importlib.util
import signal
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path

from benchmarks.page import Option, Page, data_folder
from benchmarks.serving import closed, filters, open_rates, overload, resources, zipf
from benchmarks.serving.plan import ServingPlan
from benchmarks.serving.processes import Others
from taugate.storage.folders import cache_folder

_MAX_OTHERS = 0.05  # of the processors
PAGE = Page[ServingPlan](
    file="serving.md",
    module="benchmarks.serving.tables",
    title="# Serving: how fast, how steady, at what cost",
    introduction="""\
This page compares Taugate with two others: the usual service (FastAPI, SentenceTransformer and faiss.IndexFlatIP, in
benchmarks/serving/peers/usual.py), also with the encoders of fastembed and of SentenceTransformer's ONNX and OpenVINO backends if they are
installed, and txtai's API. All have the same corpus, encoder and queries. They run one at a time on the same
cores, and the load generator is a separate process. Compare ratios within one run, not figures of different runs. The line under
each heading repeats the measurement.""",
    sections={
        "closed": closed,
        "zipf": zipf,
        "open": open_rates,
        "overload": overload,
        "resources": resources,
        "filters": filters,
    },
    options=[
        Option("rounds", 3, "in which the services take turns"),
        Option("seconds", 8.0, "of each load"),
        Option("seed", 0, "of every random choice"),
        Option("overload-seconds", 60.0, "of the section `overload`", {"overload"}),
    ],
)


def main() -> None:
    """Measure what was asked for and write it to the page."""
    parser = PAGE.parser(__doc__)
    parser.add_argument("--work", type=Path, help="where releases and indexes are kept (default: in TAUGATE_CACHE)")
    parser.add_argument("--peers-python", help="interpreter of an environment with the peers (default: this one)")
    arguments = PAGE.parse(parser)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped on the way out
    work = (arguments.work or cache_folder() / "serving-benchmarks").resolve()
    peers_python = arguments.peers_python or _own_peers()
    plan = ServingPlan(data=data_folder(), work=work, peers_python=peers_python, **PAGE.numbers(arguments))
    for name in arguments.tables:
        PAGE.measure(name, plan, arguments, note=partial(_conditions, Others()))


def _conditions(others: Others) -> str:
    return f"{_server()} {_idle(others)}"


def _server() -> str:
    """Say what taugate and the bare endpoint run on; the peers take what uvicorn takes by default."""
    loop = "uvloop" if importlib.util.find_spec("uvloop") is not None else "asyncio"
    return f"*uvicorn {version('uvicorn')} with {loop} and h11 {version('h11')}.*"


def _idle(others: Others) -> str:
    """Say what else the machine did: if that is more than a little, even the ratios mean nothing."""
    busy = others.share()
    doubt = " **too much: measure again on an idle machine**" if busy > _MAX_OTHERS else ""
    return f"*Other processes took {busy:.0%} of the processors{doubt}.*"


def _own_peers() -> str | None:
    """Return this program's interpreter if it has txtai; otherwise print that such peers are left out and return None."""
    if importlib.util.find_spec("txtai") is not None:
        return sys.executable
    print("txtai, fastembed, ONNX and OpenVINO are left out: name an interpreter that has them with --peers-python")
    return None


if __name__ == "__main__":
    main()
