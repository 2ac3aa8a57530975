"""Hours of every attack mixed with ordinary load, swaps of releases, and a Redis that comes and goes.

`python -m benchmarks.reliability.soak [--root DIR] [--seconds N]`. The exit status is 1 if a client with a key was
answered 5xx other than 503, more often 503 than once in a thousand, or not at all; or if files, threads or memory grew
after the first quarter.
"""

import argparse
import random
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.markdown import table
from benchmarks.redis_server import RedisServer, redis_server
from benchmarks.reliability.attacks.network_attacks import MAX_CONNECTIONS, network_attacks
from benchmarks.reliability.attacks.setting import AttackSetting, prepared
from benchmarks.reliability.attacks.steady_client import SteadyClient
from benchmarks.reliability.attacks.traffic import traffic
from benchmarks.serving.processes import resident_bytes, tree
from benchmarks.serving.servers import Server

_RATE = 5.0  # requests a second of each of the clients with a key
_AT_ONCE = 2  # attacks
_ATTACK_SECONDS = 15.0
_SWAP_SECONDS, _REDIS_SECONDS, _LOOK_SECONDS = 20.0, 30.0, 5.0
_QUIET_SECONDS = 20.0  # between two rounds, in which files, threads and memory are counted: connections have ended
_ROUND_SECONDS = 120.0
_MAX_503 = 0.001
_MAX_GROWTH = 1.05  # of memory; of files and threads: none beyond a handful of either
_SPARE = 8


@dataclass(frozen=True)
class ResourceUsage:
    """Resources of the idle service: seconds since the start, open files, threads, resident bytes."""

    at: float
    files: int
    threads: int
    resident: int

    @classmethod
    def by(cls, server: Server, began: float) -> "ResourceUsage":
        """Read the resources of all its processes."""
        folders = [Path(f"/proc/{process}") for process in tree(server.pid)]
        files, threads = (sum(len([*(folder / kind).iterdir()]) for folder in folders) for kind in ("fd", "task"))
        return cls(time.monotonic() - began, files, threads, resident_bytes(server.pid))


class FaultInjector:
    """Swap releases and pause Redis, each at its own pace, while the `with` block runs."""

    def __init__(self, setting: AttackSetting, server: Server, redis: RedisServer, names: list[str]) -> None:
        self.swaps = 0
        self._setting, self._server, self._redis, self._names = setting, server, redis, names
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._swap, self._pause)]

    def __enter__(self) -> "FaultInjector":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _swap(self) -> None:
        while not self._ended.wait(_SWAP_SECONDS):
            self.swaps += 1
            name = self._names[self.swaps % len(self._names)]
            self._setting.run(
                "release", "promote", name, "--releases", str(self._setting.releases), "--force"
            ).communicate()
            self._server.signal(signal.SIGHUP)

    def _pause(self) -> None:
        while not self._ended.wait(_REDIS_SECONDS):
            self._redis.pause()
            self._ended.wait(_REDIS_SECONDS)
            self._redis.resume()


def main() -> None:
    """Run and print what clients saw and what the service holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2], help="checkout to attack")
    parser.add_argument("--seconds", type=float, default=7200.0, help="in rounds of two minutes, at least four of them")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the attacks")
    arguments = parser.parse_args()
    rounds = max(4, round(arguments.seconds / (_ROUND_SECONDS + _QUIET_SECONDS)))
    with prepared(arguments.root, 0) as setting, redis_server() as redis:
        names = [each.name for each in sorted(setting.releases.glob("2*Z-*"))]
        names.append(setting.another_release())
        own = {"MAX_CONNECTIONS": str(MAX_CONNECTIONS), "REDIS_URL": redis.url}
        with setting.service(settings=own) as server:
            usage, clients, swaps = _rounds(setting, server, redis, (rounds, arguments.seed, names))
    _report(usage, clients, swaps)


def _rounds(
    setting: AttackSetting, server: Server, redis: RedisServer, plan: tuple[int, int, list[str]]
) -> tuple[list[ResourceUsage], list[SteadyClient], int]:
    rounds, seed, names = plan
    rng, began, usage, clients, swaps = random.Random(seed), time.monotonic(), [], [], 0  # noqa: S311 (no secret)
    for _ in range(rounds):
        known, new = (SteadyClient(server.port, setting.keys["good"], _RATE, known=known) for known in (True, False))
        with FaultInjector(setting, server, redis, names) as injector, known, new:
            ends = time.monotonic() + _ROUND_SECONDS
            while time.monotonic() < ends:
                (one, with_one), (other, with_other) = rng.sample([*network_attacks(setting.keys).values()], _AT_ONCE)
                with (
                    traffic(one, server.port, _ATTACK_SECONDS, *with_one),
                    traffic(other, server.port, _ATTACK_SECONDS, *with_other),
                ):
                    pass
        swaps += injector.swaps
        clients += [known, new]
        time.sleep(_QUIET_SECONDS)
        if not server.alive:
            break
        usage.append(ResourceUsage.by(server, began))
        print(f"{usage[-1]}", file=sys.stderr, flush=True)
    return usage, clients, swaps


def _report(usage: list[ResourceUsage], clients: list[SteadyClient], swaps: int) -> None:
    asked = [each for client in clients for each in client.asked]
    statuses = Counter(each.status for each in asked)
    unavailable = statuses[503] / len(asked)
    broken = sum(count for status, count in statuses.items() if status == 0 or (status >= 500 and status != 503))
    rows = [[f"{each.at:,.0f}", each.files, each.threads, f"{each.resident / 1e6:,.0f}"] for each in usage]
    first, last = usage[(len(usage) - 1) // 4], usage[-1]
    leaks = last.files > first.files + _SPARE or last.threads > first.threads + _SPARE
    grew = last.resident > _MAX_GROWTH * first.resident
    told = ", ".join(f"{status or 'no reply'}: {count:,}" for status, count in sorted(statuses.items()))
    print(f"{len(asked):,} requests with a key ({told}), {swaps} swaps.\n")
    print(table(["seconds", "open files", "threads", "memory MB"], rows))
    sys.exit(1 if broken or unavailable > _MAX_503 or leaks or grew else 0)


if __name__ == "__main__":
    main()
