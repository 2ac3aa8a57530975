"""What replicas leave for each other in Redis; off the way of any request. Every method raises redis.RedisError."""

import uuid
from collections.abc import Mapping

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

# A round trip on a local network takes under a millisecond; nobody waits for this one but the next look.
_TIMEOUT_SECONDS = 1.0
_BUCKET_SECONDS = 600  # of replies remembered under one key, which expires as a whole


class Fleet:
    """Of one release. seconds: how long a reply is remembered."""

    def __init__(self, url: str, release: str, seconds: float) -> None:
        self._redis = Redis.from_url(
            url,
            socket_timeout=_TIMEOUT_SECONDS,
            socket_connect_timeout=_TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
        self._prefix = f"taugate:drift:1:{release}"
        self._seconds = int(seconds)
        self._replica = uuid.uuid4().hex.encode()

    def exchange(self, kind: str, sample: bytes | None, seconds: float) -> dict[bytes, bytes]:
        """Leave a sample of a kind, which may be none, and take those of all other replicas, by replica.

        seconds: after which all go, unless somebody leaves another one.
        """
        key = f"{self._prefix}:{kind}"
        with self._redis.pipeline(transaction=False) as pipeline:
            if sample is not None:
                pipeline.hset(key, self._replica.decode(), sample)
                pipeline.expire(key, int(seconds))
            pipeline.hgetall(key)
            samples: dict[bytes, bytes] = pipeline.execute()[-1]
        samples.pop(self._replica, None)
        return samples

    def forget(self, kind: str, replica: bytes) -> None:
        """Remove what is of no use: of a replica that is gone, or no sample at all."""
        self._redis.hdel(f"{self._prefix}:{kind}", replica)

    def remember(self, at: float, replies: Mapping[str, bytes]) -> None:
        """Keep what replies showed, by their id; at: Unix time."""
        key = self._bucket(at)
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.hset(key, items=[part for item in replies.items() for part in item])
            pipeline.expire(key, self._seconds + _BUCKET_SECONDS)
            pipeline.execute()

    def find(self, query_id: str, now: float) -> bytes | None:
        """What a reply showed, None where it is not known (any more)."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for age in range(0, self._seconds + _BUCKET_SECONDS, _BUCKET_SECONDS):
                pipeline.hget(self._bucket(now - age), query_id)
            return next((shown for shown in pipeline.execute() if shown is not None), None)

    def is_first(self, judgement: str) -> bool:
        """Whether no replica was told this before."""
        return bool(self._redis.set(f"{self._prefix}:judged:{judgement}", b"", nx=True, ex=self._seconds))

    def close(self) -> None:
        """Let go of the connections."""
        self._redis.close()

    def _bucket(self, at: float) -> str:
        return f"{self._prefix}:shown:{int(at // _BUCKET_SECONDS)}"
