"""Hold 10,000 idle connections beside active clients: who is answered, how late, and at what cost."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checkout import environment
from benchmarks.drift.traffic import asked, released
from benchmarks.markdown import Target, table, targets
from benchmarks.reliability.plan import ReliabilityPlan
from benchmarks.sampling import sampled
from benchmarks.serving.load import LoadJob, run
from benchmarks.serving.sample import LoadSample
from benchmarks.serving.servers import Server
from benchmarks.serving.services import taugate

HEADING = "Open connections"
CONNECTIONS, CLIENTS = 10_000, 16
_SET, _KNOWN = "squad_v2_dev", 500


@dataclass(frozen=True)
class ConnectionFigures:
    """Figures of one service without idle connections and with them.

    Attributes:
        before: What the clients saw.
        during: What the clients saw.
        resident: Bytes of the service before, and the most while they were open.
        opened: Idle connections in all.
        open: Those the service had at the end.
        refusals: By reason.
    """

    before: LoadSample
    during: LoadSample
    resident: tuple[int, int]
    opened: int
    open: float
    refusals: dict[str, float]


def measure(releases: Path, texts: list[str], seconds: float, connections: int = CONNECTIONS) -> ConnectionFigures:
    """Measure the same clients on the same service without idle connections and with them."""
    service = taugate(releases, "float32", cache=True)
    with Server(service) as server:
        requests = [service.request(text) for text in texts]
        job = LoadJob(server.port, [*range(_KNOWN)], seconds, clients=CLIENTS)
        run(job, requests)
        before, resident = run(job, requests), server.resident_bytes
        with (
            _idle_connections(server.port, connections) as close_all,
            sampled(lambda: server.resident_bytes, 0.25) as most,
        ):
            during = run(job, requests)
            shown = server.get("/metrics").decode()
            opened = close_all()
        refusals = dict(re.findall(r'^taugate_refused_total\{reason="(\w+)"\} (\S+)$', shown, re.MULTILINE))
        (there,) = re.findall(r"^taugate_connections (\S+)$", shown, re.MULTILINE)
    counted = {reason: float(count) for reason, count in refusals.items() if float(count)}
    return ConnectionFigures(before, during, (resident, max(most)), opened, float(there), counted)


def section(plan: ReliabilityPlan) -> str:
    """Time active clients before the idle connections open, and beside them."""
    released(plan.data, _SET, plan.kept)
    texts = sorted({*asked(plan.data, _SET)})
    measured = measure(plan.kept / _SET, texts, plan.seconds)
    rows = [
        [name, f"{sample.rate:,.0f}", *(f"{sample.milliseconds(p):.2f}" for p in (50, 99)), f"{resident / 1e6:,.0f} MB"]
        for name, sample, resident in zip(
            ("before", "with them"), (measured.before, measured.during), measured.resident, strict=True
        )
    ]
    grown = measured.resident[1] - measured.resident[0]
    refusals = ", ".join(f"{reason} {count:,.0f}" for reason, count in measured.refusals.items())
    wanted = [
        Target("failed searches", failed(measured.during), at_most=0),
        Target("memory of a connection", grown / CONNECTIONS / 1000, at_most=64, unit=" kB"),
    ]
    return f"""\
{CLIENTS} clients ask {_KNOWN} known queries of {_SET} in a closed loop for {plan.seconds:g} s. Then {CONNECTIONS:,} connections open beside them: half are silent, and half send half
a body. Connections that the service closes are opened again, {measured.opened:,} in all; at the end {measured.open:,.0f} were open. Refused: {refusals}. Memory is the
highest seen. Clients and service share the machine.

{table(["", "replies/s", "p50 ms", "p99 ms", "memory"], rows)}

{targets(wanted)}
"""


def failed(sample: LoadSample) -> int:
    """Searches without a reply, or with another than 200."""
    return sum(count for status, count in sample.statuses.items() if status != 200)


@contextmanager
def _idle_connections(port: int, connections: int) -> Iterator[Callable[[], int]]:
    """Hold idle connections open; yields a function that closes them and returns how many were opened."""
    command = [sys.executable, "-m", "benchmarks.reliability.idle_connections", str(port), str(connections)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())
    try:
        assert process.stdout is not None  # noqa: S101 (for the type checker)
        if process.stdout.readline() != "all\n":
            raise RuntimeError("the connections could not be opened")
        yield lambda: int(process.communicate()[0])
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
