"""Every reader on what the product wrote, and on some thousand changes of it; `make fuzz` looks further."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest

from tests.fuzz.mutations import mutations
from tests.fuzz.reader import Reader
from tests.fuzz.readers import readers

CHANGES = 4000  # of each reader, all of them together in some 15 s


@pytest.fixture(scope="module")
def every(releases: Path) -> Iterator[dict[str, Reader]]:
    with TemporaryDirectory(dir="/dev/shm") as scratch:
        yield readers(releases, Path(scratch))


NAMES = [
    "manifest", "policy", "encoder", "current", "documents", "golden", "projection", "reference", "outcomes",
    "relevance", "abstention", "metadata", "corpus", "queries", "qrels-test", "query-log", "search", "batch",
    "feedback", "filter", "shown", "drift-state",
]  # fmt: skip


def test_these_are_all(every: dict[str, Reader]) -> None:
    assert [*every] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_takes_what_the_product_wrote_and_refuses_the_rest(every: dict[str, Reader], name: str) -> None:
    reader = every[name]
    for seed in reader.seeds:
        reader.read(seed)  # without an error of any kind
    for content in mutations(reader.seeds, reader.words, CHANGES):
        try:
            reader(content)
        except Exception as error:  # noqa: BLE001 (any other than the reader may raise is the finding)
            pytest.fail(f"{name}: {type(error).__name__}: {error}, on {content!r}")


def test_a_careless_reader_is_found_out() -> None:
    careless = Reader("careless", lambda content: orjson.loads(content)["a"] + 1, (b'{"a": 1, "b": 2}',), (ValueError,))
    with pytest.raises((KeyError, TypeError)):
        for content in mutations(careless.seeds, (), CHANGES):
            careless(content)
