"""Errors that a user can act on. Messages name the problem, its place, and a remedy.

TaugateError
├── InputError      a data set, a setting or a query that cannot be used
│   └── NoEncoder   a text for a release that has no encoder
├── EncoderError    a model that cannot be loaded, exported or run
│   ├── EncoderUnsupported  a model that this machine cannot run
│   ├── EncoderUnavailable  an endpoint that gives no vectors
│   └── TextRefused         a text that an endpoint does not encode
├── LogChanged      a chained query log that is not as it was written
└── ReleaseError    a release that is missing, damaged or of another version
    ├── NotPromoted a valid release that is not good enough to become current
    ├── StoreError  object storage that does not respond
    ├── EngineUnavailable   an engine that does not respond
    └── RerankerUnavailable a reranker that gives no scores, or not in time
"""


class TaugateError(Exception):
    """Base of every error whose message is meant for the user.

    Unprintable characters are escaped, because file names may contain bytes that are unsafe for JSON and terminals.

    Attributes:
        exit_code: Exit code of a command that ends with it: 2 for bad input, 1 if the input is not at fault.
    """

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(
            "".join(
                character if character.isprintable() or character == "\n" else ascii(character)[1:-1]
                for character in message
            )
        )


class InputError(TaugateError):
    """A data set, a setting or a query that cannot be used."""


class NoEncoder(InputError):
    """A text for a release that has no encoder, because it was calibrated on vectors."""


class EncoderError(TaugateError):
    """A model that cannot be loaded, exported or run."""


class EncoderUnsupported(EncoderError):
    """A model that this machine, or this installation, cannot run; another one may."""


class EncoderUnavailable(EncoderError):
    """An endpoint that gives no vectors.

    Attributes:
        lasting: Whether a retry is of no use, because the endpoint refuses all requests or replies with something else.
        replied: Whether it replied with an internal error, which one of several texts may have caused.
        retry_in: Seconds until it is sent a request again; 0 for at once.
    """

    def __init__(self, message: str, *, lasting: bool = False, replied: bool = False, retry_in: float = 0.0) -> None:
        super().__init__(message)
        self.lasting, self.replied, self.retry_in = lasting, replied, retry_in
        self.exit_code = 2 if lasting else 1


class TextRefused(EncoderError):
    """A text that an endpoint does not encode, such as one that it considers harmful.

    Attributes:
        text: The text as it was sent.
        replied: See EncoderUnavailable.
    """

    replied = True

    def __init__(self, message: str, text: str = "") -> None:
        super().__init__(message)
        self.text = text


class ReleaseError(TaugateError):
    """A release that is missing, damaged or written by another version."""


class LogChanged(TaugateError):
    """A chained query log that is not as it was written."""

    exit_code = 1


class NotPromoted(ReleaseError):
    """A valid release that may not become current by the evidence in its manifest.

    Attributes:
        rule: Name of the rule that refused it.
    """

    exit_code = 4

    def __init__(self, message: str, rule: str) -> None:
        super().__init__(message)
        self.rule = rule


class StoreError(ReleaseError):
    """Object storage that does not respond; a retry may succeed."""

    exit_code = 1


class EngineUnavailable(ReleaseError):
    """An engine that does not respond in time; a retry may succeed."""

    exit_code = 1


class RerankerUnavailable(ReleaseError):
    """A reranker that gives no scores, or not in time; a search then has the first stage's results."""


class OtherReranker(RerankerUnavailable):
    """A reranker that gives other scores than the calibrated one."""
