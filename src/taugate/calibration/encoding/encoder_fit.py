"""Whether an encoder suits the texts: what it cannot read or cuts off, and the similarity that it was trained for."""

import json
import re
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import numpy as np

from taugate.calibration.charts.numbers import percent
from taugate.calibration.encoding.source import model_folder
from taugate.errors import EncoderError
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.documents.store import Documents
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.release.layout import MANIFEST
from taugate.retrieval.release.records import EncoderFitRecord, TrainedSimilarity

# Documents that are looked at, spread evenly over the corpus: all of a small one. Tokenizing so many of 256 tokens
# takes two seconds, and a share is known to ±.014 (95 %).
_MAX_DOCUMENTS = 5000
_BLOCK = 512
_NAMES: dict[str, TrainedSimilarity] = {"dot": "dot", "euclidean": "euclidean", "manhattan": "manhattan"}
# Models for the dot product that were published before sentence-transformers wrote the similarity down.
_NAMED_FOR_DOT = re.compile(r"(?:^|[-_/])(?:dot|contriever|tas-b)(?:[-_/]|$)", re.IGNORECASE)


def encoder_fit(
    dataset: Dataset, of_documents: OnnxEncoder, of_queries: OnnxEncoder, trained: TrainedSimilarity | None
) -> EncoderFitRecord | None:
    """Return what is wrong between an encoder and the texts of a data set; None if nothing is.

    Args:
        dataset: Documents and queries.
        of_documents: The encoder of each, mostly the same.
        of_queries: The encoder of each, mostly the same.
        trained: The similarity that it was trained for, None for cosine.
    """
    looked_at, unreadable, indistinct = _documents(dataset.documents, of_documents)
    queries = [query.text for query in dataset.answerable + dataset.unanswerable]
    tokens = of_queries.tokenize(queries, "query")
    record = EncoderFitRecord(
        documents=looked_at,
        unreadable_documents=unreadable,
        indistinct_documents=indistinct,
        queries=len(queries),
        truncated_queries=sum(each.truncated for each in tokens),
        unreadable_queries=sum(each.unreadable for each in tokens),
        trained_similarity=trained,
    )
    return record if record.is_notable else None


def _documents(documents: Documents, encoder: OnnxEncoder) -> tuple[int, int, int]:
    """Count the documents that are looked at, that are unreadable, and that get the vector of another text."""
    positions = np.unique(np.linspace(0, len(documents) - 1, min(len(documents), _MAX_DOCUMENTS)).astype(np.int64))
    unreadable = 0
    alike: defaultdict[tuple[int, ...], list[str]] = defaultdict(list)  # texts that are not read whole, by their tokens
    for first in range(0, len(positions), _BLOCK):
        texts = [documents[position].encoded_text for position in positions[first : first + _BLOCK].tolist()]
        for text, tokens in zip(texts, encoder.tokenize(texts, "document"), strict=True):
            unreadable += tokens.unreadable
            if tokens.unread and not tokens.truncated:
                alike[tuple(tokens.ids)].append(text)
    indistinct = sum(len(texts) for texts in alike.values() if len({*texts}) > 1)
    return len(positions), unreadable, indistinct


def trained_similarity(name_or_path: str) -> TrainedSimilarity | None:
    """Return the similarity that an encoder was trained for, None if cosine does the same or nothing is known.

    An encoder whose last module normalizes has vectors of one length, for which every similarity gives the order of the
    cosine.

    Args:
        name_or_path: Of a sentence-transformers model, or of the encoder in a release, whose manifest says it.
    """
    path = Path(name_or_path)
    with suppress(OSError, ValueError, LookupError, TypeError):
        if (manifest := path.parent / MANIFEST).is_file():
            return _NAMES.get(json.loads(manifest.read_bytes())["encoder_fit"]["trained_similarity"])
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, EncoderError):
        folder = model_folder(name_or_path)
        modules = json.loads((folder / "modules.json").read_bytes())
        if modules[-1]["type"].endswith("Normalize"):
            return None
        config = folder / "config_sentence_transformers.json"
        written = json.loads(config.read_bytes()).get("similarity_fn_name") if config.is_file() else None
        if written is None and _NAMED_FOR_DOT.search(name_or_path):
            return "dot"
        return next((each for name, each in _NAMES.items() if str(written).startswith(name)), None)
    return None


def encoder_fit_warnings(record: EncoderFitRecord | None, encoder: str, window: int) -> list[str]:
    """Return one sentence for each thing to put right; none for None.

    Args:
        record: Of the release.
        encoder: Its name.
        window: Tokens that it reads of a query.
    """
    if record is None:
        return []
    found = []
    if (trained := record.trained_similarity) is not None:
        words = "the dot product" if trained == "dot" else f"{trained} distance"
        found.append(
            f"the encoder {encoder} was trained for {words} and does not normalize its vectors, and Taugate compares "
            "by cosine, which leaves their lengths out; compare its accuracy with that of an encoder for cosine"
        )
    if record.unreadable_documents:
        found.append(
            f"the encoder cannot read {_of(record.unreadable_documents, record.documents, 'documents')}: most of their "
            "text is unknown tokens, so their similarities mean nothing; choose an encoder for their language"
        )
    if record.indistinct_documents:
        found.append(
            f"{_of(record.indistinct_documents, record.documents, 'documents')} have the same vector as another text, "
            "as they differ only in words that the encoder does not know; choose an encoder for their language"
        )
    if record.unreadable_queries:
        found.append(
            f"the encoder cannot read {_of(record.unreadable_queries, record.queries, 'labelled queries')}: most of "
            "their text is unknown tokens; the service refuses such queries as `unreadable`"
        )
    if record.truncated_queries:
        found.append(
            f"{_of(record.truncated_queries, record.queries, 'labelled queries')} are longer than the encoder's "
            f"{window:,} tokens, and what comes after is not read; replies to such queries say `truncated`"
        )
    return found


def _of(part: int, whole: int, what: str) -> str:
    return f"{part:,} of {whole:,} {what} ({percent(part / whole)})"
