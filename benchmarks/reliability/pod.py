"""A pod of 1 GiB and a quarter of a processor under every attack in a row, and a client with a key beside it.

`python -m benchmarks.reliability.pod [--root DIR]`. Its log goes into a pipe that is not read, its Redis is one that
answers every read with 3 GB, and it has 200 places for connections. The exit status is 1 if the client was refused
or answered late, or the pod was killed.
"""

import argparse
import functools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.markdown import table
from benchmarks.reliability.attacks.hostile_redis import HugeReplyRedis
from benchmarks.reliability.attacks.network_attacks import MAX_CONNECTIONS, network_attacks
from benchmarks.reliability.attacks.replies import unread_pipe
from benchmarks.reliability.attacks.setting import AttackSetting, prepared
from benchmarks.reliability.attacks.steady_client import SteadyClient
from benchmarks.reliability.attacks.traffic import peak, traffic
from benchmarks.reliability.limits import ResourceLimits, limited
from benchmarks.serving.servers import Server

_PROCESSORS, _BYTES = 0.25, 1 << 30
_RATE, _P99_MILLISECONDS = 5.0, 1000.0
_START_SECONDS = 300.0


@dataclass(frozen=True)
class Phase:
    """One attack as the client with the key saw it.

    Attributes:
        client: Its requests.
        resident: Peak memory in bytes.
    """

    name: str
    client: SteadyClient
    resident: int


def main() -> None:
    """Attack and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2], help="checkout to attack")
    parser.add_argument("--releases", type=Path, help="releases directory (default: that of the quickstart)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each attack")
    parser.add_argument(
        "--rate", type=float, default=0.0, help="queries a second of a key, as TAUGATE_QUERIES_PER_SECOND"
    )
    arguments = parser.parse_args()
    with prepared(arguments.root, 0, arguments.releases) as setting, limited(_PROCESSORS, _BYTES) as limits:
        phases, killed = _attacked(setting, limits, arguments.seconds, arguments.rate)
    _report(phases, killed, limits.kind)


def _attacked(setting: AttackSetting, limits: ResourceLimits, seconds: float, rate: float) -> tuple[list[Phase], bool]:
    with unread_pipe() as into_pipe, HugeReplyRedis() as redis:
        own = {
            "MAX_CONNECTIONS": str(MAX_CONNECTIONS),
            "REDIS_URL": redis.url,
            "WORKERS": "1",
            "QUERIES_PER_SECOND": str(rate),
        }
        wrap = lambda command: limits.wrap([*into_pipe, *command])  # noqa: E731 (two commands in front of one)
        with setting.service(wrap=wrap, patience=_START_SECONDS, settings=own) as server:
            phases = [_phase("nothing", setting, server, functools.partial(time.sleep, seconds))]
            for name, (send, given) in network_attacks(setting.keys).items():
                phases.append(
                    _phase(name, setting, server, functools.partial(_attack, send, server.port, seconds, given))
                )
                if not server.alive:
                    break
            return phases, not server.alive or bool(limits.out_of_memory)


def _attack(send: Callable[..., object], port: int, seconds: float, given: tuple[object, ...]) -> None:
    """Attack for all of the seconds, even if the service ends the attack earlier."""
    with traffic(send, port, seconds, *given):
        time.sleep(seconds)


def _phase(name: str, setting: AttackSetting, server: Server, attack: Callable[[], object]) -> Phase:
    with peak(server) as seen, SteadyClient(server.port, setting.keys["good"], _RATE, known=False) as client:
        attack()
    return Phase(name, client, max(seen))


def _report(phases: list[Phase], killed: bool, kind: str) -> None:
    rows = [
        [
            phase.name,
            len(phase.client.asked),
            phase.client.statuses,
            *(f"{phase.client.milliseconds(p):,.0f}" for p in (50, 99)),
            f"{phase.resident / 1e6:,.0f}",
        ]
        for phase in phases
    ]
    print(f"{_PROCESSORS:g} CPU and {_BYTES >> 20} MiB by {kind}; the pod {'was killed' if killed else 'survived'}.\n")
    print(table(["attack", "requests", "by status", "p50 ms", "p99 ms", "memory MB"], rows))
    late = any(phase.client.failed or phase.client.milliseconds(99) > _P99_MILLISECONDS for phase in phases)
    sys.exit(1 if killed or late else 0)


if __name__ == "__main__":
    main()
