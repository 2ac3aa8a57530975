"""Asks for confirmation before texts leave this machine."""

import sys

from taugate.errors import InputError


def confirm_sending(what: str) -> None:
    """Ask the user whether to send texts to an endpoint.

    Args:
        what: What would be sent, such as "the documents".

    Raises:
        InputError: If the user does not confirm, or stdin is no terminal.
    """
    if not sys.stdin.isatty():
        raise InputError(f"nothing was sent: add --yes to send {what} to the endpoint")
    sys.stderr.write("Send them? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().casefold() not in {"y", "yes"}:
        raise InputError("nothing was sent, and nothing was changed")
