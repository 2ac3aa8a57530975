"""Which endpoint encodes the texts of a release, and how this process reaches it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from taugate.errors import InputError
from taugate.release.encoder import Dialect, EndpointRecord
from taugate.storage.files import read_secret

URL, KEY_FILE = "TAUGATE_ENCODER_URL", "TAUGATE_ENCODER_KEY_FILE"
PATHS: dict[Dialect, str] = {"openai": "/embeddings", "tei": "/embed"}


@dataclass(frozen=True)
class EndpointAccess:
    """How this process reaches the endpoint of an encoder."""

    url: str | None = None  # base URL that replaces that of the release, for another network or a copy of the server
    key_file: Path | None = None  # file with the key; None if the endpoint needs none
    seconds: float | None = None  # limit of a request whose caller cannot wait; None for a job, which waits and retries

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Return the access of a job, as the environment says."""
        key_file = environ.get(KEY_FILE)
        return cls(environ.get(URL) or None, Path(key_file) if key_file else None)

    def key(self, record: EndpointRecord) -> str | None:
        """Read the key. Raises InputError if the file cannot be read, or no URL is set."""
        # A release may come from elsewhere, so the key is never sent to a URL that only the release names.
        if self.key_file is None:
            return None
        if self.url is None:
            raise InputError(
                f"{KEY_FILE}: a key is sent only to a URL that you name, not to any that a release names; set "
                f"{URL}={record.url}, or another URL of this encoder"
            )
        return read_secret(self.key_file, KEY_FILE) or None
