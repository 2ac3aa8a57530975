"""Writing for people: lines to stderr, and text from elsewhere in a form that no terminal obeys."""

import sys


def say(line: str) -> None:
    """Write a line to stderr, so that stdout holds the result alone.

    line: the text, without a line break at its end.
    """
    sys.stderr.write(f"{line}\n")


def printable(text: str) -> str:
    """Replace what cannot be printed by question marks, as a terminal would obey control characters.

    text: one line of any characters, such as one from a file that others may write.
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text)
