"""The command `taugate-mcp`: its options, and what becomes of errors."""

import argparse
import asyncio
import logging
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from taugate_client import AsyncTaugateClient
from taugate_mcp.messages import say

KEY, KEY_FILE = "TAUGATE_KEY", "TAUGATE_KEY_FILE"
_CLIENT_GONE = 141  # what shells report of a program that SIGPIPE ended
_HOST_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


class _CannotStart(Exception):
    """The message says what is wrong and what to do.

    Attributes:
        status: The exit status, 2 for wrong usage.
    """

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: Those of the process, unless given. Returns the exit status.
    """
    try:
        return _run(parser().parse_args(arguments))
    finally:
        _drop_unread()


def _run(given: argparse.Namespace) -> int:
    # Before the SDK does it: warnings on stderr, one line each.
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return asyncio.run(_serve(given))
    except _CannotStart as error:
        say(str(error))
        return error.status
    except KeyboardInterrupt:
        return 130


def _drop_unread() -> None:
    """Drop what nobody reads any more, which the interpreter would try to write once more and report at its end."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


async def _serve(given: argparse.Namespace) -> int:
    """Serve until the clients leave or a signal comes. Returns the exit status."""
    try:
        from taugate_mcp.server import make_server
        from taugate_mcp.transports import listen, serve_http, serve_stdio
    except ModuleNotFoundError as error:
        raise _CannotStart(f"{error.name} is missing; run: pip install 'taugate-client[mcp]'") from error
    try:
        client = AsyncTaugateClient(given.url, _key())
    except ValueError as error:
        raise _CannotStart(str(error)) from error
    async with client:
        server = make_server(client)
        if given.transport == "stdio":
            if sys.stdin is None or sys.stdout is None:
                raise _CannotStart(
                    "stdin or stdout is closed: let a client start this command, or use --transport http"
                )
            status = 0
            try:
                await serve_stdio(server)
            except* BrokenPipeError:  # the client left without a word
                status = _CLIENT_GONE
            return status
        try:
            listener = listen(given.host, given.port)
        except OSError as error:
            why = str(error.strerror).partition(" (while")[0]  # Python repeats the address
            message = f"{given.host}, port {given.port}: {why}; choose another with --host and --port"
            raise _CannotStart(message, status=1) from error
        with listener:
            await serve_http(server, listener, given.allowed_hosts)
    return 0


def _key() -> str | None:
    """Return the API key of the file that TAUGATE_KEY_FILE names; None leaves TAUGATE_KEY to the client."""
    file = os.environ.get(KEY_FILE)
    if not file:
        return None
    if os.environ.get(KEY):
        raise _CannotStart(f"{KEY} and {KEY_FILE} are both set; unset one of the two")
    try:
        key = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise _CannotStart(f"{file}: {KEY_FILE} names it, and it cannot be read as text") from error
    if not key:
        raise _CannotStart(f"{file}: {KEY_FILE} names it, and it is empty; write the key into it")
    return key


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        prog="taugate-mcp",
        description="Let agents search a Taugate service through the Model Context Protocol.",
        epilog=f"The API key comes from {KEY}, or from the file that {KEY_FILE} names. It needs the scopes search and "
        "feedback. Over HTTP, whoever reaches the port searches with this key.",
    )
    parser.add_argument("--url", required=True, help="the service, such as http://127.0.0.1:8000")
    parser.add_argument(
        "--transport", choices=("stdio", "http"), default="stdio",
        help="stdio: the client starts this command; http: clients connect to http://HOST:PORT/mcp (default: stdio)",
    )  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at, for http (default: 127.0.0.1)")
    parser.add_argument("--port", type=_port, default=8765, help="port to listen at, for http (default: 8765)")
    parser.add_argument(
        "--allowed-hosts", type=_hosts, default=[], metavar="NAMES",
        help="host names, by commas, that clients may use beside localhost, 127.0.0.1 and [::1]",
    )  # fmt: skip
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 to 65535, where 0 takes a free one")
    return int(text)


def _hosts(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise argparse.ArgumentTypeError(f"{name!r} is no host name; leave out scheme and port")
    return names
