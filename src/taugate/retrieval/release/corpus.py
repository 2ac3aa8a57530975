"""Opens the corpus of a release: files of its own, or a collection in an engine."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from taugate.errors import (
    ReleaseError,
)
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import TEXTS, Documents, DocumentStore
from taugate.retrieval.engines.access import EngineAccess
from taugate.retrieval.engines.corpus import EngineCorpus, open_corpus
from taugate.retrieval.engines.hybrid import EngineHybridIndex
from taugate.retrieval.index import files
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.names import INDEX
from taugate.retrieval.index.passages import Passages
from taugate.retrieval.index.top_k import Index
from taugate.retrieval.policy.background import Read, ReadDocuments
from taugate.retrieval.release.layout import (
    LEXICAL,
    MANIFEST,
    METADATA,
)
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.rerank.stage import SecondStage


@dataclass(frozen=True)
class Corpus:
    """The searched corpus of a release.

    Attributes:
        index: Index of the vectors.
        documents: Documents by position.
        metadata: Metadata of the documents.
        remote_passages: Passages in an engine; None if they are in the release.
        read: Reads documents for the relevance model from an engine; None if they are in the release.
        engine: The engine; None if the corpus is in the release.
        second: Second stage; None with one stage.
    """

    index: Index
    documents: Documents
    metadata: Metadata
    remote_passages: Passages | None = None
    read: Read | None = None
    engine: EngineCorpus | None = None
    second: SecondStage | None = None


def open_searched(release: Path, manifest: Manifest, access: EngineAccess) -> Corpus:
    """Open the corpus of a release: its own files, or a collection in an engine."""
    dimension = _search_dimension(manifest)
    if manifest.engine is None:
        vectors = files.load_index(release, manifest.index.kind, dimension)
        documents = DocumentStore(release)
        _check_counts(release, manifest, len(vectors), len(documents))
        lexical = _load_lexical(release, manifest)
        index = vectors if lexical is None else HybridIndex(vectors, *lexical)
        metadata = Metadata.load(release / METADATA, documents) if METADATA in manifest.files else Metadata()
        return Corpus(index, documents, metadata)
    _check_counts(release, manifest, manifest.engine.rows, manifest.engine.rows)
    opened = open_corpus(manifest.engine, dimension, access)

    def read(positions: NDArray[np.int64]) -> ReadDocuments:
        rows = opened.index.read(positions)
        return ReadDocuments.of(rows.vectors, rows.documents)

    lexical = _load_lexical(release, manifest)
    hybrid = None if lexical is None else EngineHybridIndex(opened.index, *lexical)
    passages = replace(opened.passages, hybrid=hybrid)
    return Corpus(hybrid or opened.index, opened.documents, Metadata(), passages, read, opened)


def _check_counts(release: Path, manifest: Manifest, vectors: int, documents: int) -> None:
    counts = {manifest.data.documents, manifest.index.documents, vectors, documents}
    if len(counts) != 1:
        raise ReleaseError(
            f"{release}: {MANIFEST}, {INDEX} and {TEXTS} count {sorted(counts)} documents; calibrate again"
        )


def _search_dimension(manifest: Manifest) -> int:
    """Return the dimension of the searched vectors."""
    return manifest.encoder.dimension if manifest.projection is None else manifest.projection.dimension


def _load_lexical(release: Path, manifest: Manifest) -> tuple[LexicalIndex, float] | None:
    """Load the index of the words and the weight of the share; None if the score has no lexical part."""
    record = manifest.lexical
    if record is None:
        return None
    lexical = LexicalIndex.load(release / LEXICAL, manifest.index.documents)
    if (lexical.statistics.k1, lexical.statistics.b) != (record.k1, record.b):
        raise ReleaseError(f"{release / LEXICAL}: k1 and b are not those of the manifest; calibrate again")
    return lexical, record.weight
