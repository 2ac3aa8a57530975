"""An S3-compatible server on a free loopback port."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
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


@contextmanager
def object_storage() -> Iterator[tuple[ObjectStorage, ThreadedMotoServer]]:
    """Start a server with an empty bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        httpx.post(
            f"http://127.0.0.1:{port}/moto-api/reset"
        ).raise_for_status()  # all its servers in a process share one state
        yield ObjectStorage(port), server
    finally:
        server.stop()
