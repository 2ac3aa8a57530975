"""Errors a user can act on. Each message names what is wrong, where, and what to do.

TaugateError
├── InputError      a data set, a setting or a query that cannot be used
├── EncoderError    a model that cannot be loaded, exported or run
└── ReleaseError    a release that is missing, damaged or of another version
    ├── NotPromoted a release that is sound, and not good enough to be the current one
    ├── StoreError  object storage that does not answer now
    └── EngineUnavailable   an engine that does not answer now
"""


class TaugateError(Exception):
    """Base of every error whose message is meant for the user.

    What cannot be printed is escaped: a file name may be any bytes, and some neither JSON nor a terminal may be given.
    """

    def __init__(self, message: str) -> None:
        super().__init__("".join(each if each.isprintable() or each == "\n" else ascii(each)[1:-1] for each in message))


class InputError(TaugateError):
    """A data set, a setting or a query that cannot be used."""


class EncoderError(TaugateError):
    """A model that cannot be loaded, exported or run."""


class ReleaseError(TaugateError):
    """A release that is missing, damaged or written by another version."""


class NotPromoted(ReleaseError):
    """A release that verifies, and that the evidence in its manifest does not allow to become current.

    Attributes:
        rule: Which.
    """

    def __init__(self, message: str, rule: str) -> None:
        super().__init__(message)
        self.rule = rule


class StoreError(ReleaseError):
    """Object storage that does not answer now: unlike the others it may get better by itself."""


class EngineUnavailable(ReleaseError):
    """An engine that does not answer now, or not in time: unlike a refusal it may get better by itself."""
