"""Hang Redis under load, and measure what requests notice, from the first second on."""

import time
from dataclasses import replace

from benchmarks.drift.traffic import asked, released
from benchmarks.markdown import Target, table, targets
from benchmarks.redis_server import redis_server
from benchmarks.reliability.checked_replies import CheckedLoad
from benchmarks.reliability.plan import ReliabilityPlan
from benchmarks.serving.servers import Server
from benchmarks.serving.services import taugate
from taugate.registry.catalog import find

HEADING = "Redis hangs"
_SET, _CLIENTS = "squad_v2_dev", 16
_WARM_UP, _FIRST = 5.0, 1.0  # seconds


def section(plan: ReliabilityPlan) -> str:
    """Pause Redis under load and report latency and errors before, during and after."""
    released(plan.data, _SET, plan.kept)
    service = taugate(plan.kept / _SET, "float32")
    with redis_server() as redis:
        shared = replace(service, environment=service.environment | {"TAUGATE_REDIS_URL": redis.url})
        with Server(shared) as server:
            load = CheckedLoad(server.port, _CLIENTS, sorted({*asked(plan.data, _SET)}), [find(plan.kept / _SET)])
            with load:
                time.sleep(_WARM_UP)
                times = [time.monotonic()]
                time.sleep(plan.hung_seconds)
                redis.pause()
                times.append(time.monotonic())
                time.sleep(plan.hung_seconds)
                redis.resume()
                times.append(time.monotonic())
                time.sleep(plan.hung_seconds)
                times.append(time.monotonic())
    began, hung, back, ended = times
    parts = {
        "before": (began, hung),
        "its first second": (hung, hung + _FIRST),
        "after that": (hung + _FIRST, back),
        "when it is back": (back, ended),
    }
    replies = load.replies
    rows = [
        [name, f"{replies.within(window):,}", *(f"{replies.milliseconds(p, [window]):.1f}" for p in (50, 99))]
        for name, window in parts.items()
    ]
    tail = replies.milliseconds(99, [parts["after that"]]) / replies.milliseconds(99, [parts["before"]])
    wanted = [
        Target("failed requests", replies.failed, at_most=0),
        Target("p99 after the first second over p99 before", tail, at_most=1.5),
    ]
    return f"""\
{_CLIENTS} clients ask new queries of {_SET} in a closed loop, in float32 and without the process's own cache, so that each query reads Redis and
writes to it. After {plan.hung_seconds:g} s Redis is stopped (SIGSTOP): it neither answers nor refuses. After another {plan.hung_seconds:g} s it goes on.

{table(["", "replies", "p50 ms", "p99 ms"], rows)}

{targets(wanted)}
"""
