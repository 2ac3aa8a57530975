"""A real Redis on a free loopback port."""

import signal
import subprocess
import time
from pathlib import Path
from typing import Self

import redis

from tests.loopback import free_port
from tests.servers import require


class RedisProcess:
    """A Redis without files, ended by leaving the context; clients connect to its loopback port or its Unix socket."""

    def __init__(self, folder: Path, port: int | None = None, password: str = "") -> None:
        self.socket = folder / "redis.sock"
        self.port = port or free_port()
        self.url = f"redis://:{password}@127.0.0.1:{self.port}/0" if password else f"redis://127.0.0.1:{self.port}/0"
        settings = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(folder), "save": "", "appendonly": "no"}
        settings["unixsocket"] = str(self.socket)
        if password:
            settings["requirepass"] = password
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        self.process = subprocess.Popen([require("redis-server"), *options], stdout=subprocess.DEVNULL)
        self.client = redis.Redis.from_url(self.url)

    def __enter__(self) -> Self:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                self.client.ping()
                return self
            except redis.ConnectionError:
                time.sleep(0.02)
        raise AssertionError("redis-server did not start")

    def pause(self) -> None:
        """Stop it without closing its connections: clients wait."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=20)

    def __exit__(self, *exception: object) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait(timeout=20)
