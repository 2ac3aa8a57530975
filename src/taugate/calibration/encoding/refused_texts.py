"""Names the text that an endpoint refuses, of which its error has only the beginning."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from taugate.errors import TextRefused
from taugate.retrieval.encoder.encoder import EncoderConfig, Role


@contextmanager
def naming_refused(config: EncoderConfig, role: Role, texts: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Name the text in a TextRefused.

    Args:
        config: Configuration of the encoder.
        role: Query or document.
        texts: Names and texts.
    """
    try:
        yield
    except TextRefused as error:
        prompt = config.query_prompt if role == "query" else config.document_prompt
        names = (name for name, text in texts if (prompt + text).startswith(error.text))
        raise TextRefused(f"{role} {next(names, error.text[:60])!r}: {error}") from error
