"""Every table of docs/benchmarks/reliability.md, by one command.

Needs the extras calibration, sample and test, for `fuzz` the extra of that name, and TAUGATE_DATA for those with a load.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # what the tests have: an encoder without PyTorch, processes that change releases
sys.path.append(str(ROOT / "benchmarks" / "calibration"))  # Markdown
sys.path.append(str(ROOT / "benchmarks" / "serving"))  # services and loads
sys.path.append(str(ROOT / "benchmarks" / "drift"))  # releases of data sets, and their queries

import connections  # noqa: E402
import contract  # noqa: E402
import corrupted_releases  # noqa: E402
import distinct  # noqa: E402
import fuzz  # noqa: E402
import hung_redis  # noqa: E402
import keys  # noqa: E402
import kills  # noqa: E402
import page  # noqa: E402
import permissions  # noqa: E402
import restarts  # noqa: E402
import swaps  # noqa: E402
from plan import Plan  # noqa: E402

from taugate.calibration.encoding.cache import cache_folder  # noqa: E402

TITLE = "# Reliability: what a bad day leaves"
INTRODUCTION = """\
What is promised is in [releases](../releases.md), [access](../access.md) and [security](../security.md). The line under each heading says how to measure it again."""
SECTIONS = {
    "swaps": swaps,
    "restarts": restarts,
    "redis": hung_redis,
    "connections": connections,
    "keys": keys,
    "distinct": distinct,
    "permissions": permissions,
    "kills": kills,
    "corruption": corrupted_releases,
    "contract": contract,
    "fuzz": fuzz,
}
_LOADED = {"swaps", "restarts", "redis", "connections", "keys", "permissions"}
# The options that a section reads, as the line under its heading repeats them.
_OPTIONS = {
    "swaps": ["swaps"],
    "restarts": ["restarts"],
    "redis": ["hung_seconds"],
    "connections": ["seconds"],
    "keys": ["seconds", "rounds"],
    "distinct": ["distinct"],
    "permissions": ["pairs"],
    "kills": ["kills"],
    "corruption": ["corrupted"],
    "contract": ["examples"],
    "fuzz": ["fuzz_seconds"],
}


def main() -> None:
    """Measure what was asked for and write it to the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of every random choice")
    parser.add_argument("--kills", type=int, default=500, help="of commands that change releases")
    parser.add_argument("--swaps", type=int, default=200, help="promotions under load; a quarter as many rollbacks")
    parser.add_argument("--restarts", type=int, default=10, help="of each replica")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load")
    parser.add_argument("--rounds", type=int, default=6, help="in which services take turns")
    parser.add_argument("--hung-seconds", type=float, default=60.0, help="that Redis does not answer")
    parser.add_argument("--distinct", type=int, default=1_000_000, help="queries that never come again")
    parser.add_argument("--fuzz-seconds", type=int, default=fuzz.SECONDS, help="of all readers together")
    parser.add_argument("--pairs", type=int, default=1000, help="of queries whose times are compared")
    parser.add_argument("--corrupted", type=int, default=1000, help="releases")
    parser.add_argument(
        "--examples", type=int, default=contract.EXAMPLES, help="of each operation and phase of the API"
    )
    parser.add_argument("--tables", nargs="*", choices=[*SECTIONS], default=[*SECTIONS], help="sections to measure")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks" / "reliability.md")
    parser.add_argument("--kept", type=Path, help="where releases are kept (default: in TAUGATE_CACHE)")
    arguments = parser.parse_args()
    if "TAUGATE_DATA" not in os.environ and _LOADED & {*arguments.tables}:
        sys.exit("set TAUGATE_DATA to the folder with the public data sets")
    kept: Path = (arguments.kept or cache_folder() / "drift-benchmarks").resolve()
    kept.mkdir(parents=True, exist_ok=True)
    headings = [module.HEADING for module in SECTIONS.values()]
    for name in arguments.tables:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="taugate-reliability-") as work:
            asked = {field: getattr(arguments, field) for options in _OPTIONS.values() for field in options}
            data = Path(os.environ.get("TAUGATE_DATA", ".")).resolve()
            plan = Plan(data=data, kept=kept, work=Path(work), seed=arguments.seed, **asked)
            text = SECTIONS[name].section(plan)
        stamp = page.stamp(_command(name, plan), time.perf_counter() - began)
        measured = {SECTIONS[name].HEADING: f"{stamp}\n\n{text}"}
        page.write(arguments.page, TITLE, INTRODUCTION, headings, measured)
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


def _command(name: str, plan: Plan) -> str:
    data = "TAUGATE_DATA=… " if name in _LOADED else ""
    options = " ".join(f"--{field.replace('_', '-')} {getattr(plan, field):.12g}" for field in _OPTIONS[name])
    return f"{data}python benchmarks/reliability/tables.py --tables {name} {options} --seed {plan.seed}"


if __name__ == "__main__":
    main()
