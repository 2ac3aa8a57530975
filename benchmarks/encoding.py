"""Encode data sets and texts as `taugate calibrate` does, through the project's own cache."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import EncodedDataset, encode, encode_dataset
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.calibration.progress import Job
from taugate.data.beir import Dataset, read_dataset
from taugate.policy.arrays import Float32
from taugate.release.encoder import Role
from taugate.retrieval.encoder.encoder import ExportedEncoder


@lru_cache(maxsize=2)
def loaded_encoder(name: str = DEFAULT_ENCODER) -> ExportedEncoder:
    """Load an encoder, which is exported if the cache has no export of it."""
    return ExportedEncoder.load(exported_encoder(name))


def encoded_set(
    folder: Path, split: str, spool: Path, encoder: str = DEFAULT_ENCODER, name: str = ""
) -> tuple[Dataset, EncodedDataset]:
    """Read and encode a split of a data set; progress goes to stdout.

    Args:
        folder: Folder of the data set.
        split: Split of its judgements.
        spool: Folder for the documents, which must exist as long as the data set is used.
        encoder: Name or folder of the encoder.
        name: Name in the lines of progress, by default that of the folder.
    """
    model = loaded_encoder(encoder)
    dataset = read_dataset(folder, split, spool)
    return dataset, encode_dataset(
        dataset, model, _cache(model), Job(lambda line: print(f"{name or folder.name}: {line}"))
    )


def is_encoded(folder: Path, split: str, spool: Path, encoder: str) -> bool:
    """Return whether the cache has the vectors of all documents and answerable queries of a split."""
    model = loaded_encoder(encoder)
    dataset, cache = read_dataset(folder, split, spool), _cache(model)
    texts: dict[Role, list[str]] = {
        "query": [query.text for query in dataset.answerable],
        "document": [document.encoded_text for document in dataset.documents],
    }
    keys = {cache.key(model.config.cached_as(role) + text) for role, some in texts.items() for text in some}
    return len(cache.get([*keys])) == len(keys)


def encoded_queries(texts: Sequence[str]) -> Float32:
    """Encode n queries with the default encoder; returns their vectors, (n, d)."""
    model = loaded_encoder()
    return encode(model, texts, len(texts), "query", _cache(model), Job()).vectors


def _cache(encoder: ExportedEncoder) -> EmbeddingCache:
    return EmbeddingCache.of(encoder)
