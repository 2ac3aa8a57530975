"""Fuzz every reader of untrusted input with atheris, a coverage-guided fuzzer.

`python -m tests.fuzz [--seconds N] [--seed N] [--readers NAME …]`, which is `make fuzz`. The exit code is 1 if an
exception that the reader does not document was found, or too much memory was used; the inputs are printed then.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.campaign import MEMORY_MIB, Fuzzed, fuzz
from tests.fuzz.readers import readers
from tests.sample_release import write_sample_release

_HEADER = ("reader", "inputs", "edges reached", "peak MiB", "findings")


def main() -> int:
    """Fuzz each reader for its share of the time, one process at a time, and print a row for result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600, help="time for all readers together")
    parser.add_argument("--seed", type=int, default=1, help="seed of the fuzzer's choices")
    parser.add_argument("--readers", nargs="*", metavar="NAME", help="readers to fuzz (default: all)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="taugate-fuzz-") as folder:
        releases = write_sample_release(Path(folder))
        (Path(folder) / "scratch").mkdir()
        names = arguments.readers or [*readers(releases, Path(folder) / "scratch")]
        seconds = max(1, arguments.seconds // len(names))
        results = [fuzz(name, releases, seconds, arguments.seed) for name in names]
    rows = [
        (result.reader, f"{result.executions:,}", result.reached, result.memory, _findings(result))
        for result in results
    ]
    executions, reached = sum(result.executions for result in results), sum(result.reached for result in results)
    findings = sum(map(_findings, results))
    rows.append(("all", f"{executions:,}", reached, max(result.memory for result in results), findings))
    for row in (_HEADER, *rows):
        sys.stdout.write("".join(f"{cell!s:<18}" for cell in row) + "\n")
    for result in results:
        if result.finding:
            sys.stderr.write(f"{result.reader}: {result.finding}\n{result.inputs}\n")
    return int(findings > 0)


def _findings(result: Fuzzed) -> int:
    """Count the findings, at most one: a reader is fuzzed until its first. Memory over the limit is a finding too."""
    return int(bool(result.finding) or result.memory > MEMORY_MIB)


if __name__ == "__main__":
    sys.exit(main())
