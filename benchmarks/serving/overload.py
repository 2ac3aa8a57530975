"""Send three times what the service can do for a minute: how many it answers, how fast it refuses, how it recovers."""

import time
from dataclasses import dataclass

import numpy as np

from benchmarks.markdown import Target, table, targets
from benchmarks.sampling import sampled
from benchmarks.serving.cells import LoadCell, latency, measure, rate
from benchmarks.serving.load import LoadJob
from benchmarks.serving.plan import ServingPlan
from benchmarks.serving.prepare import Prepared
from benchmarks.serving.servers import Server
from benchmarks.serving.services import ServiceUnderTest
from taugate.service.settings import VARIABLES

HEADING = "Overload"
SET = "squad_v2_dev"
_TIMES, _PAUSE, _REFUSED = 3, 5.0, 429
_CLIENTS, _MAX_CLIENTS = 16, 64
_CONNECTIONS = 900  # both sides of them within the usual limit of 1,024 open files a process
_GROWTH, _AS_FAST = 1.05, 0.95  # flat, and as fast as before, within what two runs of the same differ by
_GOOD = 0.85  # of what it can do: the rest is the time that refusing twice as many requests may take
_SETTLED = 0.1  # share of the time after which memory is to be flat


@dataclass(frozen=True)
class _Overloaded:
    """resident: bytes once a second while it was overloaded."""

    before: LoadCell
    most: LoadCell
    during: LoadCell
    resident: list[int]
    after: LoadCell


def section(plan: ServingPlan) -> str:
    """Overload the service in each precision, and report answers, refusals and recovery."""
    prepared = plan.prepared(SET)
    deadline = VARIABLES["deadline_ms"].info.default
    rows, wanted = [], []
    for service in [each for each in prepared.services() if each.name.startswith("taugate")]:
        found = _overload(plan, prepared, service)
        sample = found.during.sample
        settled = found.resident[int(_SETTLED * len(found.resident))]
        refused, accepted = (sample.milliseconds(99, status) for status in (_REFUSED, 200))
        others = sum(count for status, count in sample.statuses.items() if status not in (200, _REFUSED))
        again = rate(found.after) / rate(found.before)
        rows.append(
            [
                service.name,
                f"{rate(found.most):,.0f}",
                f"{len(sample.due) / sample.seconds:,.0f}",
                f"{rate(found.during):,.0f}",
                f"{sample.milliseconds(50):,.0f} / {accepted:,.0f}",
                f"{sample.statuses.get(_REFUSED, 0):,}",
                f"{sample.milliseconds(50, _REFUSED):,.1f} / {refused:,.1f}",
                f"{1000 * np.percentile(sample.sent - sample.due, 99):,.1f}",
                f"{settled / 1e6:,.0f} → {found.resident[-1] / 1e6:,.0f} MB",
                f"{rate(found.before):,.0f} → {rate(found.after):,.0f}",
                f"{latency(99)(found.before):,.0f} → {latency(99)(found.after):,.0f}",
            ]
        )
        wanted += [
            Target(
                f"{service.name}: good replies/s over what it can do",
                rate(found.during) / rate(found.most),
                at_least=_GOOD,
            ),
            Target(f"{service.name}: p99 of accepted requests", accepted, at_most=deadline, unit=" ms"),
            Target(f"{service.name}: p99 until a request was refused", refused, at_most=50, unit=" ms"),
            Target(f"{service.name}: replies other than 200 and 429", others, at_most=0),
            Target(
                f"{service.name}: memory at the end over memory after a tenth of it",
                found.resident[-1] / settled,
                at_most=_GROWTH,
            ),
            Target(f"{service.name}: replies/s {_PAUSE:g} s later over those before", again, at_least=_AS_FAST),
        ]
    header = [
        "service",
        "can do, /s",
        "asked, /s",
        "good replies/s",
        "p50 / p99 ms",
        "refused",
        "refused after, p50 / p99 ms",
    ]
    header += ["sent late, p99 ms", "memory", f"{_CLIENTS} clients before → after, /s", "p99 ms"]
    return f"""\
First {_MAX_CLIENTS} clients in a closed loop show what the service can do. Then requests come at {_TIMES} times that rate for {plan.overload_seconds:g} s, in an open loop on at most {_CONNECTIONS:,}
connections, from the same cores. {_PAUSE:g} s later, {_CLIENTS} clients ask once more. The queries of {SET} are distinct, there is no cache, and settings are
the defaults (TAUGATE_DEADLINE_MS {deadline}). Times count from when a request was due, so a late load generator makes them longer.

{table(header, rows)}

{targets(wanted)}
"""


def _overload(plan: ServingPlan, prepared: Prepared, service: ServiceUnderTest) -> _Overloaded:
    requests = [service.request(text) for text in prepared.queries]
    order = list(range(len(requests)))
    with Server(service) as server:
        measure(server, requests, plan.warm_up(server, len(order), _MAX_CLIENTS))
        before = measure(server, requests, plan.closed(server, order, _CLIENTS))
        most = measure(server, requests, plan.closed(server, order, _MAX_CLIENTS))
        job = LoadJob(
            server.port,
            order,
            plan.overload_seconds,
            rate=_TIMES * rate(most),
            connections=_CONNECTIONS,
            seed=plan.seed,
        )
        with sampled(lambda: server.resident_bytes, 1.0) as resident:
            during = measure(server, requests, job)
        time.sleep(_PAUSE)
        after = measure(server, requests, plan.closed(server, order, _CLIENTS))
    return _Overloaded(before, most, during, resident, after)
