"""What several threads bring is done once each, by one of them at a time, and nothing is left lying."""

import threading
from concurrent.futures import ThreadPoolExecutor

from taugate.service.pipeline.engine import Combiner

THREADS, EACH, MOST = 8, 500, 7


def test_everything_is_done_once_by_one_at_a_time() -> None:
    done: list[int] = []
    sizes: list[int] = []
    working = threading.Lock()

    def work(batch: list[int]) -> None:
        assert working.acquire(blocking=False), "two at work"
        done.extend(batch)
        sizes.append(len(batch))
        working.release()

    combiner = Combiner[int](work, MOST)

    def bring(thread: int) -> None:
        for number in range(EACH):
            combiner.bring([thread * EACH + number])

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(bring, range(THREADS)))
    assert sorted(done) == list(range(THREADS * EACH))
    assert max(sizes) <= MOST


def test_who_finds_somebody_at_work_leaves_it_to_them() -> None:
    entered, go_on = threading.Event(), threading.Event()
    batches: list[tuple[str, list[int]]] = []

    def work(batch: list[int]) -> None:
        batches.append((threading.current_thread().name, batch))
        entered.set()
        assert go_on.wait(10)

    combiner = Combiner[int](work, 10)
    first = threading.Thread(target=combiner.bring, args=([1],), name="first")
    first.start()
    assert entered.wait(10)
    combiner.bring([2, 3])
    combiner.bring([4])
    assert batches == [("first", [1])], "returned without waiting"
    go_on.set()
    first.join(10)
    assert batches == [("first", [1]), ("first", [2, 3, 4])]
