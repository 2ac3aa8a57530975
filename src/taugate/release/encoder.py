"""The encoder of a release: its files and its record, encoder.json."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from taugate.storage.files import Json

MODEL = "model.onnx"
DATA = "model.onnx_data"  # weights of a graph that are too large for its own file
LAYOUT = "kernel.json"
WEIGHTS = "weights.safetensors"
TOKENIZER = "tokenizer.json"
CONFIG = "encoder.json"
FILES = (MODEL, WEIGHTS, DATA, LAYOUT, TOKENIZER, CONFIG)  # of any encoder; each has one model

Precision = Literal["int8", "bfloat16", "float32"]
Runtime = Literal["onnxruntime", "kernel", "endpoint", "none"]  # none: there are only vectors (loading.py)
Role = Literal["query", "document"]
Similarity = Literal["cosine", "dot"]
# Far beyond any real encoder, so that a forged file cannot claim all memory. The limit of tokens is what the tokenizer
# can count, because some encoders read texts of any length.
_MAX_TOKENS, _MAX_PADDING = (1 << 31) - 1, 1 << 10
Dialect = Literal["openai", "tei"]
_MAX_CHARS = 2000  # of a URL or a name; browsers and proxies take no longer URLs
MAX_DIMENSIONS = 1 << 16  # far beyond any real encoder, so that a forged file or request cannot claim all memory


class EndpointRecord(BaseModel):
    """An endpoint that encodes texts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # openai: OpenAI's /embeddings, which vLLM, Ollama, llama.cpp and others also have; tei: /embed of
    # text-embeddings-inference.
    dialect: Dialect
    url: str = Field(max_length=_MAX_CHARS)  # base URL
    # Name of the model there; None if the endpoint has only one.
    model: str | None = Field(default=None, max_length=_MAX_CHARS)
    dimensions: int | None = Field(default=None, ge=1)  # requested length of the vectors; None for the model's own

    def body(self, texts: Sequence[str]) -> dict[str, Json]:
        """Return the body of a request for the vectors of texts, JSON."""
        if self.dialect == "tei":
            return {"inputs": list(texts), "truncate": True}
        body = {"model": self.model, "input": list(texts), "encoding_format": "float", "dimensions": self.dimensions}
        return {name: value for name, value in body.items() if value is not None}


class EncoderConfig(BaseModel):
    """The properties of an exported encoder that its graph and tokenizer do not contain."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    revision: str
    runtime: Runtime = "onnxruntime"
    precision: Precision = "float32"
    # Dimension of a vector, with the last coordinate that `extended` adds.
    dimension: int = Field(ge=1, le=MAX_DIMENSIONS)
    max_length: int = Field(ge=1, le=_MAX_TOKENS)  # longest text in tokens, including special ones and the prompt
    # Longest query in tokens if that is less than `max_length`, else None.
    max_query_length: int | None = Field(default=None, ge=1, le=_MAX_TOKENS, exclude_if=lambda value: value is None)
    pooling: str  # method that combines token vectors
    normalize: Literal[True] = True  # whether vectors have unit length
    # M of `extended`, if similarity is the inner product; None, and not written, for the cosine.
    max_norm: float | None = Field(default=None, gt=0, exclude_if=lambda value: value is None)
    query_prompt: str = ""  # prefix of queries
    document_prompt: str = ""  # prefix of documents
    special_tokens: bool = True  # whether the tokenizer adds special tokens
    # Texts are padded to a multiple of this many tokens, so that more texts share a batch.
    pad_multiple: int = Field(default=1, ge=1, le=_MAX_PADDING)
    pair_lone_texts: bool = True  # whether a text alone in its batch gets other last bits than in a larger batch
    # Largest 1 − cosine between PyTorch and the graph over the texts checked at export; None, and not written, if
    # PyTorch was not needed. Of an endpoint: largest difference of the cosine of two texts between two replies.
    max_cosine_difference: float | None = Field(default=None, exclude_if=lambda value: value is None)
    # Type of the source's weights if they are not stored in float32, such as BF16; else None.
    stored_type: str | None = Field(default=None, max_length=16, exclude_if=lambda value: value is None)
    # Whether the source declares no pooling, so that the mean of all tokens was taken.
    assumed_pooling: bool = Field(default=False, exclude_if=lambda value: not value)
    # The endpoint that encodes if `runtime` is endpoint; else None, and not written.
    endpoint: EndpointRecord | None = Field(default=None, exclude_if=lambda value: value is None)

    @property
    def query_window(self) -> int:
        """The number of tokens read of a query."""
        return self.max_query_length or self.max_length

    @property
    def similarity(self) -> Similarity:
        """How queries and documents are compared."""
        return "cosine" if self.max_norm is None else "dot"

    @property
    def model_dimension(self) -> int:
        """Dimension of the model's own vectors, without the coordinate that `extended` adds."""
        return self.dimension if self.max_norm is None else self.dimension - 1

    def cached_as(self, role: Role) -> str:
        """Return what precedes a text in the key of its cached vector: the prompt, and the role if it matters."""
        prompt = self.query_prompt if role == "query" else self.document_prompt
        return prompt if self.max_norm is None else f"{role}\0{prompt}"
