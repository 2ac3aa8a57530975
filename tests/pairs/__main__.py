"""Try every pair of options and settings that change a release or a reply: `make test-pairs`.

`python -m tests.pairs [--rows N …] [--first N]`. A line tells what came of each row; at the end, how many of the pairs
that are allowed were tried. The exit code is 1 if anything is wrong.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.pairs.covering import Pair, all_pairs, alone, covering_rows, pairs_of
from tests.pairs.data import workshop
from tests.pairs.factors import DEFAULTS, Row
from tests.pairs.row import Outcome, run_row
from tests.pairs.settings import refusal


def main() -> int:
    """Run rows until every allowed pair was tried, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", help="numbers of the rows to run (default: all)")
    parser.add_argument("--first", type=int, help="run so many rows")
    arguments = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("TAUGATE_")]:
        del os.environ[name]
    with tempfile.TemporaryDirectory(prefix="taugate-pairs-") as folder, workshop(Path(folder)) as shop:
        os.environ["TAUGATE_CACHE"] = str(Path(folder) / "cache")
        outcomes, done, conflicts = list[Outcome](), set[Pair](), list[Row]()
        while rows := _next(done, conflicts, first=not outcomes):
            if arguments.first:
                rows = rows[: arguments.first]
            for number, row in enumerate(rows, len(outcomes)):
                if arguments.rows and number not in arguments.rows:
                    continue
                outcome = run_row(number, row, shop, Path(folder) / "row")
                outcomes.append(outcome)
                _print(number, outcome)
                if outcome.conflict:
                    conflicts.append(outcome.conflict)
                else:
                    done |= pairs_of(row)
            if arguments.rows or arguments.first:
                break
    wrong = sum(bool(outcome.problems) for outcome in outcomes)
    allowed = [pair for pair in all_pairs() if (row := alone(pair)) is not None and not refusal(row)]
    tried = sum(pair in done for pair in allowed)
    refused = sum(any(conflict.items() <= dict(pair).items() for conflict in conflicts) for pair in allowed)
    seconds = sum(outcome.seconds for outcome in outcomes)
    sys.stdout.write(
        f"{len(outcomes)} rows, {wrong} of them wrong; {tried:,} of {len(allowed):,} allowed pairs tried, {refused:,} "
        f"refused with a sentence; {seconds:,.0f} s of processor time\n"
    )
    partly = arguments.rows or arguments.first
    return int(bool(wrong) or (tried + refused < len(allowed) and not partly))


def _next(done: set[Pair], conflicts: list[Row], *, first: bool) -> list[Row]:
    def refused(row: Row) -> bool:
        return refusal(row) is not None or any(conflict.items() <= row.items() for conflict in conflicts)

    return covering_rows(refused, () if first else done)


def _print(number: int, outcome: Outcome) -> None:
    given = " ".join(f"{name}={value}" for name, value in outcome.row.items() if value != DEFAULTS[name])
    sys.stdout.write(f"row {number}: exit {outcome.code}, {outcome.seconds:.0f} s: {given}\n")
    if outcome.conflict:
        sys.stdout.write(f"  refused: {outcome.conflict}: {outcome.message}\n")
    for problem in outcome.problems:
        sys.stdout.write(f"  WRONG: {problem}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
