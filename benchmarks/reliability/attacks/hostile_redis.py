"""A Redis that an attacker controls: forged replies, absurd counters, answers of gigabytes."""

import http.client
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import orjson
from redis import Redis
from safetensors import SafetensorError
from safetensors.numpy import load, save

from benchmarks.redis_server import redis_server
from benchmarks.reliability.attacks.setting import AttackResult, AttackSetting
from benchmarks.reliability.attacks.traffic import grown, peak
from benchmarks.serving.client import HOST
from benchmarks.serving.servers import Server

_QUERIES = [f"Who pays for the repair of roof {number}?" for number in range(20)]
_TIMEOUT = "1000"  # ms: the attack is not to be saved by a slow machine
_LOOKS_SECONDS = 12.0  # the service looks at what replicas share every five
_REPLY_BYTES, _REPLY_SECONDS, _GROWTH = 3_000_000_000, 20.0, 64.0
_MAX_SIMILAR = 1.001  # a cosine in float32
_BEYOND = 10**19


def forged(setting: AttackSetting) -> AttackResult:
    """Replace every cached value by something that is no reply of this service."""
    outside, served = 0, 0
    with redis_server() as redis, setting.service(settings=_shared(redis.url) | {"CACHE_BYTES": "0"}) as server:
        sound = [_asked(server, query) for query in _QUERIES]
        time.sleep(0.5)
        kept = _values(redis.client)
        for forge in _FORGERIES:
            for key, value in kept.items():
                redis.client.set(key, forge(value), ex=600)
            for query, right in zip(_QUERIES, sound, strict=True):
                served += 1
                outside += not _within_contract(_asked(server, query), right)
    return AttackResult(
        "forged replies in Redis", f"{outside} of {served} replies are outside the contract", "0", not outside
    )


def counters(setting: AttackSetting) -> AttackResult:
    """Set every number that replicas share to 10^19."""
    with redis_server() as redis, setting.service(settings=_shared(redis.url)) as server:
        ends, failed = time.monotonic() + 2 * _LOOKS_SECONDS, 0
        while time.monotonic() < ends:
            failed += not _asked(server, f"{_QUERIES[0]} {time.monotonic()}").get("results")
            if time.monotonic() > ends - _LOOKS_SECONDS:
                _raise_counters(redis.client)
            time.sleep(0.02)
        largest = _largest_metric(server, setting.keys["metrics"])
    measured = f"largest metric {largest:.3g}, {failed} failed requests"
    return AttackResult("counters of 10^19 in Redis", measured, "< 10^18, 0 failed", largest < 1e18 and not failed)


def huge_replies(setting: AttackSetting) -> AttackResult:
    """Let a false Redis answer reads with 3 GB."""
    with HugeReplyRedis() as redis, setting.service(settings=_shared(redis.url)) as server, peak(server) as seen:
        ends = time.monotonic() + _REPLY_SECONDS
        while time.monotonic() < ends and server.alive:
            try:
                _asked(server, f"{_QUERIES[0]} {time.monotonic()}")
            except (OSError, http.client.HTTPException):
                break  # it is counted by its memory
            time.sleep(0.05)
    measured = f"{redis.sent / 1e6:.0f} MB were read, memory + {grown(seen):.0f} MB"
    return AttackResult("a Redis that answers 3 GB", measured, f"+ {_GROWTH:g} MB", grown(seen) <= _GROWTH)


def _shared(url: str) -> dict[str, str]:
    return {"REDIS_URL": url, "REDIS_TIMEOUT_MS": _TIMEOUT}


def _asked(server: Server, query: str) -> dict[str, Any]:
    try:
        reply = orjson.loads(server.ask(query))
    except ValueError:
        return {}
    return reply if isinstance(reply, dict) else {}


def _values(redis: Redis) -> dict[bytes, bytes]:
    return {key: _bytes(redis.get(key)) for key in redis.scan_iter("taugate:*") if redis.type(key) == b"string"}


def _bytes(value: bytes | str | None) -> bytes:
    """The value of a key, empty if it is gone; redis-py's types allow for text, which this client never asks for."""
    return value if isinstance(value, bytes) else b""


