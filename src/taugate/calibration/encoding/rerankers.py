"""Finds the reranker that a command requests, exports it once, and encodes tokens for late interaction.

A model of late interaction then encodes the documents of the data set.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.encoding.cache import UNKNOWN
from taugate.calibration.encoding.source import MAX_CHARS, CheaperPrecision, is_exported, model_folder, source_digest
from taugate.calibration.export.encoders import pytorch_versions
from taugate.calibration.export.model_folder import gives_token_vectors
from taugate.calibration.progress import Job
from taugate.errors import EncoderError, InputError
from taugate.policy.arrays import Float32
from taugate.registry.catalog import current_id
from taugate.release.adaptation import RerankerAdaptation, read_reranker_adaptation
from taugate.release.encoder import TOKENIZER, WEIGHTS
from taugate.release.layout import RERANKER_FOLDER, TOKEN_VECTORS
from taugate.release.search_records import TokenVectorsRecord
from taugate.retrieval.documents.store import Documents
from taugate.retrieval.encoder.bert import processor_path
from taugate.retrieval.rerank import cross_encoder, late_interaction
from taugate.retrieval.rerank.cross_encoder import CrossEncoder
from taugate.retrieval.rerank.endpoint import RerankerEndpoint, reranker_endpoint
from taugate.retrieval.rerank.stage import Reranker, TextReranker
from taugate.storage.files import sha256_json
from taugate.storage.folders import cache_folder, link_or_copy, write_cached
from taugate.storage.tensors import Arrays, write_tensors

if TYPE_CHECKING:
    from taugate.calibration.export.bert import Bert


_BLOCK = 256  # documents encoded together: 20 MB of vectors of 128 dimensions if they have 150 tokens

# Raise it when calibration/export/rerankers.py writes other bytes for the same model.
_EXPORT_VERSION = 2
_CHEAPER_VERSION = 1  # raise it when `cheaper_reranker` writes other bytes for the same model
_ENDPOINT, _AUTO, _LATE = "endpoint", "auto", "late"


class EarlierTokens(NamedTuple):
    """Token vectors of an earlier corpus, and (N,) int64 positions in it by position, UNKNOWN for a new text."""

    vectors: late_interaction.TokenVectors
    sources: NDArray[np.int64]


def encode_tokens(
    encoder: late_interaction.TokenEncoder, documents: Documents, path: Path, job: Job, earlier: EarlierTokens | None
) -> late_interaction.TokenVectors:
    """Write the token vectors of all documents to a file.

    Args:
        documents: The documents by position.
        earlier: Vectors that need not be computed, and the weights of tokens, which an update keeps; None if all
            do.
    """
    if earlier is not None:
        weights = earlier.vectors.weights
    else:
        weights = rarity(_ids(encoder, documents), encoder.vocabulary) if encoder.config.weighted else None
    late_interaction.write_token_vectors(path, _coded(encoder, documents, job, earlier), weights)
    return late_interaction.TokenVectors(path, encoder.config.dimension)


def _blocks(count: int) -> Iterator[NDArray[np.int64]]:
    return (np.arange(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK))


def _coded(
    encoder: late_interaction.TokenEncoder, documents: Documents, job: Job, earlier: EarlierTokens | None
) -> Iterator[late_interaction.CodedTokens]:
    """Yield the token vectors of one document after the other."""
    sources = np.full(len(documents), UNKNOWN) if earlier is None else earlier.sources
    with job.task("encoding tokens", len(documents)) as task:
        for block in _blocks(len(documents)):
            new = documents.at(block[sources[block] == UNKNOWN])
            encoded = iter(encoder.encode([document.encoded_text for document in new], "document"))
            for source in sources[block].tolist():
                if earlier is None or source == UNKNOWN:
                    yield late_interaction.coded(next(encoded).vectors)
                else:
                    yield earlier.vectors[source]
            task.advance(len(block))


def _ids(encoder: late_interaction.TokenEncoder, documents: Documents) -> Iterator[list[int]]:
    for block in _blocks(len(documents)):
        yield from encoder.tokenize([document.encoded_text for document in documents.at(block)], "document")


def rarity(documents: Iterable[Sequence[int]], vocabulary: int) -> Float32:
    """Return the weight of each token id, (vocabulary,) float32: log((N + 1) / (n + ½)) if n of N documents have it.

    A token that no document has weighs as one that a single document has, so that no weight tells of one document.
    """
    counts, size = np.zeros(vocabulary, dtype=np.int64), 0
    for size, ids in enumerate(documents, start=1):  # noqa: B007 (counts them)
        counts[np.unique(ids)] += 1
    weights: Float32 = np.log((size + 1) / (np.maximum(counts, 1) + 0.5)).astype(np.float32)
    return weights


@dataclass(frozen=True)
class RequestedReranker:
    """A reranker to try."""

    # The model or the endpoint, to which `over` gives the documents
    reranker: CrossEncoder | late_interaction.TokenEncoder | RerankerEndpoint
    model: str | None  # name of the model in requests to an endpoint; None without an endpoint, or if they name none
    gated: bool  # whether it is used only if the gate accepts it
    adaptation: RerankerAdaptation | None = None  # record of a reranker that `taugate adapt` trained; None for others

    @classmethod
    def find(cls, choice: str, encoder: str | None, releases: Path) -> Self | None:
        """Find a reranker by the value of --rerank.

        Args:
            choice: `auto`, `auto:MODEL` or MODEL, which is a folder, a name on the hub, `endpoint`,
                `endpoint:NAME`, or `late` for the token vectors of the encoder.
            encoder: Name or path of the encoder; None with own vectors.

        Returns:
            None if `auto` finds neither a reranker in the encoder's folder nor one in the current release.
        """
        automatic, _, named = choice.partition(":") if choice.startswith(f"{_AUTO}:") else ("", "", choice)
        if choice == _AUTO:
            folder = _own_reranker(encoder, releases)
            if folder is None:
                return None
            return cls(_loaded(exported_reranker(str(folder))), None, True, read_reranker_adaptation(folder))
        if named == _LATE:
            if encoder is None:
                raise InputError(
                    f"--rerank {choice}: needs an encoder, but the data set comes with vectors; name a cross-encoder "
                    "or a model of late interaction"
                )
            return cls(_loaded(exported_reranker(encoder, of_encoder=True)), None, bool(automatic))
        kind, _, model = named.partition(":")
        if kind == _ENDPOINT:
            return cls(reranker_endpoint(model or None), model or None, bool(automatic))
        adaptation = read_reranker_adaptation(Path(named))
        return cls(_loaded(exported_reranker(named)), None, bool(automatic), adaptation)

    @classmethod
    def of(cls, reranker: Reranker, model: str | None) -> Self:
        """Return the reranker of a release, without its documents; `model` is as in the manifest."""
        if isinstance(reranker, late_interaction.LateInteraction):
            return cls(reranker.encoder, model, gated=False)
        scorer = reranker.scorer if isinstance(reranker, TextReranker) else None
        if not isinstance(scorer, CrossEncoder | RerankerEndpoint):
            raise TypeError(f"{type(reranker).__name__} is no reranker of a release")
        return cls(scorer, model, gated=False)

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.reranker.config.name

    def over(self, documents: Documents, spool: Path, job: Job, earlier: EarlierTokens | None = None) -> Reranker:
        """Return the reranker of the documents of a data set.

        Args:
            documents: The documents by position.
            earlier: Token vectors that need not be computed.
        """
        if not isinstance(self.reranker, late_interaction.TokenEncoder):
            return TextReranker(self.reranker, documents)
        vectors = encode_tokens(self.reranker, documents, spool / TOKEN_VECTORS, job, earlier)
        size = TokenVectorsRecord.of(vectors.dimension, vectors.counts(range(len(vectors)))).bytes_per_passage
        job.report(f"token vectors take {size / 1000:,.1f} kB per passage, {size * len(vectors) / 1e6:,.0f} MB in all")
        return late_interaction.LateInteraction(self.reranker, vectors)


def _loaded(folder: Path) -> CrossEncoder | late_interaction.TokenEncoder:
    return (
        late_interaction.TokenEncoder(folder) if (folder / late_interaction.CONFIG).is_file() else CrossEncoder(folder)
    )


def _is_exported(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (cross_encoder.CONFIG, late_interaction.CONFIG))


def exported_reranker(name_or_path: str, *, of_encoder: bool = False) -> Path:
    """Return the folder of an exported reranker, which is exported once and cached.

    Args:
        name_or_path: Name of a model, or a folder: of an exported reranker, of a CrossEncoder or MultiVectorEncoder
            of sentence-transformers, or of a model of late interaction by PyLate or ColBERT.
    """
    path = Path(name_or_path)
    if not of_encoder and _is_exported(path):
        return path
    if of_encoder and is_exported(path):
        raise EncoderError(f"--rerank {_LATE}: {path} has an exported encoder; name the model that it was made from")
    try:
        folder = model_folder(name_or_path)
        revision = source_digest(folder)
    except EncoderError as error:
        raise EncoderError(f"--rerank {name_or_path}: {error}") from error
    name = path.resolve().name if path.is_dir() else name_or_path
    late = of_encoder or gives_token_vectors(folder)
    kind = _LATE if of_encoder else late_interaction.TokenEncoder.kind if late else CrossEncoder.kind
    key = [kind, _EXPORT_VERSION, name, revision, *pytorch_versions(f"reranker {name!r}: is a {kind}"), version("onnx")]
    cached = cache_folder() / "rerankers" / sha256_json(key)[:32]
    if not cached.is_dir():
        from taugate.calibration.export.rerankers import (
            export_cross_encoder,  # imports PyTorch
            export_token_encoder,
        )

        def export(staging: Path) -> None:
            if late:
                export_token_encoder(folder, name, revision, staging, of_encoder=of_encoder)
            else:
                export_cross_encoder(folder, name, revision, staging)

        write_cached(cached, export)
    return cached


def cheaper_reranker(
    reranker: CrossEncoder | late_interaction.TokenEncoder, precision: CheaperPrecision, texts: Sequence[str]
) -> CrossEncoder | late_interaction.TokenEncoder:
    """Return a BERT-like reranker in another precision for the kernel, which is made once and cached.

    Args:
        reranker: The reranker in float32.
        texts: Documents of the user, by which int8 weights are chosen. The beginning of each is a query: of a
            cross-encoder in a pair with the document and in one with the next document, else alone.
    """
    name = reranker.config.name
    if processor_path(precision) is None:
        raise EncoderError(f"{name}: {precision} needs a processor with AVX2, and the plug-in taugate-kernel")
    key = [reranker.kind, _CHEAPER_VERSION, precision, reranker.sha256, version("onnx"), *texts]
    cached = cache_folder() / "rerankers" / sha256_json(key)[:32]
    if not cached.is_dir():
        found = _weights_and_inputs(reranker, texts)
        if found is None:
            raise EncoderError(f"{name}: {precision} needs a BERT-like model {reranker.kernel_needs}")
        bert, head, ids = found
        arrays = bert.in_int8(ids) if precision == "int8" else bert.in_bfloat16()
        config = reranker.config.model_copy(update={"precision": precision})

        def fill(staging: Path) -> None:
            write_tensors(staging / WEIGHTS, arrays | head)
            link_or_copy(reranker.folder / TOKENIZER, staging / TOKENIZER)
            (staging / reranker.config_file).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")

        write_cached(cached, fill)
    return _loaded(cached)


def _weights_and_inputs(
    reranker: CrossEncoder | late_interaction.TokenEncoder, texts: Sequence[str]
) -> "tuple[Bert, Arrays, list[list[int]]] | None":
    """Return the BERT of a reranker, the arrays behind it, and token ids of what it will read; None if it has none."""
    from taugate.calibration.export.bert_graph import find_pair_bert, find_token_bert

    beginnings = [text[:MAX_CHARS] for text in texts]
    if isinstance(reranker, late_interaction.TokenEncoder):
        bert = find_token_bert(reranker)
        ids = reranker.tokenize(beginnings, "query") + reranker.tokenize(texts, "document")
        return None if bert is None else (bert, {}, [text for text in ids if text])
    pairs = [*zip(beginnings, texts, strict=True), *zip(beginnings, [*texts[1:], *texts[:1]], strict=True)]
    found = find_pair_bert(reranker)
    return None if found is None else (found.bert, found.head, [found.ids(reranker, *pair) for pair in pairs])


def _own_reranker(encoder: str | None, releases: Path) -> Path | None:
    """Return the folder of the reranker beside an encoder, else that of the current release; None without either."""
    if encoder is not None and (beside := Path(encoder) / RERANKER_FOLDER).is_dir():
        return beside
    current = current_id(releases)
    folder = None if current is None else releases / current / RERANKER_FOLDER
    return folder if folder is not None and _is_exported(folder) else None
