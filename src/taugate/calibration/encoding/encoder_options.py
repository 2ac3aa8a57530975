"""What an encoder reads and how its vectors are compared; an encoder behind an endpoint, and its replies."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass as plain_dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import numpy as np
from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.progress import Job
from taugate.errors import EncoderError, InputError, ReleaseError
from taugate.evidence.options import Advice, Options
from taugate.policy.arrays import Float32
from taugate.release.encoder import CONFIG, FILES, Dialect, EncoderConfig, EndpointRecord, Role, Similarity
from taugate.retrieval.encoder.encoder import KEY_FILE, EndpointAccess, ExportedEncoder
from taugate.storage.files import sha256_json
from taugate.storage.folders import cache_folder, link_or_copy, write_cached
from taugate.storage.tensors import read_tensors, write_tensors

# Attention takes memory by the square of the length. A chunk of `taugate import` has at most 256 tokens, most encoders
# were trained on 512 or less, and no question is longer.
DEFAULT_TOKENS = 512
_MAX_PROMPT = 2000  # characters; the longest published instructions have a few hundred


@plain_dataclass(frozen=True)
class _Family:
    """Encoders that were trained with prompts, as their model cards say."""

    name: str
    pattern: re.Pattern[str]
    query: str
    document: str = ""  # prompt of documents; empty if they have none


def _family(name: str, pattern: str, query: str, document: str = "") -> _Family:
    return _Family(name, re.compile(rf"(?:^|[/_-]){pattern}", re.IGNORECASE), query, document)


_BGE = "Represent this sentence for searching relevant passages: "
_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "
# From the model cards. The first family that matches counts.
FAMILIES = (
    _family("e5-instruct", r"e5-.*instruct", _INSTRUCT),
    _family("e5", r"e5-(?:small|base|large)", "query: ", "passage: "),
    _family("bge", r"bge-(?:small|base|large)-en", _BGE),
    _family("bge-zh", r"bge-(?:small|base|large)-zh", "为这个句子生成表示以用于检索相关文章："),
    _family("nomic", r"nomic-embed-text", "search_query: ", "search_document: "),
)


def prompts_in_words(config: EncoderConfig) -> str:
    """Say how queries and documents begin."""
    query, document = config.query_prompt, config.document_prompt
    if not query and not document:
        return "the encoder reads queries and documents without a prompt"
    if query == document:
        return f"queries and documents begin with {_quoted(query)}"
    return f"queries begin with {_quoted(query)}, documents with {_quoted(document)}"


def input_warnings(config: EncoderConfig) -> list[str]:
    """Return one sentence for each thing about the encoder's input that the model does not declare."""
    warnings = []
    if config.assumed_pooling:
        warnings.append(
            f"the encoder {config.name} declares no pooling (it has no modules.json), so the mean of all tokens is its "
            "vector; if it was trained with another pooling, or not for search, its similarities mean nothing"
        )
    family = next((family for family in FAMILIES if family.pattern.search(config.name)), None)
    if family is not None and not config.query_prompt and not config.document_prompt:
        options = f"query-prompt = {_quoted(family.query)}"
        if family.document:
            options += f" and document-prompt = {_quoted(family.document)}"
        warnings.append(
            f"the encoder {config.name} looks like one of the family {family.name}, which was trained with prompts, "
            f"but its folder names none; give {options}"
        )
    return warnings


def _quoted(prompt: str) -> str:
    escaped = prompt.replace("\n", "\\n")
    return f'"{escaped}"' if prompt else "nothing"


def _printable(text: str) -> str:
    if len(text) > _MAX_PROMPT or "\0" in text:
        raise ValueError("not a prompt")
    return text


_Prompt = Annotated[
    Annotated[str, AfterValidator(_printable)] | None, Advice(f"give a text of at most {_MAX_PROMPT} characters")
]


@dataclass(frozen=True)
class InputOptions(Options):
    """Options of an encoder that users set: prompts, length in tokens, similarity.

    The constructor raises InputError for an invalid value.
    """

    query_prompt: _Prompt = Field(
        default=None, description="text before each query, with its final space (default: the one that the model names)"
    )
    document_prompt: _Prompt = Field(
        default=None, description="text before each document, with its final space (default: as for queries)"
    )
    max_length: Annotated[int | None, Advice("give a number of tokens, 8 or more")] = Field(
        default=None,
        ge=8,
        description=f"tokens that the encoder reads of a document; of a query, at most {DEFAULT_TOKENS} (default: what "
        f"the model reads, at most {DEFAULT_TOKENS})",
    )
    similarity: Similarity | None = Field(
        default=None,
        description="how queries and documents are compared (default: dot if the model's folder declares it and its "
        "vectors have different lengths, else cosine)",
    )

    def applied_to(self, config: EncoderConfig, *, exported: bool) -> EncoderConfig:
        """Return the configuration of an encoder with these options.

        Args:
            exported: Whether the user named an exported encoder, whose length is kept unless one is given.
        """
        if exported and self.similarity not in {None, config.similarity}:
            raise EncoderError(
                f"encoder {config.name!r}: was exported for --similarity {config.similarity}; leave the option out, or "
                "give the model from which it was exported"
            )
        limit, attends = config.max_length, config.special_tokens  # static embeddings have neither
        if self.max_length is not None and self.max_length > limit:
            raise EncoderError(
                f"encoder {config.name!r}: reads at most {limit:,} tokens; give --max-length {limit} or less"
            )
        length = self.max_length or (min(limit, DEFAULT_TOKENS) if attends and not exported else limit)
        changed = {
            "query_prompt": config.query_prompt if self.query_prompt is None else self.query_prompt,
            "document_prompt": config.document_prompt if self.document_prompt is None else self.document_prompt,
            "max_length": length,
        }
        if attends and not exported and length > DEFAULT_TOKENS:
            changed["max_query_length"] = DEFAULT_TOKENS
        elif config.max_query_length is not None and length <= config.max_query_length:
            changed["max_query_length"] = None
        return config.model_copy(update=changed)


