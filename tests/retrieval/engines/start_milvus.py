"""Start a Milvus 2.3.5 and wait until it is told to end; runs in the environment that has the package `milvus`."""

import signal
import sys
import threading

from milvus import MilvusServer, MilvusServerConfig

_PARTS = ("rootCoord", "proxy", "queryCoord", "queryNode", "indexNode", "dataCoord", "dataNode")


def main() -> None:
    """Arguments: the folder of its data, and the port to listen on. Prints "ready" once it answers."""
    folder, port = sys.argv[1:]
    config = MilvusServerConfig(data_dir=folder, proxy_port=int(port))
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
        server.server_proc.kill()  # it outlives a SIGTERM to this process
        server.server_proc.wait()


if __name__ == "__main__":
    main()
