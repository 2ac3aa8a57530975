"""What is copied to a GPU, what is asked of the copies, and what happens without enough memory.

Most tests use a test double in place of FAISS's GPU functions: it searches on processors, rounds as a GPU does, and
records each call. Those marked `gpu` need a GPU.
"""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import faiss
import numpy as np
import pytest

from taugate.release.names import Kind
from taugate.retrieval import hardware
from taugate.retrieval.index.approximate import AnyIndex, ApproximateIndex, build
from taugate.retrieval.index.flat import MAX_NEIGHBOURS
from taugate.retrieval.index.top_k import TopK
from tests.retrieval.drawn import KINDS, D, K, clustered
from tests.vectors import unit

ON_GPU: dict[Kind, type] = {
    "flat": faiss.IndexFlatIP,
    "flat-float16": faiss.IndexScalarQuantizer,
    "ivf-flat": faiss.IndexIVFFlat,
}
COUNT = 2500
NO_MEMORY = (
    "Error in virtual void* faiss::gpu::StandardGpuResourcesImpl::allocMemory(const AllocRequest&) at /faiss/x.cpp: "
    "Error: 'err == cudaSuccess' failed: StandardGpuResources: alloc fail type FlatData dev 0 space Device size 9 "
    "(cudaMalloc error out of memory [2])"
)


@dataclass
class FakeGpu:
    """Test double of a GPU: FAISS's functions for one, on processors.

    Attributes:
        copied: Indexes that were copied, in order.
        calls: Number of queries in each search of a copy.
        resources: Number of resource objects.
        failure: Raised by copies and searches if set.
        searching: Searches in progress, at most 1.
    """

    copied: list[Any] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    resources: int = 0
    failure: RuntimeError | None = None
    searching: int = 0

    def new_resources(self) -> object:
        self.resources += 1
        return object()

    def copy(self, resources: object, device: int, index: Any) -> "FakeCopy":
        if self.failure:
            raise self.failure
        assert device == 0
        self.copied.append(index)
        return FakeCopy(self, index)


