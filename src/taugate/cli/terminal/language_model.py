"""The language model of a command line: a local one, or one behind a URL."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from taugate.errors import InputError

if TYPE_CHECKING:
    from taugate.ingestion.queries.replies import LanguageModel

KEY, KEY_FILE = "TAUGATE_LLM_KEY", "TAUGATE_LLM_KEY_FILE"


def language_model(
    option: str, kind: str, endpoint: str | None, model: str | None, timeout: float | None = None
) -> "LanguageModel":
    """Return the requested language model.

    Args:
        option: Name of the option whose value is `kind`, for messages.
        kind: "local" or "endpoint".
        endpoint: URL of the endpoint.
        model: Name of the model at the endpoint, or path of a local GGUF file.
        timeout: Longest wait for a reply of the endpoint, in seconds.

    Raises:
        InputError: If an option is missing or does not fit the kind.
        ModuleNotFoundError: If the extra `generate` is not installed.
    """
    if kind == "endpoint":
        from taugate.ingestion.queries.endpoint import TIMEOUT_SECONDS, Endpoint

        if not endpoint or not model:
            missing = "--endpoint URL" if not endpoint else "--model M"
            raise InputError(f"{option} endpoint: add {missing}")
        seconds = TIMEOUT_SECONDS if timeout is None else timeout
        if not 0 < seconds < float("inf"):
            raise InputError(f"--timeout {seconds}: give a number of seconds above 0")
        return Endpoint(endpoint, model, _key(), seconds)
    if endpoint:
        raise InputError(f"--endpoint: {option} local uses no server; use {option} endpoint, or leave out the URL")
    from taugate.ingestion.queries.local import LocalModel

    return LocalModel(Path(model) if model else None)


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
    try:
        key = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise InputError(f"{file}: cannot read the file named by {KEY_FILE} ({reason})") from error
    if not key:
        raise InputError(f"{file}: the file named by {KEY_FILE} is empty; write the key into it")
    return key
