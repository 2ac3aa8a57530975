"""The options of a language model: a local one, or one behind a URL."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic.dataclasses import dataclass

from taugate.calibration.settings.options import Options, option_of
from taugate.cli.terminal.options import option
from taugate.errors import InputError
from taugate.storage.secrets import read_secret

if TYPE_CHECKING:
    from taugate.ingestion.queries.replies import LanguageModel

KEY, KEY_FILE = "TAUGATE_LLM_KEY", "TAUGATE_LLM_KEY_FILE"


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """The options that name a language model."""

    endpoint: str | None = option(
        None,
        "base URL of an OpenAI-compatible server, without /chat/completions; the key is read from "
        f"{KEY} or from the file named by {KEY_FILE}",
        "URL",
    )
    model: str | None = option(
        None, "endpoint: name of the model there; local: path of a GGUF file (default: SmolLM2-135M-Instruct)", "M"
    )

    def language_model(self, option: str, kind: str, timeout: float | None = None) -> "LanguageModel":
        """Return the requested language model.

        Args:
            option: Name of the option whose value is `kind`, for messages.
            kind: "local" or "endpoint".
            timeout: Longest wait for a reply of the endpoint, in seconds.

        Raises:
            InputError: If an option is missing or does not fit the kind.
            ModuleNotFoundError: If the extra `generate` is not installed.
        """
        if kind == "endpoint":
            from taugate.ingestion.queries.endpoint import TIMEOUT_SECONDS, ModelEndpoint

            if not self.endpoint or not self.model:
                missing = "--endpoint URL" if not self.endpoint else "--model M"
                raise InputError(f"{option} endpoint: add {missing}")
            seconds = TIMEOUT_SECONDS if timeout is None else timeout
            if not 0 < seconds < float("inf"):
                raise InputError(f"--timeout {seconds}: give a number of seconds above 0")
            return ModelEndpoint(self.endpoint, self.model, _key(), seconds)
        if self.endpoint:
            raise InputError(f"--endpoint: {option} local uses no server; use {option} endpoint, or leave out the URL")
        from taugate.ingestion.queries.local import LocalModel

        return LocalModel(Path(self.model) if self.model else None)

    def refuse_model(self, remedy: str) -> None:
        """Raise InputError, with a message that ends with the remedy, if an option of language models is given."""
        for name, field in type(self).fields().items():
            if field.default is None and getattr(self, name) is not None:
                raise InputError(f"{option_of(name)}: {remedy}")


def _key() -> str | None:
    """Return the key of the endpoint, or None if neither variable is set.

    Raises:
        InputError: If both variables are set, or the file cannot be read or is empty.
    """
    key, file = os.environ.get(KEY), os.environ.get(KEY_FILE)
    if key and file:
        raise InputError(f"{KEY} and {KEY_FILE} are both set; unset one of the two")
    if not file:
        return (key or "").strip() or None
    if read := read_secret(Path(file), KEY_FILE):
        return read
    raise InputError(f"{KEY_FILE}: {file} is empty; write the key into it")
