"""For any schedule of queries, cancellations, errors and closing, every caller gets its own result, once."""

import asyncio
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from taugate.service.errors import NotReady
from taugate.service.pipeline.queue import SearchQueue
from taugate.service.pipeline.search import SearchPipeline
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
