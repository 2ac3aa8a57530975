"""Clients without a key who behave, but are many: they take places, processor time and log."""

import asyncio
import contextlib
import time

from benchmarks.reliability.attacks.setting import AttackResult, AttackSetting
from benchmarks.reliability.attacks.traffic import request, sent, traffic
from benchmarks.reliability.attacks.victim import Victim
from benchmarks.serving.client import HOST, connect
from benchmarks.serving.load import LoadJob, run

_PLACES, _EVERY_SECONDS = 200, 3.5  # keeps a connection open that may idle for five seconds
_SECONDS = 12.0
_AWAY_SECONDS = 0.5  # of a stranger on whom the service hung up
_CROWD = 32
_AS_LIVEZ = 2.0  # bytes that are kept cost little more than none
_LOG_BYTES = 20_000  # a second: 1.7 GB a day, which a log of the usual 10 GB volume keeps for some days


def places(setting: AttackSetting) -> AttackResult:
    """Keep every connection busy: as many clients without a key as there are places ask /livez, or something refused, every 3.5 s."""
    with (
        setting.service(settings={"MAX_CONNECTIONS": str(_PLACES)}) as server,
        traffic(keep_places, server.port, _SECONDS, _PLACES),
    ):
        time.sleep(_EVERY_SECONDS)
        with Victim(server.port, setting.keys["good"], 10.0) as victim:
            time.sleep(_SECONDS - _EVERY_SECONDS)
    asked = len(victim.asked)
    return AttackResult(
        "strangers in all places", f"{victim.failed} of {asked} failed ({victim.statuses})", "0", not victim.failed
    )


def keep_places(port: int, seconds: float, places: int) -> int:
    """Requests that strangers made who hold so many connections; who is hung up on comes back."""
    asked = 0
    livez, refused = request("GET", "/livez"), request("POST", "/search", b'{"query":"a"}')

    async def stranger(number: int, ends: float) -> None:
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
            await asyncio.sleep(_AWAY_SECONDS)

    async def crowd() -> None:
        ends = time.monotonic() + seconds
        await asyncio.gather(*(stranger(number, ends) for number in range(places)))

    asyncio.run(crowd())
    return asked


def openapi(setting: AttackSetting) -> AttackResult:
    """Strangers who read /openapi.json as fast as they are given it, compared with /livez, which does nothing."""
    with setting.service() as server:
        requests = [server.service.request("Who pays for the repair of the roof?")]
        job, p50 = LoadJob(server.port, [0], 4.0, clients=1), []
        for path in ("/livez", "/openapi.json"):
            with traffic(flood, server.port, 7.0, request("GET", path), _CROWD):
                time.sleep(1.0)
                p50.append(run(job, requests).milliseconds(50))
    measured = f"p50 of a known query {p50[1]:.1f} ms, with /livez {p50[0]:.1f} ms"
    limit = f"{_AS_LIVEZ:g} times that with /livez"
    return AttackResult(f"{_CROWD} strangers read /openapi.json", measured, limit, p50[1] <= _AS_LIVEZ * p50[0])


def refusals_log(setting: AttackSetting) -> AttackResult:
    """Strangers who are refused as fast as they ask."""
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

    async def crowd() -> None:
        ends = time.monotonic() + seconds
        await asyncio.gather(*(client(ends) for _ in range(clients)))

    asyncio.run(crowd())
    return replies
