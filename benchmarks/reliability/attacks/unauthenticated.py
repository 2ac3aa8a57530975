"""Many clients without a key, each well-behaved: together they take connections, processor time and log space."""

import asyncio
import contextlib
import time

from benchmarks.reliability.attacks.setting import AttackResult, AttackSetting
from benchmarks.reliability.attacks.steady_client import SteadyClient
from benchmarks.reliability.attacks.traffic import request, sent, traffic
from benchmarks.serving.client import HOST, connect
from benchmarks.serving.load import LoadJob, run

_CONNECTIONS, _EVERY_SECONDS = 200, 3.5  # keeps a connection open that may idle for five seconds
_SECONDS = 12.0
_RECONNECT_SECONDS = 0.5  # after the service has closed the connection
_CLIENTS = 32
_AS_LIVEZ = 2.0  # bytes that are kept cost little more than none
_LOG_BYTES = 20_000  # a second: 1.7 GB a day, which a log of the usual 10 GB volume keeps for some days


def all_connections(setting: AttackSetting) -> AttackResult:
    """Take every connection: as many clients without a key as the service accepts ask something every 3.5 seconds."""
    with (
        setting.service(settings={"MAX_CONNECTIONS": str(_CONNECTIONS)}) as server,
        traffic(hold_connections, server.port, _SECONDS, _CONNECTIONS),
    ):
        time.sleep(_EVERY_SECONDS)
        with SteadyClient(server.port, setting.keys["good"], 10.0) as client:
            time.sleep(_SECONDS - _EVERY_SECONDS)
    asked = len(client.asked)
    return AttackResult(
        "unauthenticated clients on all connections",
        f"{client.failed} of {asked} failed ({client.statuses})",
        "0",
        not client.failed,
    )


def hold_connections(port: int, seconds: float, connections: int) -> int:
    """Hold so many connections with a request now and then, and return how many were sent; reconnect when closed."""
    asked = 0
    livez, refused = request("GET", "/livez"), request("POST", "/search", b'{"query":"a"}')

    async def client(number: int, ends: float) -> None:
        nonlocal asked
        while time.monotonic() < ends:
            try:
                reader, writer = await asyncio.open_connection(HOST, port)
                while time.monotonic() < ends and not reader.at_eof():
                    writer.write(livez if number % 2 else refused)
                    asked += 1
                    with contextlib.suppress(TimeoutError):  # what comes is of no interest, only that it ends
                        async with asyncio.timeout(_EVERY_SECONDS):
                            await reader.read()
                writer.close()
            except OSError:
                pass
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def all_clients() -> None:
        ends = time.monotonic() + seconds
        await asyncio.gather(*(client(number, ends) for number in range(connections)))

    asyncio.run(all_clients())
    return asked


def openapi(setting: AttackSetting) -> AttackResult:
    """Read /openapi.json without a key, as fast as it comes, and compare with /livez, which does nothing."""
    with setting.service() as server:
        requests = [server.service.request("Who pays for the repair of the roof?")]
        job, p50 = LoadJob(server.port, [0], 4.0, clients=1), []
        for path in ("/livez", "/openapi.json"):
            with traffic(flood, server.port, 7.0, request("GET", path), _CLIENTS):
                time.sleep(1.0)
                p50.append(run(job, requests).milliseconds(50))
    measured = f"p50 of a known query {p50[1]:.1f} ms, with /livez {p50[0]:.1f} ms"
    limit = f"{_AS_LIVEZ:g} times that with /livez"
    return AttackResult(
        f"{_CLIENTS} unauthenticated clients read /openapi.json", measured, limit, p50[1] <= _AS_LIVEZ * p50[0]
    )


def refusals_log(setting: AttackSetting) -> AttackResult:
    """Ask without a key as fast as the service refuses, and measure what it logs."""
    seconds = 5.0
    with setting.service() as server:
        before = server.logged_bytes
        asked = sent(flood, server.port, seconds, request("POST", "/search", b'{"query":"a"}'), 16)
        time.sleep(0.5)
        written = (server.logged_bytes - before) / seconds
    measured = f"{asked / seconds:,.0f} refusals/s write {written / 1000:,.1f} kB/s"
    return AttackResult("log of refusals", measured, f"{_LOG_BYTES / 1000:g} kB/s", written <= _LOG_BYTES)


def flood(port: int, seconds: float, asked: bytes, clients: int) -> int:
    """Ask in closed loops, reconnecting after each hang-up, and return how many replies came."""
    replies = 0

    async def client(ends: float) -> None:
        nonlocal replies
        while time.monotonic() < ends:
            answered: asyncio.Queue[int] = asyncio.Queue()
            try:
                connection = await connect(port, lambda _, status, __, queue=answered: queue.put_nowait(status))  # type: ignore[misc]  # a default binds the loop's value
                while time.monotonic() < ends and not connection.closed and not connection.ends:
                    connection.send(asked)
                    async with asyncio.timeout(10):
                        await answered.get()
                    replies += 1
                connection.close()
            except (OSError, TimeoutError):
                await asyncio.sleep(0.1)

    async def all_clients() -> None:
        ends = time.monotonic() + seconds
        await asyncio.gather(*(client(ends) for _ in range(clients)))

    asyncio.run(all_clients())
    return replies
