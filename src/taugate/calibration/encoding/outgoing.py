"""Says what will be sent to an endpoint before it is sent: how many texts, and about how many tokens."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.progress import Job
from taugate.retrieval.encoder.encoder import ExportedEncoder, Role

_BLOCK = 8192  # texts looked up at once


@dataclass(frozen=True)
class Outgoing:
    """Texts that an endpoint has not encoded yet.

    Attributes:
        texts: Number of different texts.
        tokens: Estimated number of their tokens, with prompts.
    """

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
        encoder: The encoder.
        documents: Texts of the documents.
        queries: Texts of the queries.
        job: Reports it, and asks.
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
