"""For any schedule of queries, cancellations, errors and closing, every caller gets its own result, once."""

import asyncio
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taugate.service.access.admission import Admission
from taugate.service.errors import DeadlineExceeded, NotReady, Overloaded
from taugate.service.pipeline.queue import SearchQueue
from taugate.service.pipeline.reply import SingleFlight
from taugate.service.pipeline.search import SearchPipeline
from taugate.service.settings import Settings
from tests.service.pipeline.scripted import PATIENCE, Item, Script

MAX_TOKENS, MAX_GROUP = 10, 3


@dataclass
class Run:
    """A pipeline, its callers, and when each of them left."""

    script: Script
    pipeline: SearchPipeline
    callers: dict[Item, asyncio.Task[int]] = field(default_factory=dict)
    left_before_work: set[Item] = field(default_factory=set)

    def begun(self) -> set[Item]:
        return {item for batch in [*self.script.batches, *self.script.groups] for item in batch}

    async def settled(self, workers: int) -> None:
        """Until each worker is at a batch or has none to take."""
        async with asyncio.timeout(PATIENCE):
            while True:
                await asyncio.sleep(0)
                busy = len(self.script.batches) - self.script.finished
                waiting = [item for item, each in self.callers.items() if not each.done() and item not in self.begun()]
                delivered = all(
                    self.callers[item].done() for batch in self.script.batches[: self.script.finished] for item in batch
                )
                if (busy == workers or not waiting) and (workers > 1 or delivered):
                    return
                await asyncio.sleep(0.0005)


ASK = st.tuples(
    st.just("ask"),
    st.sampled_from([None, 1, 3, 4, MAX_TOKENS, MAX_TOKENS + 7]),
    st.sampled_from(["done"] * 6 + ["tokenize", "encode", "search"]),
)
STEPS = st.lists(
    st.one_of(ASK, ASK, st.tuples(st.just("leave"), st.integers(0, 30)), st.tuples(st.just("work"))), max_size=25
)


async def play(steps: list[tuple], workers: int, *, close_early: bool) -> Run:
    script = Script()
    run = Run(script, script.pipeline(workers=workers, max_tokens=MAX_TOKENS, max_group=MAX_GROUP))
    for step in steps:
        if step[0] == "ask":
            item = Item(len(run.callers), *step[1:])
            run.callers[item] = asyncio.create_task(item.ask(run.pipeline))
        elif step[0] == "leave" and run.callers:
            item, caller = [*run.callers.items()][step[1] % len(run.callers)]
            if not caller.done() and item not in run.begun():
                run.left_before_work.add(item)
            caller.cancel()
        elif step[0] == "work" and len(script.batches) > script.finished:
            script.gate.release()
        await run.settled(workers)
    if close_early:
        closing = asyncio.create_task(asyncio.to_thread(run.pipeline.close))
        await asyncio.sleep(0.001)
        late = Item(len(run.callers), 1, "late")
        run.callers[late] = asyncio.create_task(late.ask(run.pipeline))
    for _ in run.callers:
        script.gate.release()
    if run.callers:
        _, waiting = await asyncio.wait(run.callers.values(), timeout=PATIENCE)
        assert not waiting, "never answered"
    await (closing if close_early else asyncio.to_thread(run.pipeline.close))
    return run


@settings(max_examples=60)
@given(STEPS, st.integers(1, 3), st.booleans())
def test_pipeline_is_correct_for_any_schedule(steps: list[tuple], workers: int, close_early: bool) -> None:
    run = asyncio.run(play(steps, workers, close_early=close_early))
    batches, groups = run.script.batches, run.script.groups
    encoded, searched = ([item for batch in each for item in batch] for each in (batches, groups))
    assert len(encoded) == len({*encoded}), "encoded twice"
    assert len(searched) == len({*searched}), "searched twice"
    assert not run.left_before_work & run.begun(), "worked on after its caller had left"
    for batch in batches:
        assert len({item.length for item in batch}) == 1
        assert len(batch) == 1 or sum(item.length or 0 for item in batch) <= MAX_TOKENS
        assert [item.number for item in batch] == sorted(item.number for item in batch)
    assert all(len(group) <= MAX_GROUP for group in groups)
    for item, caller in run.callers.items():
        if caller.cancelled():
            continue
        error = caller.exception()
        untokenizable = item.fate == "tokenize" and item.length is not None
        if error is None:
            assert caller.result() == item.number**2
            assert item in searched and item not in run.script.broken
            assert (item in encoded) == (item.length is not None)
        elif isinstance(error, NotReady):
            assert close_early and item not in run.begun()
        else:
            assert str(error) == ("has no tokens" if untokenizable else "broken")
            assert untokenizable or item in run.script.broken


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=4), st.integers(1, 5))
def test_added_queries_are_searched_once(threads: list[list[int]], most: int) -> None:
    """Some of them are added by the thread that is draining, while it is at it."""
    done: list[object] = []
    sizes: list[int] = []
    encoded = SearchQueue(most)

    def search(added: list[tuple]) -> None:
        queries: list[Any] = [SimpleNamespace(name=name, more=more) for name, more in added]
        for group in encoded.drain(queries):
            sizes.append(len(group))
            done.extend(query.name for query in group)  # type: ignore[attr-defined]
            for query in group:
                search([((query.name, each), 0) for each in range(query.more)])  # type: ignore[attr-defined]

    def run(thread: int) -> None:
        for place, more in enumerate(threads[thread]):
            search([((thread, place), more)])

    running = [threading.Thread(target=run, args=(thread,)) for thread in range(len(threads))]
    for each in running:
        each.start()
    for each in running:
        each.join(PATIENCE)
    expected = [(thread, place) for thread, brought in enumerate(threads) for place in range(len(brought))]
    further = [(name, each) for name in expected for each in range(threads[name[0]][name[1]])]
    assert sorted(done, key=repr) == sorted([*expected, *further], key=repr)
    assert not sizes or max(sizes) <= most


KEYS = ("a", "b")
JOIN = st.tuples(st.just("join"), st.sampled_from(KEYS))
LEAVE = st.tuples(st.just("leave"), st.integers(0, 30))
LAND = st.tuples(st.sampled_from(["done", "fails"]), st.sampled_from(KEYS))
SHORT_NAP = 12  # turns of the event loop: more than a caller needs to learn of an outcome, and one to begin anew


def admission_settings(queue_limit: int, deadline_ms: int) -> Settings:
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
    limits = Admission(admission_settings(limit, 60_000), seen.append)
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
        limits = Admission(admission_settings(sum(queries), 1), lambda _: None)

        async def late(count: int) -> None:
            async with limits.enqueue(count):
                await asyncio.Event().wait()

        outcomes = await asyncio.gather(*map(late, queries), return_exceptions=True)
        assert {type(each) for each in outcomes} == {DeadlineExceeded}
        assert limits.depth == 0

    asyncio.run(scenario())
