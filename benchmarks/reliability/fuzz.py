"""Fuzz every reader of untrusted input with atheris, a coverage-guided fuzzer.

By itself: python -m benchmarks.reliability.fuzz [--seconds N] [--seed N] [--readers NAME …]; `make fuzz` is that.
Exit code 1 where something was found; the inputs are printed then.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.markdown import Target, table, targets
from benchmarks.reliability.plan import ReliabilityPlan
from tests.fuzz.campaign import MEMORY_MIB, Fuzzed, fuzz
from tests.fuzz.readers import readers
from tests.sample_release import write_sample_release

HEADING = "Readers under a fuzzer"
HEADER = ("reader", "inputs", "edges reached", "peak MiB", "findings")
SECONDS = 600  # of all readers together


def section(plan: ReliabilityPlan) -> str:
    """Fuzz each reader for its share of the time, and count executions and findings."""
    rows = measure(plan.fuzz_seconds, plan.seed)
    *_, memory, found = rows[-1]
    wanted = [
        Target("findings", found, at_most=0),
        Target("peak memory", memory, at_most=MEMORY_MIB, unit=" MiB"),
    ]
    return f"""\
atheris fuzzes every reader of untrusted input, for {plan.fuzz_seconds} s in all, one process at a time. It starts from files that the service and the
calibration write. A finding is any exception that the reader does not document. The fuzzer sees the branches of Python code, not those
inside orjson, pydantic and safetensors.

{table(HEADER, rows)}

{targets(wanted)}
"""


def measure(
    seconds: int = SECONDS, seed: int = 1, names: list[str] | None = None
) -> list[tuple[str, str, int, int, int]]:
    """Fuzz each reader and return a row for each and one for all, as HEADER says.

    Args:
        seconds: Of all together, in one process at a time.
    """
    with tempfile.TemporaryDirectory(prefix="taugate-fuzz-") as folder:
        releases = write_sample_release(Path(folder))
        (Path(folder) / "scratch").mkdir()
        every = names or [*readers(releases, Path(folder) / "scratch")]
        fuzzed = [_said(fuzz(name, releases, max(1, seconds // len(every)), seed)) for name in every]
    rows = [(each.reader, f"{each.executions:,}", each.reached, each.memory, _findings(each)) for each in fuzzed]
    total = (sum(each.executions for each in fuzzed), sum(each.reached for each in fuzzed))
    most, found = max(each.memory for each in fuzzed), sum(_findings(each) for each in fuzzed)
    return [*rows, ("all", f"{total[0]:,}", total[1], most, found)]


def _findings(fuzzed: Fuzzed) -> int:
    """Count the findings, at most one: a reader is fuzzed until its first. Memory over the limit is one as well."""
    return int(bool(fuzzed.finding) or fuzzed.memory > MEMORY_MIB)


def _said(fuzzed: Fuzzed) -> Fuzzed:
    if fuzzed.finding:
        print(f"{fuzzed.reader}: {fuzzed.finding}\n{fuzzed.inputs}", file=sys.stderr, flush=True)
    return fuzzed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of all readers together")
    parser.add_argument("--seed", type=int, default=1, help="of the fuzzer's choices")
    parser.add_argument("--readers", nargs="*", metavar="NAME", help="only these (default: all)")
    arguments = parser.parse_args()
    measured = measure(arguments.seconds, arguments.seed, arguments.readers)
    for row in (HEADER, *measured):
        print("".join(f"{cell!s:<18}" for cell in row))
    sys.exit(1 if measured[-1][-1] else 0)
