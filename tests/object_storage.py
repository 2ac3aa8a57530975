"""An S3-compatible server on a free loopback port, and a store in memory for tests in which S3 does not matter."""

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import fsspec
import httpx
from moto.server import ThreadedMotoServer

BUCKET = "releases"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


class ObjectStorage:
    """A bucket; `url` is a path in it, and `environment` has the variables that clients need."""

    def __init__(self, port: int) -> None:
        self.url = f"s3://{BUCKET}/team"
        self.environment = CREDENTIALS | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name="us-east-1",
        )
        self._client.create_bucket(Bucket=BUCKET)

    def names(self) -> set[str]:
        """Return the names of the objects below the URL."""
        objects = self._client.list_objects_v2(Bucket=BUCKET, Prefix="team/").get("Contents", [])
        return {item["Key"].removeprefix("team/") for item in objects}

    def get(self, name: str) -> bytes:
        return self._client.get_object(Bucket=BUCKET, Key=f"team/{name}")["Body"].read()

    def put(self, name: str, content: bytes) -> None:
        self._client.put_object(Bucket=BUCKET, Key=f"team/{name}", Body=content)

    def remove(self, name: str) -> None:
        self._client.delete_object(Bucket=BUCKET, Key=f"team/{name}")


class MemoryStorage:
    """The same in the memory of this process, without requests: `url` names it, and it begins empty."""

    def __init__(self, name: str) -> None:
        self.url = f"memory://{name}"
        self._files = fsspec.filesystem("memory")
        if self._files.exists(name):
            self._files.rm(name, recursive=True)

    def names(self) -> set[str]:
        """Return the names of the objects below the URL."""
        root = self.url.removeprefix("memory://")
        return {path.removeprefix(f"{root}/") for path in self._files.find(root)}

    def get(self, name: str) -> bytes:
        return self._files.cat_file(f"{self.url}/{name}")

    def put(self, name: str, content: bytes) -> None:
        self._files.pipe_file(f"{self.url}/{name}", content)

    def remove(self, name: str) -> None:
        self._files.rm_file(f"{self.url}/{name}")


@functools.cache
def _shared_server() -> ThreadedMotoServer:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    return server


def empty_bucket() -> ObjectStorage:
    """Empty the server that the tests of this process share; a test that stops its server uses `object_storage`."""
    return _emptied(_shared_server())


@contextmanager
def object_storage() -> Iterator[tuple[ObjectStorage, ThreadedMotoServer]]:
    """Start a server with an empty bucket."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        yield _emptied(server), server
    finally:
        server.stop()


def _emptied(server: ThreadedMotoServer) -> ObjectStorage:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    _, port = server.get_host_and_port()
    # All servers of a process share one state.
    httpx.post(f"http://127.0.0.1:{port}/moto-api/reset").raise_for_status()
    return ObjectStorage(port)
