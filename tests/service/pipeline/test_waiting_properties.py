"""Equal work in flight and queries in progress are counted correctly for any order of steps."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taugate.service.access.admission import Admission
from taugate.service.errors import DeadlineExceeded, Overloaded
from taugate.service.pipeline.reply import SingleFlight
from taugate.service.settings import Settings

KEYS = ("a", "b")
JOIN = st.tuples(st.just("join"), st.sampled_from(KEYS))
LEAVE = st.tuples(st.just("leave"), st.integers(0, 30))
LAND = st.tuples(st.sampled_from(["done", "fails"]), st.sampled_from(KEYS))
SHORT_NAP = 12  # turns of the event loop: more than a caller needs to learn of an outcome, and one to begin anew


def settings(queue_limit: int, deadline_ms: int) -> Settings:
    return Settings(releases=Path("nowhere"), queue_limit=queue_limit, deadline_ms=deadline_ms, max_batch=1)


@dataclass
class Airport:
    """Work in flight by key: how it ends is said from outside."""

    flights: SingleFlight[str] = field(default_factory=SingleFlight)
    ends: dict[str, asyncio.Future[str]] = field(default_factory=dict)
    begun: int = 0

    async def work(self, key: str) -> str:
        assert key not in self.ends, "the same work twice at a time"
        self.begun += 1
        number = self.begun
        self.ends[key] = asyncio.get_running_loop().create_future()
        try:
            return f"{key}{number}:{await self.ends[key]}"
        finally:
            del self.ends[key]

    def join(self, key: str) -> asyncio.Task[str]:
        return asyncio.create_task(self.flights.join(key, lambda: self.work(key)))


async def naps() -> None:
    for _ in range(SHORT_NAP):
        await asyncio.sleep(0)


async def fly(steps: list[tuple[str, object]]) -> None:
    airport = Airport()
    callers: list[tuple[str, asyncio.Task[str]]] = []
    for what, which in steps:
        waiting = {key: [task for k, task in callers if k == key and not task.done()] for key in KEYS}
        if what == "join":
            callers.append((which, airport.join(which)))
        elif what == "leave" and callers:
            callers[which % len(callers)][1].cancel()
        elif which in airport.ends:
            end = airport.ends[which]
            end.set_result("x") if what == "done" else end.set_exception(RuntimeError("broken"))
            await naps()
            outcomes = {task.exception() or task.result() for task in waiting[which] if not task.cancelled()}
            assert len(outcomes) == 1, "who waited for the same has the same"
            assert all(task.done() for task in waiting[which])
        await naps()
        for key in KEYS:
            left = [task for k, task in callers if k == key and not task.done()]
            assert (key in airport.ends) == bool(left), "somebody waits for nothing, or nobody for something"
            assert (key in airport.flights) == bool(left)
    for _, task in callers:
        task.cancel()
    await naps()
    assert not airport.ends
    assert all(task.done() for _, task in callers)


@given(st.lists(JOIN | JOIN | LEAVE | LAND, max_size=25))
def test_single_flight_holds_for_any_steps(steps: list[tuple[str, object]]) -> None:
    asyncio.run(fly(steps))


ENTER = st.tuples(st.just("enter"), st.integers(1, 5))
ENDS = st.sampled_from(["done", "fails", "leaves"])


async def admit(steps: list[tuple], limit: int) -> None:
    seen: list[int] = []
    limits = Admission(settings(limit, 60_000), seen.append)
    inside: list[tuple[int, asyncio.Task[None], asyncio.Event, list[bool]]] = []

    async def caller(queries: int, gate: asyncio.Event, broken: list[bool]) -> None:
        async with limits.enqueue(queries):
            await gate.wait()
            if broken:
                raise RuntimeError("broken")

    for what, which in steps:
        expected = sum(each[0] for each in inside)
        if what == "enter":
            gate, broken = asyncio.Event(), []
            task = asyncio.create_task(caller(which, gate, broken))
            await naps()
            if expected + which > limit:
                with pytest.raises(Overloaded):
                    task.result()
            else:
                assert not task.done()
                inside.append((which, task, gate, broken))
        elif inside:
            _, task, gate, broken = inside.pop(which % len(inside))
            if what == "leaves":
                task.cancel()
            broken += [True] * (what == "fails")
            gate.set()
            await asyncio.wait([task])
            assert task.cancelled() == (what == "leaves")
            assert task.cancelled() or (task.exception() is not None) == (what == "fails")
        assert limits.depth == sum(each[0] for each in inside)
        assert limits.depth <= limit
        assert not seen or seen[-1] == limits.depth


@given(st.lists(ENTER | st.tuples(ENDS, st.integers(0, 9)), max_size=25), st.integers(1, 9))
def test_query_limit_holds_for_any_steps(steps: list[tuple], limit: int) -> None:
    asyncio.run(admit(steps, limit))


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_deadline_releases_all_places(queries: list[int]) -> None:
    async def scenario() -> None:
        limits = Admission(settings(sum(queries), 1), lambda _: None)

        async def late(count: int) -> None:
            async with limits.enqueue(count):
                await asyncio.Event().wait()

        outcomes = await asyncio.gather(*map(late, queries), return_exceptions=True)
        assert {type(each) for each in outcomes} == {DeadlineExceeded}
        assert limits.depth == 0

    asyncio.run(scenario())
