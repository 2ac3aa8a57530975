"""`taugate serve`: bind the address, load the release, and serve until SIGTERM; `taugate settings` shows settings."""

import json
import os
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import click

from taugate.cli.terminal.command import Command
from taugate.cli.terminal.options import setting_parameters
from taugate.cli.terminal.output import aligned, print_result, printable, say, say_labelled
from taugate.errors import InputError
from taugate.plugins import provided
from taugate.service.settings import Settings, read_settings
from taugate.service.settings.settings import (
    PREFIX,
    SettingInForce,
    former_variables,
    settings_in_force,
    unknown_variables,
)
from taugate.storage.files import Json

_BACKLOG = 2048  # uvicorn's own default
# Send buffer of a connection; Linux doubles it. By default it grows to 4 MiB of kernel memory if the client does not
# read: 600 such connections take 1.7 GB, and 85 MB with this limit (benchmarks/results/attacks.md). It still allows
# 64 MB/s to a client a millisecond away.
_SEND_BUFFER_BYTES = 64 << 10
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy does not reach this machine's loopback
_READY_SECONDS = 60  # loading the sample release takes about a second


def run(**flags: Any) -> int:  # noqa: ANN401 (of the types of the settings)
    """Serve until a signal stops the service."""
    from taugate.service.lifecycle.loading import current_release  # slow: loads faiss and onnxruntime

    on_terminal = sys.stderr.isatty()
    if on_terminal and f"{PREFIX}LOG_LEVEL" not in map(str.upper, os.environ):
        flags["log_level"] = "warning"
    settings = read_settings(**flags)
    current_release(settings, at_start=True)  # before binding: a missing release is the usual mistake
    listener = listen(settings)
    if on_terminal:
        print_when_ready(listener, lambda release: {"Release": release, "Open": address(settings, listener)})
    serve(settings, listener)
    return 0


command = Command(
    "serve",
    callback=run,
    params=setting_parameters(),
    help="Serve the current release over HTTP. Every setting is also a TAUGATE_* variable; docs/settings.md lists "
    "them.",
)


def serve(settings: Settings, listener: socket.socket) -> None:
    """Run the service in the configured number of processes on the socket of `listen`, until a signal stops it."""
    from taugate.service.runtime.resources import raise_file_limit
    from taugate.service.server import serve_here
    from taugate.service.workers import serve_in_workers

    raise_file_limit()
    (serve_here if settings.compute.workers == 1 else serve_in_workers)(settings, listener)


def listen(settings: Settings) -> socket.socket:
    """Return a TCP socket that listens on the configured host and port."""
    from taugate.service.access.authorization import check_access
    from taugate.service.runtime.logs import check_installed

    check_access(settings)
    check_installed(settings.telemetry.otlp_endpoint)
    host, port = settings.listen.host, settings.listen.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the socket names its protocol, which socket.create_server omits. Without it,
    # every reply on a kept-alive connection waits some 40 ms for the client's delayed ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        return listener
    except OSError as error:
        listener.close()
        raise InputError(
            f"cannot listen on {host} port {port}: {error.strerror}; give another --host or --port"
        ) from error


def address(settings: Settings, listener: socket.socket) -> str:
    """Return the URL of the playground, or that of the service if the playground is off or not installed."""
    from taugate.service.http.operation import ENDPOINTS

    is_shown = settings.listen.has_playground and "playground" in provided("pages")
    return f"{_base(listener)}{ENDPOINTS['playground'].path if is_shown else ''} (Ctrl-C stops the service)"


def print_when_ready(listener: socket.socket, rows: Callable[[str], Mapping[str, str]]) -> None:
    """Print rows to stderr once the service is ready; they are made from the id of its release, in another thread."""
    threading.Thread(target=_announce, args=(_base(listener), rows), name="announce", daemon=True).start()


def _announce(base: str, rows: Callable[[str], Mapping[str, str]]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        try:
            with _OPENER.open(f"{base}/readyz", timeout=5) as reply:
                say_labelled(rows(json.load(reply)["release"]))
                return
        except OSError:  # not ready or not listening yet; the errors of urllib are OSErrors
            time.sleep(0.1)


def _base(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"  # IPv6


def run_settings(as_json: bool, **flags: Any) -> int:  # noqa: ANN401 (of the types of the settings)
    """Print the effective settings, as one JSON object on request; returns the exit code."""
    settings = settings_in_force(**flags)
    unknown = unknown_variables(os.environ)
    if as_json:
        values: dict[str, Json] = {
            setting.variable.name: {
                "value": setting.value,
                **({"options": dict(setting.options)} if setting.options else {}),
                "source": setting.source,
                "set_by": setting.set_by,
            }
            for setting in settings
        }
        print_result({"settings": values, "unknown": unknown})
    else:
        rows = [(setting.variable.name, printable(_options(setting)), _source(setting)) for setting in settings]
        print_result("\n".join(aligned(rows)))
        for name, nearest in unknown.items():
            hint = f"; did you mean {nearest}?" if nearest else ""
            say(f"warning: {printable(name)} is set, but is not a setting{hint}")
        for name, use in former_variables(os.environ).items():
            say(f"warning: {printable(name)} is a former name; use {use}")
    return 0


settings_command = Command(
    "settings",
    callback=run_settings,
    params=[
        *setting_parameters(moved=True),
        click.Option(["--json", "as_json"], is_flag=True, help="print one JSON object"),
    ],
    help="Shows the settings that `taugate serve` would use without options. Secrets are hidden; docs/settings.md "
    "describes every setting.",
)


def _options(setting: SettingInForce) -> str:
    """Return the value of a variable with its options."""
    options = [f"{key}={_text(value)}" for key, value in setting.options.items() if value is not None]
    return ",".join([_text(setting.value), *options])


def _text(value: object) -> str:
    """Return a value as the user would write it, or – if there is none."""
    if isinstance(value, bool):
        return str(value).lower()
    return "–" if value is None else str(value)


def _source(setting: SettingInForce) -> str:
    """Return the source of a value, with the name that set it if that differs from the variable."""
    if setting.set_by is None or setting.set_by == setting.variable.name:
        return setting.source
    return f"{setting.source} ({printable(setting.set_by)})"
