"""What was used longest ago goes first, and the bytes stay within the limit."""

import tracemalloc

import pytest

from service.cache.memory import Memory


def test_the_least_recently_used_goes_first() -> None:
    memory = Memory(3 * (512 + 100))
    for name in ("a", "b", "c"):
        memory.put(name, b"x" * 100)
    assert memory.get("a") is not None
    memory.put("d", b"x" * 100)
    assert [memory.get(name) is not None for name in ("a", "b", "c", "d")] == [True, False, True, True]


def test_a_value_over_the_limit_is_not_kept_and_pushes_nothing_out() -> None:
    memory = Memory(1500)
    memory.put("a", b"x" * 100)
    memory.put("b", b"x" * 1500)
    assert memory.get("a") == b"x" * 100
    assert memory.get("b") is None


def test_no_bytes_keep_nothing() -> None:
    memory = Memory(0)
    memory.put("a", b"")
    assert memory.get("a") is None
    assert memory.bytes == 0


@pytest.mark.parametrize("size", [100, 2000])
def test_the_limit_is_one_of_memory_in_use(size: int) -> None:
    limit = 4 << 20
    tracemalloc.start()
    try:
        memory = Memory(limit)
        for number in range(2 * limit // size):
            memory.put(f"taugate:1:20261121T212206Z-911c6aa76f09:int8:reply:{number:064x}", bytes(size))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert memory.bytes <= limit
    assert 0.7 * limit < used < 1.3 * limit
