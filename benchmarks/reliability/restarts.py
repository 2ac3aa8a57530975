"""Restart replicas one after the other, under load: behind nginx, and under clients that never retry."""

import time
from contextlib import ExitStack

from benchmarks.drift.traffic import asked, released
from benchmarks.markdown import Target, table, targets
from benchmarks.reliability.checked_replies import CheckedLoad
from benchmarks.reliability.clients.rolling import CLIENTS_OF_A_KIND, measure
from benchmarks.reliability.plan import ReliabilityPlan
from benchmarks.serving.servers import Server, free_port
from benchmarks.serving.services import taugate
from taugate.registry.catalog import find
from tests.nginx_process import nginx

HEADING = "Rolling restarts"
_SET, _CLIENTS, _REPLICAS, _PAUSE = "squad_v2_dev", 16, 2, 2.0


def section(plan: ReliabilityPlan) -> str:
    """Run rolling restarts and count failed, late and lost requests."""
    released(plan.data, _SET, plan.kept)
    service = taugate(plan.kept / _SET, "float32")
    ports = [free_port() for _ in range(_REPLICAS)]
    stopped: list[float] = []
    with ExitStack() as stack:
        replicas = {port: stack.enter_context(ExitStack()) for port in ports}
        for port, replica in replicas.items():
            replica.enter_context(Server(service, port=port))
        front = stack.enter_context(nginx(ports))
        load = CheckedLoad(front, _CLIENTS, sorted({*asked(plan.data, _SET)}), [find(plan.kept / _SET)])
        with load:
            time.sleep(_PAUSE)
            for _ in range(plan.restarts):
                for port, replica in replicas.items():
                    began = time.monotonic()
                    replica.close()  # SIGTERM, and wait
                    stopped.append(time.monotonic() - began)
                    replica.enter_context(Server(service, port=port))
                    time.sleep(_PAUSE)
    replies = load.replies
    p50, p99 = (replies.milliseconds(p, [(0.0, float("inf"))]) for p in (50, 99))
    rolling = measure(plan.kept / _SET, _REPLICAS * plan.restarts)
    wanted = [
        Target("failed requests", replies.failed, at_most=0),
        Target("replies that are not of the release", replies.mixed, at_most=0),
        Target("lost requests of clients that never retry", rolling.lost, at_most=0),
    ]
    rows = [[f"{len(replies):,}", f"{p50:.1f}", f"{p99:.1f}", f"{max(stopped):.1f} s"]]
    return f"""\
{_REPLICAS} replicas run behind nginx with `deploy/nginx/taugate.conf`, and {_CLIENTS} clients ask new queries of {_SET} in a closed loop. Each replica in turn gets
SIGTERM and is started again when it has ended; the next one follows when it is ready. This happens {plan.restarts} times. There is no drain period
(`TAUGATE_DRAIN_SECONDS=0`): nginx sends a request whose replica is leaving to the other one.

{table(["replies", "p50 ms", "p99 ms", "longest from SIGTERM to the end"], rows)}

**Clients that keep their connections and never retry**, {CLIENTS_OF_A_KIND} of each kind, with the default drain period. A new connection goes to the first
replica that accepts one. nginx keeps connections for 60 s, and sends no POST twice; it knows nothing of readiness, so that a replica which is
starting answers some of its requests with 503. Each replica is restarted {plan.restarts} times, in {min(rolling.stopped):.1f} to {max(rolling.stopped):.1f} s from SIGTERM to the end.

{rolling.table()}

{targets(wanted)}
"""
