"""A corpus that is read back from an engine is that of the release, or is refused; servers are real."""

from collections.abc import Iterator

import numpy as np
import pytest

from engines_tests.servers import running
from taugate.calibration.encoding.shards import SHARD_ROWS
from taugate.calibration.engines import stored_documents
from taugate.calibration.progress import Job
from taugate.errors import ReleaseError
from taugate.release.engine import EngineRecord, GraphParameters
from taugate.retrieval.documents.store import Document
from taugate.retrieval.engines.engine import Engine, Rows, SampleDigest, open_verified, sampled_positions, shard_digest
from taugate.retrieval.engines.search import EngineIndex
from tests.retrieval.engines.corpus import soon
from tests.vectors import unit

COUNT, D = SHARD_ROWS + 300, 4  # more than the sample has, so that what it misses can be altered


def rows() -> Rows:
    vectors = unit(np.random.default_rng(1).standard_normal((COUNT, D)))
    return Rows(vectors, [Document(f"d{place}", f"text {place}") for place in range(COUNT)])


def recorded(engine: Engine, all_rows: Rows) -> EngineRecord:
    sample, places = SampleDigest(), sampled_positions(COUNT)
    sample.add(Rows(all_rows.vectors[places], [all_rows.documents[place] for place in places]))
    parts = [slice(start, start + SHARD_ROWS) for start in range(0, COUNT, SHARD_ROWS)]
    digests = tuple(shard_digest(Rows(all_rows.vectors[part], all_rows.documents[part])) for part in parts)
    return EngineRecord(kind=engine.kind, rows=COUNT, dimension=D, shards=digests, sample=sample.hexdigest())


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running("pgvector") as engine:
        yield engine


@pytest.fixture(scope="module")
def record(engine: Engine) -> EngineRecord:
    return recorded(engine, rows())


def read_back(engine: Engine, record: EngineRecord, held: Rows) -> list[Document]:
    """Upload rows as the collection of a record, and read them as an update does."""
    name = record.collection
    engine.drop(name, soon())
    engine.create(name, D, soon())
    engine.upload(name, 0, held, soon())
    engine.finish(name, GraphParameters(), soon())
    index = EngineIndex(open_verified(engine, record, D, soon()), COUNT, 60)
    return list(stored_documents(index, record, Job()))


def test_corpus_is_read_back(engine: Engine, record: EngineRecord) -> None:
    assert read_back(engine, record, rows()) == rows().documents


@pytest.mark.slow
def test_altered_row_outside_sample_is_detected(engine: Engine, record: EngineRecord) -> None:
    held = rows()
    altered = np.setdiff1d(np.arange(SHARD_ROWS, COUNT), sampled_positions(COUNT))[0]
    held.vectors[altered] = -held.vectors[altered]
    with pytest.raises(ReleaseError, match=f"rows from {SHARD_ROWS} on differ from those of the release"):
        read_back(engine, record, held)
