"""Whatever is asked, left, broken and closed in whatever order: every caller has its own answer, once, and no other."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from taugate.service.errors import NotReady
from taugate.service.pipeline.batcher import Batcher, Job, tell
from taugate.service.pipeline.engine import Combiner

PATIENCE = 10
MOST = 10


@dataclass(frozen=True)
class Item:
    """What is asked; fate: done, fails in the work (with its whole batch), or cannot be sorted."""

    number: int
    group: int
    weight: int
    fate: str


@dataclass
class Works:
    """Does what it is let do, batch by batch, and remembers it."""

    go_on: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    batches: list[list[Item]] = field(default_factory=list)
    finished: int = 0

    def work(self, jobs: Sequence[Job[Item, int]], alone: bool) -> None:
        items = [job.item for job in jobs]
        self.batches.append(items)
        assert self.go_on.acquire(timeout=PATIENCE)
        self.finished += 1
        if any(item.fate == "fails" for item in items):
            raise RuntimeError("broken")
        tell(jobs, [item.number for item in items])

    @staticmethod
    def sort(item: Item) -> tuple[int, int]:
        if item.fate == "no weight":
            raise ValueError("no weight")
        return item.group, item.weight


@dataclass
class Run:
    """A batcher, its callers, and when each of them left."""

    works: Works
    batcher: Batcher[Item, int]
    callers: dict[Item, asyncio.Task[int]] = field(default_factory=dict)
    left_before_work: set[Item] = field(default_factory=set)

    def begun(self) -> set[Item]:
        return {item for batch in self.works.batches for item in batch}

    async def settled(self, workers: int) -> None:
        """Until each worker is at a batch or has none to take."""
        async with asyncio.timeout(PATIENCE):
            while True:
                await asyncio.sleep(0)
                busy = len(self.works.batches) - self.works.finished
                waiting = [item for item, each in self.callers.items() if not each.done() and item not in self.begun()]
                told = all(
                    self.callers[item].done() for batch in self.works.batches[: self.works.finished] for item in batch
                )
                if (busy == workers or not waiting) and (workers > 1 or told):
                    return
                await asyncio.sleep(0.0005)


SUBMIT = st.tuples(
    st.just("submit"),
    st.integers(0, 2),
    st.sampled_from([0, 1, 3, 4, MOST, MOST + 7]),
    st.sampled_from(["done"] * 6 + ["fails", "no weight"]),
)
STEPS = st.lists(
    st.one_of(SUBMIT, SUBMIT, st.tuples(st.just("leave"), st.integers(0, 30)), st.tuples(st.just("work"))), max_size=25
)


async def play(steps: list[tuple], workers: int, *, close_early: bool) -> Run:
    works = Works()
    run = Run(works, Batcher[Item, int](works.work, works.sort, MOST, workers))
    for step in steps:
        if step[0] == "submit":
            item = Item(len(run.callers), *step[1:])
            run.callers[item] = asyncio.create_task(run.batcher.submit(item))
        elif step[0] == "leave" and run.callers:
            item, caller = [*run.callers.items()][step[1] % len(run.callers)]
            if not caller.done() and item not in run.begun():
                run.left_before_work.add(item)
            caller.cancel()
        elif step[0] == "work" and len(works.batches) > works.finished:
            works.go_on.release()
        await run.settled(workers)
    if close_early:
        closing = asyncio.create_task(asyncio.to_thread(run.batcher.close))
        await asyncio.sleep(0.001)
        late = Item(len(run.callers), 0, 1, "late")
        run.callers[late] = asyncio.create_task(run.batcher.submit(late))
    for _ in run.callers:
        works.go_on.release()
    if run.callers:
        _, waiting = await asyncio.wait(run.callers.values(), timeout=PATIENCE)
        assert not waiting, "never answered"
    await (closing if close_early else asyncio.to_thread(run.batcher.close))
    return run


@settings(max_examples=60)
@given(STEPS, st.integers(1, 3), st.booleans())
def test_any_schedule(steps: list[tuple], workers: int, close_early: bool) -> None:
    run = asyncio.run(play(steps, workers, close_early=close_early))
    worked = [item for batch in run.works.batches for item in batch]
    assert len(worked) == len({*worked}), "worked on twice"
    assert not run.left_before_work & {*worked}, "worked on after its caller had left"
    for batch in run.works.batches:
        assert len({item.group for item in batch}) == 1
        assert len(batch) == 1 or sum(item.weight for item in batch) <= MOST
        assert [item.number for item in batch] == sorted(item.number for item in batch)
    broken = {item for batch in run.works.batches for item in batch if any(each.fate == "fails" for each in batch)}
    for item, caller in run.callers.items():
        if caller.cancelled():
            continue
        error = caller.exception()
        if error is None:
            assert caller.result() == item.number
            assert item in worked and item not in broken
        elif isinstance(error, NotReady):
            assert close_early and item not in worked
        else:
            assert str(error) == ("no weight" if item.fate == "no weight" else "broken")
            assert item.fate == "no weight" or item in broken


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=4), st.integers(1, 5))
def test_whoever_brings_work_it_is_done_once(threads: list[list[int]], most: int) -> None:
    """Some of it brings more in turn, while it is at work."""
    done: list[object] = []
    sizes: list[int] = []

    def work(batch: list[tuple]) -> None:
        sizes.append(len(batch))
        done.extend(name for name, _ in batch)
        for name, more in batch:
            combiner.bring([((name, each), 0) for each in range(more)])

    combiner = Combiner[tuple](work, most)

    def bring(thread: int) -> None:
        for place, more in enumerate(threads[thread]):
            combiner.bring([((thread, place), more)])

    running = [threading.Thread(target=bring, args=(thread,)) for thread in range(len(threads))]
    for each in running:
        each.start()
    for each in running:
        each.join(PATIENCE)
    expected = [(thread, place) for thread, brought in enumerate(threads) for place in range(len(brought))]
    further = [(name, each) for name in expected for each in range(threads[name[0]][name[1]])]
    assert sorted(done, key=repr) == sorted([*expected, *further], key=repr)
    assert not sizes or max(sizes) <= most
