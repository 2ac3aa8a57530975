"""Queries that arrive during a batch form the next one; none waits without need, and none is lost."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from taugate.service.errors import NotReady
from taugate.service.pipeline.search import SearchPipeline
from tests.service.pipeline.scripted import PATIENCE, Item, Script

Scenario = Callable[[Script, SearchPipeline], Awaitable[None]]


async def ask(pipeline: SearchPipeline, items: Sequence[Item]) -> list[int]:
    return await asyncio.gather(*(item.ask(pipeline) for item in items))


def ones(*numbers: int) -> list[Item]:
    """Queries of one length."""
    return [Item(number) for number in numbers]


def run(scenario: Scenario, max_tokens: int = 100, workers: int = 1, *, packed: bool = False) -> Script:
    script = Script()

    async def body() -> None:
        pipeline = script.pipeline(workers=workers, max_tokens=max_tokens, packed=packed)
        try:
            await scenario(script, pipeline)
        finally:
            script.open()
            await asyncio.to_thread(pipeline.close)

    asyncio.run(asyncio.wait_for(body(), 3 * PATIENCE))
    return script


def behind_the_first(items: Sequence[Item], max_tokens: int = 100, *, packed: bool = False) -> list[list[int]]:
    """Batches of queries that arrive, in this order, while another is at work."""

    async def scenario(script: Script, pipeline: SearchPipeline) -> None:
        first = asyncio.create_task(ask(pipeline, ones(1)))
        await script.busy()
        others = asyncio.create_task(ask(pipeline, items))
        await asyncio.sleep(0)
        script.open()
        assert await others == [item.number**2 for item in items]
        assert await first == [1]

    batches = run(scenario, max_tokens, packed=packed).numbers()
    assert batches[0] == [1]
    return batches[1:]


def test_queries_arriving_meanwhile_form_one_batch() -> None:
    async def scenario(script: Script, pipeline: SearchPipeline) -> None:
        first = asyncio.create_task(ask(pipeline, ones(1)))
        await script.busy()
        others = [asyncio.create_task(ask(pipeline, ones(n, n + 1))) for n in (2, 4, 6)]
        await asyncio.sleep(0)
        script.open()
        assert await first == [1]
        assert [await each for each in others] == [[4, 9], [16, 25], [36, 49]]

    assert run(scenario).numbers() == [[1], [2, 3, 4, 5, 6, 7]]


def test_batch_is_limited_by_tokens() -> None:
    assert behind_the_first([Item(n, 4) for n in (5, 3, 8, 2, 6)], max_tokens=10) == [[5, 3], [8, 2], [6]]


def test_long_query_is_its_own_batch() -> None:
    assert behind_the_first([Item(2, 30), Item(3, 30)], max_tokens=10) == [[2], [3]]


def test_batches_have_one_length() -> None:
    items = [Item(2, 20), Item(3, 30), Item(4, 20), Item(5, 10), Item(6, 30), Item(7, 20)]
    assert behind_the_first(items) == [[2, 4, 7], [3, 6], [5]]


def test_packed_batch_has_queries_of_any_lengths_in_order() -> None:
    items = [Item(2, 20), Item(3, 30), Item(4, None), Item(5, 45), Item(6, 10), Item(7, 1)]
    assert behind_the_first(items, packed=True) == [[2, 3, 5], [6, 7]], "at most 100 tokens; one needs no encoding"


@pytest.mark.parametrize(
    ("packed", "expected"),
    [(True, [[3, 4, 5], [6], [7]]), (False, [[3, 4, 5, 6, 7]])],
    ids=["⌈5 / 2⌉, ⌈2 / 2⌉ and ⌈1 / 2⌉", "all of one length"],
)
def test_worker_leaves_share_to_others_if_packed(packed: bool, expected: list[list[int]]) -> None:
    async def scenario(script: Script, pipeline: SearchPipeline) -> None:
        first = asyncio.create_task(ask(pipeline, ones(1)))
        await script.busy()
        second = asyncio.create_task(ask(pipeline, ones(2)))
        await script.busy()
        others = asyncio.create_task(ask(pipeline, ones(3, 4, 5, 6, 7)))
        while pipeline._queue._arrived.qsize() < 5:
            await asyncio.sleep(0)
        script.open()
        assert await asyncio.gather(first, second, others) == [[1], [4], [9, 16, 25, 36, 49]]

    batches = run(scenario, workers=2, packed=packed).numbers()
    assert batches[2:] == expected


def test_small_group_is_not_starved() -> None:
    assert behind_the_first([Item(2, 8), Item(3, 8), Item(4, 8), Item(5, 7)], max_tokens=10) == [[2], [5], [3], [4]]


def test_idle_worker_takes_query_at_once() -> None:
    async def scenario(script: Script, pipeline: SearchPipeline) -> None:
        script.open()
        for number in range(5):
            assert await ask(pipeline, ones(number)) == [number**2]

    assert run(scenario).numbers() == [[0], [1], [2], [3], [4]]


def test_workers_take_separate_batches() -> None:
    async def scenario(script: Script, pipeline: SearchPipeline) -> None:
        first = asyncio.create_task(ask(pipeline, ones(1)))
        await script.busy()
        second = asyncio.create_task(ask(pipeline, ones(2)))
        await script.busy()
        third = asyncio.create_task(ask(pipeline, ones(3)))
        await asyncio.sleep(0)
        script.open()
        assert [await each for each in (first, second, third)] == [[1], [4], [9]]
        while pipeline._busy:  # they deliver their results a moment before they are idle
            await asyncio.sleep(0)
        assert await ask(pipeline, ones(4)) == [16]
        assert await ask(pipeline, [Item(5), Item(6, 2)]) == [25, 36]

    script = run(scenario, workers=2)
    assert script.numbers()[:3] == [[1], [2], [3]]
    assert script.alone[:2] == [True, False]
    assert script.alone[3], "all were idle when the fourth came"


@pytest.mark.parametrize("stage", ["encode", "search"])
def test_error_reaches_only_its_batch(stage: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(script: Script, pipeline: SearchPipeline) -> None:
        both = [asyncio.create_task(ask(pipeline, [Item(n, fate=stage)] * 2)) for n in (1, 2)]
        script.open()
        for each in both:
            with pytest.raises(RuntimeError, match="broken"):
                await each
        assert await ask(pipeline, ones(3)) == [9]

    run(scenario)
    assert "never retrieved" not in caplog.text


def test_closing_finishes_batch_and_fails_waiting_queries() -> None:
    async def scenario(script: Script, pipeline: SearchPipeline) -> None:
        first, waiting = asyncio.create_task(ask(pipeline, ones(1))), asyncio.create_task(ask(pipeline, ones(2)))
        await script.busy()
        closing = asyncio.create_task(asyncio.to_thread(pipeline.close))
        await asyncio.sleep(0.05)
        assert not closing.done()
        script.open()
        await closing
        assert await first == [1]
        with pytest.raises(NotReady, match="shutting down"):
            await waiting

    assert run(scenario, max_tokens=1).numbers() == [[1]]