def _as_text(value: bytes) -> bytes:
    """Replace the list of results by a string of HTML; in a reply kept as a whole, all counts agree with it."""
    if b'{"results"' not in value:
        return re.sub(rb"\d", b"<", value)
    head, rest = value.split(b"\n", 1)
    kept, considered, reason, observed, shown = orjson.loads(head)
    body = orjson.dumps({"results": "<script>", "threshold": 0})
    return orjson.dumps([kept, considered, reason, observed, shown]) + b"\n" + rest[: observed + shown] + body


_FORGERIES: list[Callable[[bytes], bytes]] = [
    _as_text,
    lambda value: re.sub(rb"(?<=[\[:,])-?\d+(\.\d+)?(?=[\],}])", b"-99999", value),
    lambda value: b"\xff" * len(value),
    lambda value: b"\x7f" * len(value),
    lambda value: value[: len(value) // 2],
    lambda value: value * 1000,
]


def _within_contract(reply: dict[str, Any], right: dict[str, Any]) -> bool:
    """Return True if a reply has the right shape and says what is true of its release."""
    results = reply.get("results")
    return (
        reply.keys() == right.keys()
        and all(reply[name] == right[name] for name in ("threshold", "policy", "release", "calibrated"))
        and isinstance(results, list)
        and all(_is_result(result) for result in results)
        and [each["rank"] for each in results] == sorted({each["rank"] for each in results})
        and 0 <= reply["dropped"] == reply["considered"] - len(results)
    )


def _is_result(result: dict[str, Any]) -> bool:
    score = result["score"]
    return isinstance(result["text"], str) and isinstance(score, float) and abs(score) <= _MAX_SIMILAR


def _raise_counters(redis: Redis) -> None:
    """Raise the evidence of drift of all replicas, and of one that does not exist."""
    for key in redis.scan_iter("taugate:drift:*"):
        if redis.type(key) == b"hash":
            for value in redis.hgetall(key).values():
                redis.hset(key, b"0" * 32, _raised(_bytes(value)))
        elif redis.type(key) == b"string":
            redis.set(key, _raised(_bytes(redis.get(key))), keepttl=True)


def _raised(value: bytes) -> bytes:
    """Arrays with the largest numbers that they can hold, or 10^19."""
    try:
        arrays = load(value)
    except SafetensorError:
        return re.sub(rb"\d+", b"%d" % _BEYOND, value)
    for name, array in arrays.items():
        if np.issubdtype(array.dtype, np.integer):
            arrays[name] = np.full_like(array, min(np.iinfo(array.dtype).max, _BEYOND))
        elif (
            np.issubdtype(array.dtype, np.floating) and name != "at"
        ):  # what is from the future is thrown away before it is counted
            arrays[name] = np.full_like(array, float(_BEYOND))
    return save(arrays)


def _largest_metric(server: Server, key: str) -> float:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=30)
    connection.request("GET", "/metrics", headers={"X-API-Key": key})
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    values = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("taugate_")]
    return max(value for value in values if value < float("inf"))


class HugeReplyRedis:
    """A server that answers every read with a string of 3 GB, and everything else with OK.

    Attributes:
        sent: Bytes sent over all connections.
        url: Address for TAUGATE_REDIS_URL.
    """

    _READS = frozenset(
        {b"GET", b"MGET", b"HGET", b"HGETALL", b"HMGET", b"LRANGE", b"ZRANGE", b"SMEMBERS", b"EVALSHA", b"EVAL"}
    )

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.sent = 0
        self.url = f"redis://{HOST}:{self._listener.getsockname()[1]}/0"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        block = b"1" * (1 << 20)
        try:
            with client:
                while asked := client.recv(1 << 16):
                    for name in re.findall(rb"\*\d+\r\n\$\d+\r\n(\w+)\r\n", asked):
                        if name.upper() not in self._READS:
                            client.sendall(b"+OK\r\n")
                            continue
                        several = b"*1\r\n" if name.upper() in {b"MGET", b"HGETALL"} else b""
                        client.sendall(several + b"$%d\r\n" % _REPLY_BYTES)
                        while self.sent < _REPLY_BYTES:
                            client.sendall(block)
                            self.sent += len(block)
        except OSError:  # it has hung up
            pass
