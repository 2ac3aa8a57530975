"""Loads the encoders of a release, and its corpus: files of its own, or a collection in an engine."""

import filecmp
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from taugate.errors import InputError, ReleaseError
from taugate.policy.background import Read, ReadDocuments
from taugate.release.encoder import FILES
from taugate.release.layout import (
    ENCODER_FOLDER,
    ENCODER_FOLDERS,
    FLOAT32_FOLDER,
    LEXICAL,
    MANIFEST,
    METADATA,
    QUERY_FOLDER,
    TEXTS,
)
from taugate.release.manifest import Manifest
from taugate.release.names import INDEX, ReleaseFolder, disagreement
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import Documents, DocumentStore
from taugate.retrieval.encoder.encoder import ExportedEncoder, RequestedPrecision
from taugate.retrieval.encoder.endpoint_access import EndpointAccess
from taugate.retrieval.encoder.loading import OwnVectors, load_encoder
from taugate.retrieval.engines.connect import EngineAccess
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.top_k import Index, Passages
from taugate.retrieval.rerank.stage import SecondStage
from taugate.storage.folders import link_or_copy

if TYPE_CHECKING:  # loads FAISS
    from taugate.retrieval.engines.corpus import EngineCorpus


class EncoderFolder(ReleaseFolder):
    """An encoder: that of documents and queries, or one of queries alone."""

    def write(self, source: Path) -> None:
        """Copy the files of an exported encoder from a folder, and no others."""
        # A file that another encoder of the same release has is stored once, if the file system has hard links: a
        # tokenizer in several precisions, or the weights below a linear map.
        self.path.mkdir()
        for name in FILES:
            if (source / name).exists():  # a graph or the weights of a kernel
                others = [path for folder in ENCODER_FOLDERS if (path := self.path.parent / folder / name).is_file()]
                equal = next((path for path in others if filecmp.cmp(source / name, path, shallow=False)), None)
                if equal is None:
                    shutil.copyfile(source / name, self.path / name)
                else:
                    link_or_copy(equal, self.path / name)

    def open(self, manifest: Manifest, threads: int | None, endpoint: EndpointAccess | None = None) -> ExportedEncoder:
        """Load the encoder."""
        encoder = load_encoder(self.path, threads, endpoint)
        record = ({ENCODER_FOLDER: manifest.encoder} | manifest.query_encoders).get(self.path.name)
        if record is None or encoder.sha256 != record.sha256:
            names = ", ".join(FILES)
            raise ReleaseError(f"{self.path}: its files ({names}) are not the encoder in the manifest; calibrate again")
        if encoder.config.dimension != manifest.encoder.dimension:
            dimensions = sorted({manifest.encoder.dimension, encoder.config.dimension})
            raise ReleaseError(f"{self.path}: manifest and encoder have dimensions {dimensions}; calibrate again")
        return encoder


def own_vectors(release: Path, manifest: Manifest) -> OwnVectors:
    """Return what stands for the encoder of a release that has none."""
    encoder = OwnVectors(manifest.encoder.dimension, manifest.encoder.max_norm)
    if encoder.sha256 != manifest.encoder.sha256:
        raise disagreement(release, ENCODER_FOLDER)
    return encoder


def encoder_folders(release: Path, manifest: Manifest, precision: RequestedPrecision) -> list[Path]:
    """Return the folders of the encoders that may encode queries, the preferred one first."""
    records = manifest.query_encoders
    for folder in (QUERY_FOLDER, FLOAT32_FOLDER):
        if any(name.startswith(f"{folder}/") for name in manifest.files) != (folder in records):
            raise disagreement(release, folder)
    folders = [release / folder for folder, record in records.items() if precision in ("auto", record.precision)]
    if not folders:
        has = " and ".join(record.precision for record in records.values())
        choices = ", ".join(get_args(RequestedPrecision))
        raise InputError(f"TAUGATE_PRECISION {precision}: the release has {has} ({choices})")
    return folders


@dataclass(frozen=True)
class Corpus:
    """The searched corpus of a release."""

    index: Index
    documents: Documents
    metadata: Metadata
    remote_passages: Passages | None = None  # passages in an engine; None if they are in the release
    read: Read | None = None  # reads documents for the relevance model from an engine; None if they are in the release
    engine: "EngineCorpus | None" = None  # the engine; None if the corpus is in the release
    words: LexicalIndex | None = None  # the index of the documents' words; None if the score has no lexical part
    second: SecondStage | None = None  # second stage; None with one stage


class StoredDocuments(Protocol):
    """Documents whose texts can be stored in a folder."""

    def save(self, folder: Path) -> None:
        """Write the files of a DocumentStore."""
        ...


class CorpusFolder(ReleaseFolder):
    """The vectors, texts, metadata and words of the documents."""

    def write(self, vectors: Index, documents: StoredDocuments, metadata: Metadata) -> None:
        """Write vectors, texts and metadata; those of an engine are not written."""
        from taugate.retrieval.index import files  # loads FAISS, as `open` does

        files.save(vectors, self.path)
        documents.save(self.path)
        if metadata.columns:
            metadata.save(self.path / METADATA)

    def write_words(self, words: LexicalIndex) -> None:
        """Write the index of the words of the score; raises OSError if that fails."""
        words.save(self.path / LEXICAL)

    def open(self, manifest: Manifest, access: EngineAccess) -> Corpus:
        """Open the corpus: its own files, or a collection in an engine."""
        from taugate.retrieval.engines.corpus import EngineHybridIndex, open_corpus
        from taugate.retrieval.index import files
        from taugate.retrieval.index.hybrid import HybridIndex

        dimension = manifest.dimension
        weight = 0.0 if manifest.lexical is None else manifest.lexical.weight
        if manifest.engine is None:
            vectors, documents = files.load_index(self.path, manifest.index.kind, dimension), DocumentStore(self.path)
            self._check_counts(manifest, len(vectors), len(documents))
            words = self._open_words(manifest)
            index = vectors if words is None else HybridIndex(vectors, words, weight)
            metadata = Metadata.load(self.path / METADATA, documents) if METADATA in manifest.files else Metadata()
            return Corpus(index, documents, metadata, words=words)
        self._check_counts(manifest, manifest.engine.rows)
        opened = open_corpus(manifest.engine, dimension, access)

        def read(positions: NDArray[np.int64]) -> ReadDocuments:
            rows = opened.index.read(positions)
            return ReadDocuments.of(rows.vectors, [document.encoded_text for document in rows.documents])

        words = self._open_words(manifest)
        hybrid = None if words is None else EngineHybridIndex(opened.index, words, weight)
        passages = replace(opened.passages, hybrid=hybrid)
        return Corpus(hybrid or opened.index, opened.documents, Metadata(), passages, read, opened, words)

    def _check_counts(self, manifest: Manifest, *stored: int) -> None:
        counts = {manifest.data.documents, manifest.index.documents, *stored}
        if len(counts) != 1:
            raise ReleaseError(
                f"{self.path}: {MANIFEST}, {INDEX} and {TEXTS} count {sorted(counts)} documents; calibrate again"
            )

    def _open_words(self, manifest: Manifest) -> LexicalIndex | None:
        record = manifest.lexical
        if record is None:
            return None
        words = LexicalIndex.load(self.path / LEXICAL, manifest.index.documents)
        if (words.statistics.k1, words.statistics.b) != (record.k1, record.b):
            raise ReleaseError(f"{self.path / LEXICAL}: k1 and b are not those of the manifest; calibrate again")
        return words
