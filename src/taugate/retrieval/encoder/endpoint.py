"""An encoder behind an HTTP endpoint, with the interface of an exported encoder, but without tokenizer and weights.

JSON of a hostile server takes up to 30 times its size in memory, as a list of empty objects does. So the arrays of
numbers are taken out of the text one by one, each of the expected length, and only the small rest is parsed as a whole.

Its tokens are unknown, so four bytes of text count as one. A text that has more, such as a table of numbers, is sent
again, shorter, if the endpoint says that it is too long.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import orjson

from taugate.errors import EncoderError, EncoderUnavailable, InputError, TextRefused
from taugate.policy.arrays import Float32
from taugate.release.encoder import CONFIG, Dialect, EncoderConfig, EndpointRecord, Role
from taugate.retrieval.encoder.encoder import (
    KEY_FILE,
    PATHS,
    URL,
    EncoderElsewhere,
    EndpointAccess,
    Tokens,
    read_config,
)
from taugate.storage.files import sha256_files
from taugate.storage.http_client import AttemptFailed
from taugate.storage.json_endpoint import (
    EndpointWording,
    JsonEndpoint,
    PatientRequests,
    PromptRequests,
    RequestRefused,
    Requests,
)

MAX_DIMENSION = 1 << 16  # as of any encoder
_NUMBER_BYTES = 32  # of a number in JSON: at most 24 characters in double precision, a comma and spaces
_OUTLINE_BYTES = 16 << 10  # of everything else in a reply, and
_ENTRY_BYTES = 256  # of the object around a vector
_ARRAY = re.compile(rb'\[([^\[\]{}"]+)\]')
_NOT_FINITE = re.compile(rb"[+-]?(?:nan|inf(?:inity)?)", re.IGNORECASE)

BYTES_PER_TOKEN = 4
PARALLEL = 4  # concurrent requests of a job, as for language models
_MAX_TEXTS = 32  # of a request: text-embeddings-inference takes no more by default
_MAX_REPLY = 1 << 20  # bytes, so that the replies to concurrent requests take a few MiB
_MIN_BYTES = 64  # a text of fewer is too long for no model
_TRIES, _SECONDS, _FIRST_WAIT = 6, 120.0, 1.0  # of a job, as for language models


def max_reply_bytes(texts: int, dimension: int) -> int:
    """Return the size of the largest valid reply, in bytes."""
    return texts * (dimension * _NUMBER_BYTES + _ENTRY_BYTES) + _OUTLINE_BYTES


def read_vectors(dialect: Dialect, content: bytes, texts: int, dimension: int | None) -> Float32:
    """Return the vectors in a reply as unit vectors, (texts, dimension) float32, in the order of the texts.

    Args:
        texts: Number of texts that were sent.
        dimension: Length of a vector; None if it is not known yet.
    """
    vectors: list[Float32] = []

    def keep(array: re.Match[bytes]) -> bytes:
        if len(vectors) == texts:
            raise ValueError(f"it has more than {texts} vectors")
        length = len(vectors[0]) if vectors else dimension
        vectors.append(_unit_vector(array[1], len(vectors), length))
        return b"%d" % (len(vectors) - 1)

    outline = _ARRAY.sub(keep, content)
    if len(outline) > _OUTLINE_BYTES + texts * _ENTRY_BYTES:
        raise ValueError("most of it is not vectors")
    parsed: Any = orjson.loads(outline)
    if dialect == "openai":
        # Some servers leave the index out, and keep the order.
        entries = {
            int(place if entry.get("index") is None else entry["index"]): int(entry["embedding"])
            for place, entry in enumerate(parsed["data"])
        }
        if len(vectors) == texts and sorted(entries) != [*range(texts)]:
            raise ValueError(f"its indices are not 0 to {texts - 1}")
        places = [entries[number] for number in sorted(entries)]
    else:
        places = [int(place) for place in iter(parsed)]
    if len(vectors) != texts or len(places) != texts:
        raise ValueError(f"it has {len(vectors)} vectors for {texts} texts")
    return np.stack([vectors[place] for place in places])


def _unit_vector(numbers: bytes, place: int, dimension: int | None) -> Float32:
    if numbers.count(b",") >= MAX_DIMENSION:
        raise ValueError(f"vector {place} has more than {MAX_DIMENSION:,} numbers")
    values = orjson.loads(b"[" + _NOT_FINITE.sub(b"null", numbers) + b"]")
    if dimension is not None and len(values) != dimension:
        raise ValueError(f"vector {place} has {len(values)} numbers, not {dimension}")
    vector = np.array(values, dtype=np.float64)  # NaN for null
    if not np.isfinite(vector).all():
        raise ValueError(f"vector {place} has NaN or infinity")
    if not vector.any():
        raise ValueError(f"vector {place} is zero")
    vector /= np.abs(vector).max()  # so that no square overflows
    unit: Float32 = (vector / np.linalg.norm(vector)).astype(np.float32)
    return unit


@dataclass(slots=True)
class EndpointText(Tokens):
    """One text for an endpoint; its tokens are not known."""

    text: str = ""  # the text with its prompt, at most max_length tokens; empty if it has no visible character

    @property
    def count(self) -> int:
        """Estimated number of tokens."""
        return -(-len(self.text.encode()) // BYTES_PER_TOKEN)


class EndpointModel:
    """Requests the vectors of texts from an endpoint."""

    def __init__(self, record: EndpointRecord, access: EndpointAccess) -> None:
        """Prepare requests; sends none. Raises InputError if the URL or the key cannot be used."""
        self.record = record
        job = access.seconds is None
        endpoint = JsonEndpoint(access.url or record.url, access.key(record), _wording(record.dialect, job=job))
        self._requests: Requests = (
            PatientRequests(
                endpoint, tries=_TRIES, seconds=_SECONDS, first_wait=_FIRST_WAIT, resume="all vectors so far are cached"
            )
            if access.seconds is None
            else PromptRequests(endpoint, access.seconds)
        )

    def encode(self, texts: Sequence[str], dimension: int | None) -> tuple[Float32, list[bool]]:
        """Return unit vectors, (n, dimension) float32, of n ≥ 1 texts, and whether each text was shortened."""
        # They are sent in one request. If it is refused, it is divided, so that only the text that is at fault is
        # shortened or refused. What is read of a text depends on no other text.
        try:
            return self._post(texts, dimension), [False] * len(texts)
        except RequestRefused as error:
            failure: EncoderError = TextRefused(str(error), texts[0])
            too_long, divisible = error.too_long, True
        except AttemptFailed as error:
            failure = EncoderUnavailable(str(error), replied=error.replied, retry_in=error.retry_after)
            too_long = divisible = error.too_long
        except (InputError, ConnectionError) as error:
            raise EncoderUnavailable(str(error), lasting=isinstance(error, InputError)) from error
        if len(texts) > 1 and divisible:
            middle = len(texts) // 2
            parts = [self.encode(part, dimension) for part in (texts[:middle], texts[middle:])]
            return np.concatenate([vectors for vectors, _ in parts]), [cut for _, cuts in parts for cut in cuts]
        shorter = _truncated(texts[0], len(texts[0].encode()) * 3 // 4).text
        if too_long and len(shorter.encode()) >= _MIN_BYTES:
            with suppress(TextRefused):  # the error of the whole text is raised
                return self.encode([shorter], dimension)[0], [True]
        raise failure

    def _post(self, texts: Sequence[str], dimension: int | None) -> Float32:
        dialect, count = self.record.dialect, len(texts)
        return self._requests.post(
            self.record.body(texts),
            lambda content: read_vectors(dialect, content, count, dimension),
            max_reply_bytes(count, dimension or MAX_DIMENSION),
        )

    def close(self) -> None:
        """Close the connections; requests in progress fail."""
        self._requests.endpoint.close()


class EndpointEncoder(EncoderElsewhere):
    """An encoder behind an endpoint. Its folder has only the configuration, which names the endpoint."""

    def __init__(self, folder: Path, config: EncoderConfig, sha256: str, model: EndpointModel) -> None:
        """Encode by a model; see ExportedEncoder for the other parameters."""
        self.folder, self.config, self.sha256, self._endpoint = folder, config, sha256, model
        self._batch = max(1, min(_MAX_TEXTS, _MAX_REPLY // max_reply_bytes(1, config.dimension)))

    @classmethod
    def connect(cls, folder: Path, access: EndpointAccess) -> Self:
        """Read the configuration in a folder; sends no request."""
        config = read_config(folder)
        if config.endpoint is None:
            raise EncoderError(f"{folder / CONFIG}: names no endpoint; calibrate again")
        try:
            model = EndpointModel(config.endpoint, access)
        except InputError as error:
            raise EncoderError(str(error)) from error
        return cls(folder, config, sha256_files(folder, [CONFIG]), model)

    @property
    def max_piece(self) -> int:
        """As many texts as are requested at a time: they cost money, so few should be lost."""
        return PARALLEL * self._batch

    def tokenize(self, texts: Sequence[str], role: Role) -> list[Tokens]:
        """Return the texts with the role's prompt, at most max_length tokens of four bytes."""
        prompt = self.config.query_prompt if role == "query" else self.config.document_prompt
        window = BYTES_PER_TOKEN * (self.config.query_window if role == "query" else self.config.max_length)
        return [_truncated(prompt + text, window) if text.strip() else EndpointText([], False, 1.0) for text in texts]

    def embed(self, tokens: Sequence[Tokens], progress: Callable[[int], object] | None = None) -> Float32:
        """Encode texts as unit vectors; see ExportedEncoder.embed."""
        texts = [text.text if isinstance(text, EndpointText) else "" for text in tokens]
        vectors = np.zeros((len(texts), self.config.dimension), dtype=np.float32)
        readable = [place for place, text in enumerate(texts) if text]
        batches = [readable[start : start + self._batch] for start in range(0, len(readable), self._batch)]
        if progress is not None:
            progress(len(texts) - len(readable))
        requests = self._encode([[texts[place] for place in batch] for batch in batches])
        for batch, (encoded, shortened) in zip(batches, requests, strict=True):
            vectors[batch] = encoded
            for place, cut in zip(batch, shortened, strict=True):
                tokens[place].truncated |= cut
            if progress is not None:
                progress(len(batch))
        return vectors

    def _encode(self, batches: Sequence[Sequence[str]]) -> Iterator[tuple[Float32, list[bool]]]:
        """Yield the vectors of batches in order, as EndpointModel.encode; several requests run at a time."""
        if len(batches) == 1:
            yield self._endpoint.encode(batches[0], self.config.dimension)
            return
        with ThreadPoolExecutor(PARALLEL, "taugate-encode") as pool:
            requests = [pool.submit(self._endpoint.encode, batch, self.config.dimension) for batch in batches]
            try:
                for request in requests:
                    yield request.result()
            except BaseException as error:
                pool.shutdown(wait=False, cancel_futures=True)
                if not isinstance(error, EncoderError):  # an interrupt does not wait for requests in progress
                    self.close()
                raise

    def close(self) -> None:
        """Close the connections; requests in progress fail."""
        self._endpoint.close()


def _truncated(text: str, window: int) -> EndpointText:
    """Return the first `window` bytes of a text, without a part of a character."""
    content = text.encode(errors="replace")
    if len(content) <= window:
        return EndpointText([], False, 0.0, content.decode())
    return EndpointText([], True, 0.0, content[:window].decode(errors="ignore"))


def _wording(dialect: Dialect, *, job: bool) -> EndpointWording:
    return EndpointWording(
        url="--encoder" if job else URL,
        model="--model, --dimensions and --max-length",
        key=KEY_FILE,
        key_sources=f"the file of {KEY_FILE}",
        path=PATHS[dialect],
        expected="a list of embeddings",
    )