def write_with_config(source: Path, config: EncoderConfig, target: Path) -> None:
    """Write an encoder that differs from another one only in its configuration, without copying its weights."""
    for name in FILES:
        if name != CONFIG and (source / name).is_file():
            link_or_copy(source / name, target / name)
    (target / CONFIG).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")


_SPEC = re.compile(r"(openai|tei):(https?:/.*)", re.DOTALL)
_DIALECTS: dict[str, Dialect] = {"openai": "openai", "tei": "tei"}
# Of several lengths, because a server may pad the texts of a batch.
_PROBES = (
    "threshold",
    "What is the warranty period for a new roof?",
    "How do I reset my password?",
    "The warranty covers defects in materials for two years from the date of delivery.",
    "To reset a password, open the settings, choose the account, and follow the link in the message. " * 2,
    "Wie lange gilt die Garantie für ein neues Dach?",
    "Invoices are due within thirty days. Late payments may incur interest at the statutory rate. " * 4,
    "12 V, 5.5 × 2.1 mm, centre positive",
)
_PROBE_VECTORS = "probes.safetensors"  # beside the configuration, but not part of a release
# A difference of scores from the record counts as another model above this many times the largest one among the probes.
# Their 64 pairs show about 2.4 standard deviations; the golden queries draw some 100,000 scores a day, which reach 4.4.
REPLY_TOLERANCE = 4
_MAX_TOLERANCE = 1e-2  # the effect of int8 weights (release/golden.py); above, another model is not noticed

_BLOCK = 8192  # texts looked up at once


@dataclass(frozen=True)
class EndpointOptions(Options):
    """An encoder behind an endpoint. The constructor raises InputError for an invalid value."""

    model: str | None = Field(
        default=None, min_length=1, max_length=2000, description="name of the model at the endpoint"
    )
    dimensions: Annotated[int | None, Advice("give a number of dimensions, 1 or more")] = Field(
        default=None, ge=1, le=1 << 16, description="length of the vectors to request (default: the model's own)"
    )
    encoder_key_file: Path | None = Field(
        default=None, description=f"file with the key of the endpoint (default: the file that {KEY_FILE} names)"
    )
    yes: bool = Field(default=False, description="send the texts to the endpoint without asking first")

    @property
    def names_endpoint(self) -> bool:
        """Whether an option is given that only an endpoint has."""
        return self.model is not None or self.dimensions is not None or self.encoder_key_file is not None

    def access(self, url: str) -> EndpointAccess:
        """Return the access of a job to the URL that the user named."""
        return EndpointAccess(url, self.encoder_key_file or EndpointAccess.from_environment().key_file)


def is_endpoint(name: str) -> bool:
    """Return whether the name of an encoder is that of an endpoint."""
    return _SPEC.fullmatch(name) is not None


def endpoint_encoder(name: str, reads: InputOptions, options: EndpointOptions) -> tuple[Path, EndpointAccess]:
    """Return the folder of an encoder behind an endpoint, and how to reach it.

    A few texts are sent to it, twice. If they get the vectors of an earlier time, the folder is that of then, so that
    the vectors in its cache are used again. If not, the endpoint has another model now.
    """
    if reads.similarity == "dot":
        raise InputError(
            "--similarity dot: the vectors of an endpoint are compared by cosine, because most endpoints give them "
            "length 1; leave it out, or put the model's vectors beside the data set"
        )
    record = _record(name, options)
    access = options.access(record.url)
    vectors, difference = _probe(record, access)
    config = EncoderConfig(
        name=record.model or urlsplit(record.url).netloc,
        revision=sha256_json(vectors.tolist())[:40],
        runtime="endpoint",
        dimension=vectors.shape[1],
        max_length=reads.max_length or DEFAULT_TOKENS,
        pooling="endpoint",
        query_prompt=reads.query_prompt or "",
        document_prompt=reads.document_prompt or "",
        max_cosine_difference=difference,
        endpoint=record,
    )
    described = config.model_dump(exclude={"revision", "max_cosine_difference"})
    key = sha256_json(["endpoint", _PROBES, described])[:32]
    for folder in sorted((cache_folder() / "encoders").glob(f"{key}-*")):
        if _is_same(folder, vectors, difference):
            return folder, access
    folder = cache_folder() / "encoders" / f"{key}-{config.revision[:12]}"
    return _written(folder, config, vectors), access