@dataclass
class FakeCopy:
    """Test double of an index on a GPU; it has no parameters of a search, so no subsets."""

    gpu: FakeGpu
    index: Any
    nprobe: int = 1

    def search(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        if isinstance(self.index, faiss.IndexScalarQuantizer):  # FAISS rounds the queries as well
            queries = queries.astype(np.float16).astype(np.float32)
        return self._called(queries, count, lambda: self.index.search(queries, count))

    def search_preassigned(
        self, queries: np.ndarray, count: int, lists: np.ndarray, scores: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        assert lists.shape == (len(queries), self.nprobe)
        return self._called(queries, count, lambda: self.index.search_preassigned(queries, count, lists, scores))

    def _called(self, queries: np.ndarray, count: int, search: Any) -> tuple[np.ndarray, np.ndarray]:
        if self.gpu.failure:
            raise self.gpu.failure
        assert max(count, self.nprobe) <= MAX_NEIGHBOURS
        self.gpu.calls.append(len(queries))
        self.gpu.searching += 1
        assert self.gpu.searching == 1, "FAISS's resources have one user at a time"
        found = search()
        self.gpu.searching -= 1
        return found


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    fake = FakeGpu()
    monkeypatch.setattr(hardware, "gpu_count", lambda: 1)
    monkeypatch.setattr(faiss, "StandardGpuResources", fake.new_resources, raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", fake.copy, raising=False)
    hardware._resources.cache_clear()
    yield fake
    hardware._resources.cache_clear()


@pytest.fixture(scope="module")
def documents() -> np.ndarray:
    return unit(clustered()[:COUNT])


@pytest.fixture(scope="module")
def queries(documents: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(4)
    return unit(documents[rng.integers(0, COUNT, 100)] + 0.2 * rng.standard_normal((100, D)))


def with_lists(kind: Kind, documents: np.ndarray) -> AnyIndex:
    index = build(kind, documents)
    if isinstance(index, ApproximateIndex):
        index.breadth = 16
    return index


def check_equal(found: TopK, expected: TopK) -> None:
    np.testing.assert_array_equal(found.scores, expected.scores)
    np.testing.assert_array_equal(found.positions, expected.positions)


@pytest.mark.parametrize("kind", KINDS)
def test_only_searched_vectors_are_copied(
    kind: Kind, documents: np.ndarray, queries: np.ndarray, fake_gpu: FakeGpu
) -> None:
    """The exact vectors behind codes and graphs only score documents, and lists are chosen on processors."""
    index = build(kind, documents)
    index.score(queries, np.zeros((len(queries), 1), dtype=np.int64))
    assert fake_gpu.copied == []
    index.search(queries, K)
    assert [*map(type, fake_gpu.copied)] == ([ON_GPU[kind]] if kind in ON_GPU else [])
    assert all(copied is index.faiss for copied in fake_gpu.copied)


@pytest.mark.parametrize("kind", ON_GPU)
def test_gpu_results_equal_those_of_processors(
    kind: Kind, documents: np.ndarray, queries: np.ndarray, fake_gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpu = with_lists(kind, documents).search(queries, K)
    assert fake_gpu.calls
    with monkeypatch.context() as without:
        without.setattr(hardware, "gpu_count", lambda: 0)
        check_equal(on_gpu, with_lists(kind, documents).search(queries, K))


@pytest.mark.parametrize("kind", ON_GPU)
def test_batch_is_one_search_of_copy(kind: Kind, documents: np.ndarray, queries: np.ndarray, fake_gpu: FakeGpu) -> None:
    with_lists(kind, documents).search(queries, K)
    assert fake_gpu.calls == [len(queries)]


def test_indexes_share_resources_of_process(documents: np.ndarray, queries: np.ndarray, fake_gpu: FakeGpu) -> None:
    for kind in ON_GPU:
        build(kind, documents).search(queries, K)
    assert (len(fake_gpu.copied), fake_gpu.resources) == (3, 1)


def test_searches_of_gpu_take_turns(documents: np.ndarray, queries: np.ndarray, fake_gpu: FakeGpu) -> None:
    indexes = [build("flat", documents), build("flat", documents)]
    for index in indexes:
        index.search(queries, K)
    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(lambda row: indexes[row % 2].search(queries, K), range(16))]
    for top in found:
        check_equal(top, found[0])


@pytest.mark.parametrize("kind", ON_GPU)
def test_copy_without_memory_falls_back(
    kind: Kind, documents: np.ndarray, queries: np.ndarray, fake_gpu: FakeGpu, caplog: pytest.LogCaptureFixture
) -> None:
    fake_gpu.failure = RuntimeError(NO_MEMORY)
    with caplog.at_level(logging.WARNING, hardware.__name__):
        found = with_lists(kind, documents).search(queries, K)
    (line,) = caplog.records
    assert line.message == "an index is searched on processors, not on the GPU"
    assert line.__dict__["fields"] == {"index": kind, "reason": "cudaMalloc error out of memory [2]"}
    assert fake_gpu.calls == []
    fake_gpu.failure = None
    check_equal(found, with_lists(kind, documents).search(queries, K))


@pytest.mark.parametrize("kind", ON_GPU)
def test_search_without_memory_falls_back_for_good(
    kind: Kind, documents: np.ndarray, queries: np.ndarray, fake_gpu: FakeGpu, caplog: pytest.LogCaptureFixture
) -> None:
    index = with_lists(kind, documents)
    expected = index.search(queries, K)
    calls = len(fake_gpu.calls)
    fake_gpu.failure = RuntimeError(NO_MEMORY)
    with caplog.at_level(logging.WARNING, hardware.__name__):
        check_equal(index.search(queries, K), expected)
        fake_gpu.failure = None
        check_equal(index.search(queries, K), expected)
    assert len(caplog.records) == 1
    assert len(fake_gpu.calls) == calls


def test_more_results_than_gpu_limit_use_processors(documents: np.ndarray, fake_gpu: FakeGpu) -> None:
    assert len(build("flat", documents).search(documents[:1], MAX_NEIGHBOURS + 1).positions[0]) > MAX_NEIGHBOURS
    assert fake_gpu.calls == []


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ON_GPU)
def test_gpu_and_processors_agree(
    kind: Kind, documents: np.ndarray, queries: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hardware.gpu_count():
        pytest.skip("no GPU, or a faiss build without GPU support")
    index = with_lists(kind, documents)
    on_gpu = index.search(queries, K)
    assert index.gpu.index is not None
    monkeypatch.setattr(hardware, "gpu_count", lambda: 0)
    check_equal(on_gpu, with_lists(kind, documents).search(queries, K))
