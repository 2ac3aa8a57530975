"""Vectors and search of an updated corpus: from the current release if a text is unchanged, else from the encoder.

A vector depends on its text alone, to the last bit (`retrieval/encoder/encoder.py`), so encoding again on the machine
that made the release would give the same vectors. Another kind of processor may change the last bit; the golden queries
check at load that the encoder gives the same results on this machine.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from taugate.calibration.acceptance.accept import accept_updated_index
from taugate.calibration.acceptance.baseline import (
    AcceptedSearch,
    GateState,
    LexicalPart,
    RecordedProjection,
    SearchTrial,
)
from taugate.calibration.encoding.cache import UNKNOWN, CorpusChanges, EmbeddingCache
from taugate.calibration.encoding.corpus import (
    EncodedDataset,
    EncodedTexts,
    encode,
    encode_queries,
    own_dataset,
    warn_of_longer,
    with_words,
)
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.calibration.progress import Job
from taugate.data.beir import Dataset
from taugate.errors import InputError, ReleaseError
from taugate.policy.arrays import Float32, map_dense, require_in_memory
from taugate.release.layout import ENCODER_FOLDER
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.index.approximate import AnyIndex
from taugate.retrieval.index.hybrid import vector_index, words_of
from taugate.retrieval.loading import EncoderFolder
from taugate.retrieval.reader import Release
from taugate.retrieval.vectors import Projection

# Documents whose vectors are compared with the release's, and the least median cosine: the codes of an index change a
# cosine by up to .02, and two models give unrelated vectors.
_COMPARED, _SAME_MODEL = 1000, 0.95


def encode_changes(
    dataset: Dataset, changes: CorpusChanges, release: Release, encoders: Encoders, job: Job
) -> EncodedDataset:
    """Encode the texts that are new since the current release, and all queries."""
    if dataset.vectors is not None:
        warn_of_longer(dataset.vectors.documents, encoders.documents.config, job)
        return _own_vectors(own_dataset(dataset, dataset.vectors, job), changes, release)
    documents, texts = _documents(dataset, changes, release, encoders.documents, job)
    cache = EmbeddingCache.of(encoders.queries)
    queries = encode_queries(dataset, encoders.queries, cache, job).vectors
    truncated = _truncated(dataset.documents, changes, release, encoders.documents)
    counted = f"{texts:,} {'text' if texts == 1 else 'texts'}"
    job.describe(
        "encode", f"Encoded {counted} for {len(dataset.documents):,} documents (the other vectors were reused)"
    )
    job.add("encode", 0.0)  # also if nothing was encoded
    lengths = np.array([len(document.encoded_text.encode()) for document in dataset.documents], dtype=np.int64)
    encoded = EncodedDataset(documents=documents, lengths=lengths, truncated_documents=truncated, **queries)
    return _projected_queries(encoded, release.retriever.projection)


def _own_vectors(encoded: EncodedDataset, changes: CorpusChanges, release: Release) -> EncodedDataset:
    """Return vectors that came with the newer corpus, projected as those of the release."""
    projection, index = release.retriever.projection, vector_index(release.retriever.index)
    documents = _projected(projection, encoded.documents)
    kept = np.flatnonzero(changes.sources != UNKNOWN)
    kept = kept[:: max(1, len(kept) // _COMPARED)]
    same = documents.shape[1] == index.dimension
    if not same or (len(kept) and np.median(index.score(documents[kept], changes.sources[kept, None])) < _SAME_MODEL):
        raise InputError(
            f"the vectors of unchanged documents are not those of {release.manifest.release_id}, so another model made "
            "them, and its threshold means nothing for them; run taugate calibrate"
        )
    return replace(_projected_queries(encoded, projection), documents=documents)


def _documents(
    dataset: Dataset, changes: CorpusChanges, release: Release, encoder: ExportedEncoder, job: Job
) -> tuple[Float32, int]:
    """Return the vectors of all documents, (N, d) float32, and how many texts were encoded."""
    sources, index = changes.sources, vector_index(release.retriever.index)
    if not isinstance(index, AnyIndex):
        raise TypeError(f"{type(index).__name__} is not an index of a release")
    if index.stores_rounded_vectors:
        job.report(
            f"the index is {index.kind} and stores rounded vectors; encoding again all texts whose exact vectors are "
            "not in the cache"
        )
        sources = np.full_like(sources, UNKNOWN)
    new = np.flatnonzero(sources == UNKNOWN)
    texts = [dataset.documents[position].encoded_text for position in new.tolist()]
    cache = EmbeddingCache.of(encoder)
    encoded = encode(encoder, texts, len(texts), "document", cache, job)
    projection, reusable = release.retriever.projection, np.flatnonzero(sources != UNKNOWN)
    vectors = np.empty((len(sources), index.dimension), dtype=np.float32)
    vectors[new] = _projected(projection, encoded.vectors)
    vectors[reusable] = index.vectors[sources[reusable]]
    return vectors, encoded.encoded


def _projected_queries(encoded: EncodedDataset, projection: Projection | None) -> EncodedDataset:
    return encoded.with_queries(lambda _, vectors: map_dense(vectors, lambda dense: _projected(projection, dense)))


def _projected(projection: Projection | None, vectors: Float32) -> Float32:
    return vectors if projection is None else projection.apply(vectors)


def _truncated(documents: DocumentStore, changes: CorpusChanges, release: Release, encoder: ExportedEncoder) -> int:
    """Count the documents longer than the encoder reads, from the count of the release and the changes."""
    count = release.manifest.data.truncated_documents
    for store, places, sign in ((release.documents, changes.missing_copies, -1), (documents, changes.extra_copies, 1)):
        tokens = encoder.tokenize([store[position].encoded_text for position in places], "document")
        count += sign * sum(
            times for times, text_tokens in zip(places.values(), tokens, strict=True) if text_tokens.truncated
        )
    return count


def release_encoders(folder: Path, release: Release) -> Encoders:
    """Load the encoders that a release was calibrated with."""
    manifest = release.manifest
    if release.precision != manifest.answering.precision:
        raise ReleaseError(
            f"{folder}: on this machine its {manifest.answering.precision} encoder does not give the recorded results; "
            "update it on the kind of machine that it was calibrated on"
        )
    if not manifest.reads_texts:
        return Encoders.of_vectors(manifest.encoder.dimension, manifest.encoder.max_norm)
    queries, *exact = [EncoderFolder(folder / name).open(manifest, None) for name in manifest.query_encoders]
    float32 = exact[0] if exact else None
    if manifest.query_encoder is not None:
        return Encoders(queries, EncoderFolder(folder / ENCODER_FOLDER).open(manifest, None), float32)
    return Encoders(queries, float32 or queries, float32)


def accept_index(
    inputs: CalibrationInputs, release: Release, encoders: Encoders, encoded: EncodedTexts
) -> AcceptedSearch:
    """Build the index of the release's kind: exact, or approximate and tested by the gate again.

    A lexical part keeps its weight, k1 and b, and is computed from the words of the updated corpus.

    Args:
        inputs: The updated corpus with its queries, and the settings of the update.
    """
    manifest = release.manifest
    dataset, lexical, before = inputs.dataset, None, words_of(release.retriever.index)
    with inputs.job.stage("index"):
        if before is not None:
            texts = (document.encoded_text for document in dataset.documents)
            lexical = LexicalPart(before.lexical.of_other_texts(texts), before.weight)
            encoded = with_words(encoded, dataset, lexical.words.statistics.rule)
        trial = SearchTrial.build(
            dataset.answerable,
            encoded.answerable,
            require_in_memory(encoded.documents),
            inputs.settings.k,
            dataset.documents.parents,
            lexical,
        )
    projection = None
    if manifest.projection is not None and release.retriever.projection is not None:
        projection = RecordedProjection(release.retriever.projection, manifest.projection)
    exact = GateState.exact(encoders.queries, encoded, trial)
    inherited = replace(
        exact.accepted,
        projection=projection,
        float32=encoders.float32,
        documents=None if manifest.query_encoder is None else encoders.documents,
        golden_tolerance=manifest.golden_tolerance,
    )
    return accept_updated_index(inputs, replace(exact, accepted=inherited))
