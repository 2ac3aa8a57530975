"""Every reader on files of the product and on thousands of mutations; `make fuzz` draws more."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest

from taugate.retrieval.encoder.bert import processor_path
from tests.fuzz.mutations import mutations
from tests.fuzz.reader import Reader
from tests.fuzz.readers import readers

MUTATIONS = 4000  # for each reader; some 15 s for all


@pytest.fixture(scope="module")
def all_readers(releases: Path) -> Iterator[dict[str, Reader]]:
    with TemporaryDirectory(dir="/dev/shm") as scratch:
        yield readers(releases, Path(scratch))


NAMES = [
    "manifest", "policy", "encoder", "current", "documents", "golden", *(["weights"] if processor_path("int8") else []),
    *(["kernel-layout"] if processor_path("float32") else []),
    "projection", "reference", "outcomes", "relevance", "abstention", "lexical", "words-by-sentence", "metadata",
    "corpus", "queries", "qrels-test", "query-log", "search", "batch", "feedback", "filter", "shown", "drift-state",
]  # fmt: skip


def test_every_reader_is_listed(all_readers: dict[str, Reader]) -> None:
    assert [*all_readers] == NAMES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_reader_accepts_valid_and_refuses_mutated(all_readers: dict[str, Reader], name: str) -> None:
    reader = all_readers[name]
    for seed in reader.seeds:
        reader.read(seed)  # must not raise
    for content in mutations(reader.seeds, reader.words, MUTATIONS):
        try:
            reader(content)
        except Exception as error:  # noqa: BLE001 (any error outside `may` is a finding)
            pytest.fail(f"{name}: {type(error).__name__}: {error}, on {content!r}")


def test_careless_reader_is_detected() -> None:
    careless = Reader("careless", lambda content: orjson.loads(content)["a"] + 1, (b'{"a": 1, "b": 2}',), (ValueError,))
    with pytest.raises((KeyError, TypeError)):
        for content in mutations(careless.seeds, (), MUTATIONS):
            careless(content)
