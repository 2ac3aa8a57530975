"""Start a Milvus 2.3.5 and wait until it is told to end; runs in the environment that has the package `milvus`."""

import signal
import socket
import sys
import threading

from milvus import MilvusServer, MilvusServerConfig

_PARTS = ("rootCoord", "proxy", "queryCoord", "queryNode", "indexNode", "dataCoord", "dataNode")


class _Config(MilvusServerConfig):
    """A configuration that takes a port as free whose last connections have just been cut, as by a kill."""

    def try_bind_port(self, port):  # type: ignore[no-untyped-def]
        found = socket.socket()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(("127.0.0.1", port))
            found.listen()
        except OSError:
            found.close()
            return None
        return found


def main() -> None:
    """Arguments: the folder of its data, and the port to listen on. Prints "ready" once it answers."""
    folder, port = sys.argv[1:]
    config = _Config(data_dir=folder, proxy_port=int(port))
    for part in _PARTS:
        config.set(f"{part}.ip", "127.0.0.1")
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    server = MilvusServer(config)
    try:
        server.start()
        print("ready", flush=True)  # noqa: T201
        ended.wait()
    finally:
        if server.server_proc is not None:
            server.server_proc.kill()  # it outlives a SIGTERM to this process
            server.server_proc.wait()


if __name__ == "__main__":
    main()
