"""Every table of docs/benchmarks/serving.md, by one command; on a machine that does nothing else.

Needs TAUGATE_DATA and the extras calibration, sample, test and benchmarks. `million` builds an index of a million documents
first: 20 minutes, 8 GB of memory and of disk.
"""

import argparse
import importlib.util
import os
import signal
import sys
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks" / "calibration"))  # what all tables need: data sets, Markdown
sys.path.append(str(ROOT / "benchmarks" / "gate"))  # the million documents

import closed  # noqa: E402
import filters  # noqa: E402
import http_servers  # noqa: E402
import large  # noqa: E402
import million_documents  # noqa: E402
import one_cpu  # noqa: E402
import open_rates  # noqa: E402
import overload  # noqa: E402
import page  # noqa: E402
import profile_of_a_query  # noqa: E402
import resources  # noqa: E402
import zipf  # noqa: E402
from plan import Plan  # noqa: E402
from processes import Others  # noqa: E402

from taugate.calibration.encoding.cache import cache_folder  # noqa: E402

TITLE = "# Serving: how fast, how steady, at what cost"
SECTIONS = {
    "closed": closed,
    "zipf": zipf,
    "open": open_rates,
    "large": large,
    "million": million_documents,
    "overload": overload,
    "one-cpu": one_cpu,
    "resources": resources,
    "profile": profile_of_a_query,
    "servers": http_servers,
    "filters": filters,
}
_MOST_OTHERS = 0.05  # of the processors
INTRODUCTION = """\
taugate beside the usual service (FastAPI, SentenceTransformer, faiss.IndexFlatIP: benchmarks/serving/peers/usual.py) and
txtai's API: the same corpus, the same encoder, the same queries, one service at a time on the same cores, and a load generator
of which no time is the server's. What counts are ratios within one run. The line under each heading says how to measure it
again."""


def main() -> None:
    """Measure what was asked for and write it to the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of every random choice")
    parser.add_argument("--rounds", type=int, default=3, help="in which the services take turns")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each load")
    parser.add_argument("--documents", type=int, default=1_000_000, help="of the section `million`")
    parser.add_argument("--overload-seconds", type=float, default=60.0, help="of the section `overload`")
    parser.add_argument("--tables", nargs="*", choices=[*SECTIONS], default=[*SECTIONS], help="sections to measure")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks" / "serving.md")
    parser.add_argument("--work", type=Path, help="where releases and indexes are kept (default: in TAUGATE_CACHE)")
    parser.add_argument("--txtai-python", help="interpreter of an environment with txtai (default: this one)")
    arguments = parser.parse_args()
    if "TAUGATE_DATA" not in os.environ:
        sys.exit("set TAUGATE_DATA to the folder with the public data sets")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped on the way out
    plan = Plan(
        data=Path(os.environ["TAUGATE_DATA"]).resolve(),
        work=(arguments.work or cache_folder() / "serving-benchmarks").resolve(),
        txtai_python=arguments.txtai_python or _own_txtai(),
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        documents=arguments.documents,
        overload_seconds=arguments.overload_seconds,
        seed=arguments.seed,
    )
    headings = [module.HEADING for module in SECTIONS.values()]
    for name in arguments.tables:
        began, others = time.perf_counter(), Others()
        text = SECTIONS[name].section(plan)
        more = {
            "million": f" --documents {plan.documents}",
            "overload": f" --overload-seconds {plan.overload_seconds:g}",
        }
        command = f"TAUGATE_DATA=… python benchmarks/serving/tables.py --tables {name} --rounds {plan.rounds} --seconds {plan.seconds:g} --seed {plan.seed}{more.get(name, '')}"
        section = f"{page.stamp(command, time.perf_counter() - began)} {_server()} {_idle(others)}\n\n{text}"
        page.write(arguments.page, TITLE, INTRODUCTION, headings, {SECTIONS[name].HEADING: section})
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


def _server() -> str:
    """What taugate and the bare endpoint run on; the peers take what uvicorn takes by default."""
    loop = "uvloop" if importlib.util.find_spec("uvloop") is not None else "asyncio"
    return f"*uvicorn {version('uvicorn')} with {loop} and h11 {version('h11')}.*"


def _idle(others: Others) -> str:
    """What else the machine did: where that is more than a little, even the ratios are worth nothing."""
    share = others.share()
    doubt = " **too much: measure again on an idle machine**" if share > _MOST_OTHERS else ""
    return f"*Other processes took {share:.0%} of the processors{doubt}.*"


def _own_txtai() -> str | None:
    """The interpreter of this program where it has txtai; else its rows are left out, and that is said."""
    if importlib.util.find_spec("txtai") is not None:
        return sys.executable
    print("txtai is left out: install the extra `benchmarks`, or name an interpreter that has it with --txtai-python")
    return None


if __name__ == "__main__":
    main()
