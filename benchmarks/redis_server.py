"""A Redis on a loopback port of its own, for services under load."""

import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import redis

from benchmarks.serving.servers import free_port

_START_SECONDS = 20.0


@dataclass(frozen=True)
class RedisServer:
    """A running Redis that keeps nothing on disk."""

    url: str
    client: redis.Redis
    process: "subprocess.Popen[bytes]"

    def pause(self) -> None:
        """Stop it, so that it neither answers nor refuses."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after `pause`."""
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def redis_server() -> Iterator[RedisServer]:
    """Start redis-server, and end it with the context.

    Raises:
        RuntimeError: If it does not answer within 20 seconds.
    """
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly", "no"]
        process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        url = f"redis://127.0.0.1:{port}/0"
        client = redis.Redis.from_url(url)
        try:
            _wait(client)
            yield RedisServer(url, client, process)
        finally:
            client.close()
            process.kill()
            process.wait()


def _wait(client: redis.Redis) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        try:
            client.ping()
        except redis.ConnectionError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError("redis-server did not start")
