"""Test the service against its own openapi.json: thousands of requests that it allows, and that it forbids.

By itself: python -m benchmarks.reliability.contract [--examples N] [--seed N].
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

from benchmarks.markdown import Target, table, targets
from benchmarks.reliability.plan import ReliabilityPlan
from tests.sample_release import write_sample_release
from tests.service.contract.conformance import CHECKS, KEY, conformance, with_keys
from tests.service_process import ServiceProcess

HEADING = "The API against its description"
HEADER = ("requests", "outside the contract", "with status 500", "could not be sent or judged", "checks", "seconds")
EXAMPLES = 600  # of each operation and phase: over 5,000 requests


def section(plan: ReliabilityPlan) -> str:
    """Send generated requests and count the replies that break the description."""
    (row,) = rows = measure(plan.examples, plan.seed)
    cases, failing, broken, *_ = row
    wanted = [
        Target("requests", cases, at_least=5000),
        Target("replies outside the contract", failing, at_most=0),
        Target("replies with status 500", broken, at_most=0),
    ]
    return f"""\
schemathesis tests a service with an API key against its own /openapi.json. It sends the examples, the edge cases of every field, and
random requests, both allowed and forbidden, with and without the key. It also chains a search with feedback on its result.

{table(HEADER, rows)}

{targets(wanted)}
"""


def measure(examples: int = EXAMPLES, seed: int = 0) -> list[tuple[int, int, int, int, int, str]]:
    """Measure one row, as HEADER says.

    Args:
        examples: Of each operation and phase of schemathesis.
    """
    with tempfile.TemporaryDirectory(prefix="taugate-contract-") as folder:
        work = Path(folder)
        releases = write_sample_release(work)
        with ServiceProcess(releases, **with_keys()) as process:  # type: ignore[arg-type]  # no variable is called port or stderr
            process.ready()
            found = conformance(f"http://127.0.0.1:{process.port}", work, examples, seed)
            broken = status_500(process.http.get("/metrics", headers={"X-API-Key": KEY}).text)
    if not found.clean:
        print(found.report, file=sys.stderr)
    return [(found.cases, found.failing, broken, found.errors, len(CHECKS), f"{found.seconds:.0f}")]


def status_500(metrics: str) -> int:
    """Replies with status 500 as the service counted them itself."""
    return sum(int(float(count)) for count in re.findall(r'taugate_requests_total\{code="500".*\} (\S+)', metrics))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="of each operation and phase")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for row in measure(arguments.examples, arguments.seed):
        print(*(f"{cell} {name}" for name, cell in zip(HEADER, row, strict=True)), sep=", ")
