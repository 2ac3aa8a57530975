"""A service on a tenth of a processor."""

import time

from benchmarks.reliability.attacks.setting import AttackResult, AttackSetting
from benchmarks.reliability.limits import limited
from benchmarks.serving.processes import tree
from benchmarks.serving.servers import Server

_PROCESSORS = 0.1
_STEADY_SECONDS = 60.0
_SECONDS = 180.0  # each of three processes imports and loads for some two seconds of a whole processor


def two_workers(setting: AttackSetting) -> AttackResult:
    """Run two workers, whose parent checks that they are alive."""
    name, limit = f"two workers on {_PROCESSORS:g} CPU", f"answers within {_SECONDS:g} s"
    with limited(_PROCESSORS) as limits:
        try:
            with setting.service("--workers", "2", wrap=limits.wrap, patience=_SECONDS) as server:
                pids = _workers(server)
                time.sleep(_STEADY_SECONDS)
                replaced, took = len(pids - _workers(server)), server.startup
        except RuntimeError:
            return AttackResult(name, f"no answer in {_SECONDS:g} s ({limits.kind})", limit, held=False)
    measured = (
        f"answers after {took:.0f} s, {replaced} workers replaced in the next {_STEADY_SECONDS:g} s ({limits.kind})"
    )
    return AttackResult(name, measured, f"{limit}, 0 replaced", held=not replaced)


def _workers(server: Server) -> set[int]:
    """Return the ids of the processes that the first one started."""
    return {*tree(server.pid)[1:]}
