"""Texts in place of tokens, for encoders of tests that tokenize nothing."""


class TextTokens(str):
    """A text that such an encoder reads whole."""

    truncated = unreadable = False
    __slots__ = ()
