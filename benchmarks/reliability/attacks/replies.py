"""Attacks by not reading what the service writes: its replies, and its log."""

import contextlib
import os
import re
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from benchmarks.reliability.attacks.setting import AttackResult, AttackSetting
from benchmarks.reliability.attacks.traffic import LOOK_SECONDS, connected, grown, peak, request, said, sent, status
from benchmarks.sampling import sampled

_CONNECTIONS = 600
_MEGABYTES = 256.0  # a quarter of a pod of 1 GiB
_KEPT_READING = 16 << 10  # bytes that the kernel takes for a client who reads nothing
_ASKED = 1000
_PATIENCE, _END_SECONDS = 2.0, 5.0


def unread(setting: AttackSetting) -> AttackResult:
    """600 connections ask for large replies, all but the first from the cache, and read none of them.

    What is written and not read waits in the service or in the kernel, which counts it to the same pod.
    """
    with setting.service() as server, peak(server, 3 << 30) as seen, sampled(_in_kernel, LOOK_SECONDS) as waiting:
        asked = sent(leave_unread, server.port, 20.0, setting.keys["other"], _CONNECTIONS)
    kernel = grown(waiting)
    measured = f"{asked} asked; memory + {grown(seen):.0f} MB, in the kernel + {kernel:.0f} MB"
    total = grown(seen) + kernel
    return AttackResult("replies that are not read", measured, f"+ {_MEGABYTES:g} MB", total <= _MEGABYTES)


def _in_kernel() -> int:
    """Return the bytes in the buffers of all TCP connections of this machine."""
    (pages,) = re.findall(r"^TCP: .* mem (\d+)$", Path("/proc/net/sockstat").read_text(), re.MULTILINE)
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def leave_unread(port: int, seconds: float, key: str, connections: int) -> int:
    """Ask for replies of megabytes and read none of them; returns how many requests were sent."""
    queries = [{"query": f"Who pays for roof {number}?", "k": 100, "threshold": -1} for number in range(64)]
    asked = request("POST", "/search/batch", orjson.dumps({"queries": queries}), key)
    with connected(port, 60.0) as first:  # fills the cache
        first.sendall(asked)
        said(first, _PATIENCE, b"}]}")
    held: list[socket.socket] = []
    ends = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        while len(held) < connections and time.monotonic() < ends:
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KEPT_READING)
            client.settimeout(_PATIENCE)
            with contextlib.suppress(OSError):
                client.connect(("127.0.0.1", port))
                client.sendall(asked)
                held.append(client)
        time.sleep(max(0.0, ends - time.monotonic()))
    return len(held)


def unread_log(setting: AttackSetting) -> AttackResult:
    """Start the service with a pipe for stderr that is not read."""
    with unread_pipe() as into_pipe, setting.service(wrap=lambda command: [*into_pipe, *command]) as server:
        answered, asked = 0, request("POST", "/search", b'{"query":"a"}', setting.keys["good"])
        with connected(server.port) as client:
            for _ in range(_ASKED):
                client.sendall(asked)
                if status(said(client, _PATIENCE, b'"query_id"')) != 200:
                    break
                answered += 1
        server.signal(signal.SIGTERM)
        deadline = time.monotonic() + _END_SECONDS
        while server.alive and time.monotonic() < deadline:
            time.sleep(0.05)
        ended = not server.alive
        if not ended:
            server.kill()
    measured = f"{answered} of {_ASKED} answered, SIGTERM {'ends it' if ended else 'is not heeded'}"
    return AttackResult("a log that is not read", measured, f"{_ASKED}, ends", answered == _ASKED and ended)


@contextmanager
def unread_pipe() -> Iterator[list[str]]:
    """Yield the words to put in front of a command, so that its log goes into a pipe that is not read."""
    with tempfile.TemporaryDirectory() as folder:
        pipe = Path(folder) / "stderr"
        os.mkfifo(pipe)
        held = os.open(pipe, os.O_RDWR)  # keeps it open; nothing is ever read
        try:
            yield ["sh", "-c", f'exec "$@" 2>{pipe}', "sh"]
        finally:
            os.close(held)
