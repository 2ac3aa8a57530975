"""Queries added by several threads are searched once each, by one thread at a time."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from taugate.service.pipeline.queue import SearchQueue

THREADS, EACH, MOST = 8, 500, 7


def test_queries_are_searched_once() -> None:
    done: list[Any] = []
    sizes: list[int] = []
    working = threading.Lock()
    encoded = SearchQueue(MOST)

    def search(thread: int) -> None:
        for number in range(EACH):
            queries: list[Any] = [thread * EACH + number]
            for group in encoded.drain(queries):
                assert working.acquire(blocking=False), "two at work"
                done.extend(group)
                sizes.append(len(group))
                working.release()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(search, range(THREADS)))
    assert sorted(done) == list(range(THREADS * EACH))
    assert max(sizes) <= MOST


def test_draining_thread_takes_queries_of_others() -> None:
    entered, go_on = threading.Event(), threading.Event()
    groups: list[tuple[str, list[Any]]] = []
    encoded = SearchQueue(10)

    def search(queries: list[Any]) -> None:
        for group in encoded.drain(queries):
            groups.append((threading.current_thread().name, [*group]))
            entered.set()
            assert go_on.wait(10)

    first = threading.Thread(target=search, args=([1],), name="first")
    first.start()
    assert entered.wait(10)
    search([2, 3])
    search([4])
    assert groups == [("first", [1])], "returned without waiting"
    go_on.set()
    first.join(10)
    assert groups == [("first", [1]), ("first", [2, 3, 4])]
