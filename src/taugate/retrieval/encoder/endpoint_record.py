"""Which endpoint encodes the texts of a release, and how this process reaches it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from taugate.errors import InputError
from taugate.storage.files import Json, read_secret

Dialect = Literal["openai", "tei"]
URL, KEY_FILE = "TAUGATE_ENCODER_URL", "TAUGATE_ENCODER_KEY_FILE"
PATHS: dict[Dialect, str] = {"openai": "/embeddings", "tei": "/embed"}
_MAX_CHARS = 2000  # of a URL or a name; browsers and proxies take no longer URLs


class EndpointRecord(BaseModel):
    """An endpoint that encodes texts.

    Attributes:
        dialect: openai: OpenAI's /embeddings, which vLLM, Ollama, llama.cpp and others also have; tei: /embed of
            text-embeddings-inference.
        url: Base URL.
        model: Name of the model there; None if the endpoint has only one.
        dimensions: Requested length of the vectors; None for the model's own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dialect: Dialect
    url: str = Field(max_length=_MAX_CHARS)
    model: str | None = Field(default=None, max_length=_MAX_CHARS)
    dimensions: int | None = Field(default=None, ge=1)

    def body(self, texts: Sequence[str]) -> dict[str, Json]:
        """Return the body of a request for the vectors of texts, JSON."""
        if self.dialect == "tei":
            return {"inputs": list(texts), "truncate": True}
        body = {"model": self.model, "input": list(texts), "encoding_format": "float", "dimensions": self.dimensions}
        return {name: value for name, value in body.items() if value is not None}


@dataclass(frozen=True)
class EndpointAccess:
    """How this process reaches the endpoint of an encoder.

    Attributes:
        url: Base URL that replaces that of the release, for another network or a copy of the server.
        key_file: File with the key; None if the endpoint needs none.
        seconds: Limit of a request whose caller cannot wait; None for a job, which waits and retries.
    """

    url: str | None = None
    key_file: Path | None = None
    seconds: float | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Return the access of a job, as the environment says."""
        key_file = environ.get(KEY_FILE)
        return cls(environ.get(URL) or None, Path(key_file) if key_file else None)

    def key(self, record: EndpointRecord) -> str | None:
        """Read the key.

        A release may come from elsewhere, so the key is never sent to a URL that only the release names.

        Raises:
            InputError: If the file cannot be read, or no URL is set.
        """
        if self.key_file is None:
            return None
        if self.url is None:
            raise InputError(
                f"{KEY_FILE}: a key is sent only to a URL that you name, not to any that a release names; set "
                f"{URL}={record.url}, or another URL of this encoder"
            )
        return read_secret(self.key_file, KEY_FILE) or None
