"""The command `taugate-mcp`: its options and error messages."""

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
_CLIENT_GONE = 141  # status that shells report for a program that SIGPIPE ended
_HOST_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


class _CannotStart(Exception):
    """An error at startup, with the exit status; 2 means wrong usage."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with the arguments of the process by default, and return the exit status."""
    try:
        return _run(parser().parse_args(arguments))
    finally:
        _drop_unread()


def _run(arguments: argparse.Namespace) -> int:
    # Before the SDK configures logging: warnings on stderr, one line each.
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return asyncio.run(_serve(arguments))
    except _CannotStart as error:
        say(str(error))
        return error.status
    except KeyboardInterrupt:
        return 130


def _drop_unread() -> None:
    """Discard output that has no reader any more, which the interpreter would try to write and report at its end."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _report_unless_unread(unraisable: "sys.UnraisableHookArgs") -> None:
    """Report an error of a destructor, unless the SDK's buffer of stdout cannot be flushed because nobody reads it.

    Python 3.13 and later report that.
    """
    if not issubclass(unraisable.exc_type, BrokenPipeError):
        sys.__unraisablehook__(unraisable)


async def _serve(arguments: argparse.Namespace) -> int:
    """Serve until the client disconnects or a signal arrives, and return the exit status."""
    try:
        from taugate_mcp.server import make_server
        from taugate_mcp.transports import listen, serve_http, serve_stdio
    except ModuleNotFoundError as error:
        raise _CannotStart(f"{error.name} is missing; run: pip install 'taugate-client[mcp]'") from error
    try:
        client = AsyncTaugateClient(arguments.url, _key())
    except ValueError as error:
        raise _CannotStart(str(error)) from error
    async with client:
        server = make_server(client)
        if arguments.transport == "stdio":
            if sys.stdin is None or sys.stdout is None:
                raise _CannotStart(
                    "stdin or stdout is closed: let a client start this command, or use --transport http"
                )
            status = 0
            try:
                await serve_stdio(server)
            except* BrokenPipeError:  # the client has exited
                sys.unraisablehook = _report_unless_unread
                status = _CLIENT_GONE
            return status
        try:
            listener = listen(arguments.host, arguments.port)
        except OSError as error:
            reason = str(error.strerror).partition(" (while")[0]  # Python repeats the address
            message = f"{arguments.host}, port {arguments.port}: {reason}; choose another with --host and --port"
            raise _CannotStart(message, status=1) from error
        with listener:
            await serve_http(server, listener, arguments.allowed_hosts)
    return 0


def _key() -> str | None:
    """Return the API key in the file TAUGATE_KEY_FILE; None if it is not set, and the client reads TAUGATE_KEY."""
    file = os.environ.get(KEY_FILE)
    if not file:
        return None
    if os.environ.get(KEY):
        raise _CannotStart(f"{KEY} and {KEY_FILE} are both set; unset one of them")
    try:
        key = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise _CannotStart(f"{KEY_FILE}: {file} cannot be read as text") from error
    if not key:
        raise _CannotStart(f"{KEY_FILE}: {file} is empty; write the key into it")
    return key


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        prog="taugate-mcp",
        description="Let agents search a Taugate service through the Model Context Protocol.",
        epilog=f"The API key is read from {KEY}, or from the file {KEY_FILE}. It needs the scopes search and feedback. "
        "Over HTTP, all clients that can reach the port search with this key.",
    )
    parser.add_argument("--url", required=True, help="the service, such as http://127.0.0.1:8000")
    parser.add_argument(
        "--transport", choices=("stdio", "http"), default="stdio",
        help="stdio: the client starts this command; http: clients connect to http://HOST:PORT/mcp (default: stdio)",
    )  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on, for http (default: 127.0.0.1)")
    parser.add_argument("--port", type=_port, default=8765, help="port to listen on, for http (default: 8765)")
    parser.add_argument(
        "--allowed-hosts", type=_hosts, default=[], metavar="NAMES",
        help="host names that clients may use in addition to localhost, 127.0.0.1 and [::1], separated by commas",
    )  # fmt: skip
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: use 0 to 65535; 0 selects a free one")
    return int(text)


def _hosts(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise argparse.ArgumentTypeError(f"{name!r} is not a host name; leave out scheme and port")
    return names