def _record(name: str, options: EndpointOptions) -> EndpointRecord:
    match = _SPEC.fullmatch(name)
    if match is None:
        raise InputError(f"--encoder {name}: names no endpoint; write openai:URL or tei:URL")
    dialect = _DIALECTS[match[1]]
    if dialect == "openai" and options.model is None:
        raise InputError(f"--encoder {dialect}:…: add --model NAME, the name of the model at the endpoint")
    if dialect == "tei" and options.dimensions is not None:
        raise InputError(f"--dimensions {options.dimensions}: this endpoint has no such option; leave it out")
    return EndpointRecord(dialect=dialect, url=match[2].rstrip("/"), model=options.model, dimensions=options.dimensions)


def _probe(record: EndpointRecord, access: EndpointAccess) -> tuple[Float32, float]:
    """Return the vectors of the probes, (n, d) float32, and how much their scores differ the second time.

    The second time, each is sent alone, because a server may compute other last bits in a batch.
    """
    from taugate.retrieval.encoder.endpoint import EndpointModel  # loads httpx2, which few need

    model = EndpointModel(record, access)
    try:
        dimension = model.encode(_PROBES[:1], None)[0].shape[1]
        if record.dimensions not in {None, dimension}:
            raise EncoderError(
                f"{record.url}: gives {dimension} dimensions, not {record.dimensions}; leave out --dimensions"
            )
        together, _ = model.encode(_PROBES, dimension)
        alone = np.concatenate([model.encode([text], dimension)[0] for text in _PROBES])
    finally:
        model.close()
    difference = _difference(together, alone)
    if REPLY_TOLERANCE * difference > _MAX_TOLERANCE:
        raise EncoderError(
            f"{record.url}: replies to the same text with different vectors (scores differ by {difference:.2g}), so a "
            "change of its model would not be noticed; check whether several models share this URL"
        )
    return together, difference


def _is_same(folder: Path, vectors: Float32, difference: float) -> bool:
    """Return whether the encoder in a folder of the cache gave these vectors, as far as its replies are alike."""
    from taugate.release.golden import TOLERANCE  # loads FAISS

    try:
        earlier: Float32 = read_tensors(folder / _PROBE_VECTORS)["vectors"]
    except (ReleaseError, LookupError):
        return False
    tolerance = max(TOLERANCE, REPLY_TOLERANCE * difference)
    return earlier.shape == vectors.shape and _difference(earlier, vectors) <= tolerance


def _difference(vectors: Float32, again: Float32) -> float:
    """Return the largest difference of the cosine of two texts if one of them is encoded again."""
    return float(np.abs((vectors.astype(np.float64) - again) @ vectors.T).max())


def _written(folder: Path, config: EncoderConfig, vectors: Float32) -> Path:
    def fill(staging: Path) -> None:
        (staging / CONFIG).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")
        write_tensors(staging / _PROBE_VECTORS, {"vectors": vectors})

    if not folder.is_dir():
        write_cached(folder, fill)
    return folder


@plain_dataclass(frozen=True)
class Outgoing:
    """Texts that an endpoint has not encoded yet."""

    texts: int
    tokens: int

    def sentence(self, encoder: ExportedEncoder) -> str:
        """Say what will be sent, and where to."""
        endpoint = encoder.config.endpoint
        url = "" if endpoint is None else endpoint.url
        return f"{self.texts:,} texts, about {self.tokens:,} tokens, will be sent to {url} ({encoder.config.name})"


def announce(
    encoder: ExportedEncoder, documents: Iterable[str], queries: Iterable[str], job: Job, *, cached: bool = True
) -> None:
    """Report what will be sent to the endpoint of an encoder, and let the user confirm it; does nothing without one.

    Args:
        cached: Whether texts are not sent if the cache has their vectors.

    Raises:
        InputError: If the user does not confirm.
    """
    if encoder.config.endpoint is None:
        return
    with job.task("counting what the endpoint has not encoded yet"):
        cache = EmbeddingCache.of(encoder) if cached else None
        outgoing = count_outgoing(encoder, documents, queries, cache)
    if outgoing.texts:
        job.confirm(outgoing.sentence(encoder))


def count_outgoing(
    encoder: ExportedEncoder, documents: Iterable[str], queries: Iterable[str], cache: EmbeddingCache | None
) -> Outgoing:
    """Count the different texts that are not in the cache of an encoder."""
    config, seen, tokens = encoder.config, set[bytes](), 0
    prompted: Iterator[tuple[Role, str, str]] = chain(
        (("document", config.document_prompt, text) for text in documents),
        (("query", config.query_prompt, text) for text in queries),
    )
    while block := list(islice(prompted, _BLOCK)):
        keys = [EmbeddingCache.key(prompt + text) for _, prompt, text in block]
        cached = {} if cache is None else cache.get(keys)
        for key, (role, _, text) in zip(keys, block, strict=True):
            if key not in cached and key not in seen:
                seen.add(key)
                tokens += encoder.tokenize([text], role)[0].count
    return Outgoing(len(seen), tokens)
