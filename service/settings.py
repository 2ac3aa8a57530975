"""Every setting of the service, from TAUGATE_* variables; read when it starts and frozen after that."""

from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from taugate.drift.blocks import BLOCK
from taugate.drift.blocks import FEWEST as FEWEST_OF_A_BLOCK
from taugate.drift.blocks import MOST as MOST_OF_A_BLOCK
from taugate.drift.monitor import AVERAGE_RUN_LENGTH, SMALLEST_EFFECT
from taugate.drift.overlap import FEWEST
from taugate.retrieval.encoder.processors import processors
from taugate.retrieval.index.base import gpu_count
from taugate.retrieval.release.reader import RequestedPrecision
from taugate.storage.folders import cache_folder

MOST_QUERIES = 1024  # what TAUGATE_MAX_BATCH may be set to


def _workers() -> int:
    """One for every four processors, rounded up; with a GPU one, as each would have a copy of the index there.

    HTTP takes a small part of what encoding takes of a processor (docs/benchmarks/serving.md), so that one process
    keeps four busy.
    """
    return 1 if gpu_count() else -(-processors() // 4)


def _path_or_url(value: object) -> object:
    return Path(value) if isinstance(value, str) and "://" not in value else value


def _collector(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query or parts.fragment:
        message = "must be http://HOST:PORT or https://…, and a key goes into OTEL_EXPORTER_OTLP_HEADERS"
        raise PydanticCustomError("no_collector", message)
    return url


class Settings(BaseSettings):
    """Settings of `taugate serve`; `--releases`, `--host`, `--port` and `--workers` go before the environment.

    | variable | default | meaning |
    |---|---|---|
    | TAUGATE_RELEASES | – | directory, or URL such as s3://bucket/prefix, with the releases and the pointer `current` |
    | TAUGATE_RELEASES_COPY | – | folder of copies: of a URL, or where keys are trusted; one in the user's cache |
    | TAUGATE_TRUSTED_KEYS | – | PEM file or folder of public keys; a release that none of them signed never loads |
    | TAUGATE_HOST | 127.0.0.1 | address to listen on; 0.0.0.0 is all of them |
    | TAUGATE_PORT | 8000 | port to listen on |
    | TAUGATE_PRECISION | auto | encoder of the release to use: float32, int8, or the one it was calibrated with |
    | TAUGATE_WORKERS | one for every four processors, one with a GPU | processes that answer |
    | TAUGATE_ENCODER_THREADS | its share of the processors | batches that a process encodes at a time |
    | TAUGATE_SEARCH_THREADS | 1 | threads of a search; more are faster only for a large flat index |
    | TAUGATE_MAX_K | 100 | largest `k` of a search |
    | TAUGATE_MAX_BATCH | 64 | most queries in one /search/batch; 1024 at most |
    | TAUGATE_MAX_QUERY_CHARS | 8192 | longest query, in characters: four times what an encoder of 512 tokens reads |
    | TAUGATE_MAX_BODY_BYTES | 65536 | largest body of a request: a query of MAX_QUERY_CHARS takes half of it in UTF-8 |
    | TAUGATE_MAX_BATCH_BYTES | 1048576 | largest body of /search/batch: a full batch of queries of 16 kB fits |
    | TAUGATE_QUEUE_LIMIT | 256 | queries waiting or at work before the next is answered 429; at least MAX_BATCH |
    | TAUGATE_DEADLINE_MS | 5000 | longest time to an answer before it is 504 |
    | TAUGATE_CACHE_BYTES | 67108864 | replies and vectors kept in each process, about 12,000 queries; 0 keeps none |
    | TAUGATE_REDIS_URL | – | Redis that keeps them for all replicas, such as redis://127.0.0.1:6379/0 |
    | TAUGATE_REDIS_TIMEOUT_MS | 10 | longest wait for Redis: what encoding a query takes anyhow |
    | TAUGATE_REDIS_TTL_SECONDS | 86400 | how long Redis keeps what it is given |
    | TAUGATE_DRIFT | True | whether traffic is watched for drift (docs/drift.md) |
    | TAUGATE_DRIFT_WINDOW_QUERIES | 10000 | latest queries of a process that COE, ROE and distances are measured on |
    | TAUGATE_DRIFT_WINDOW_SECONDS | 3600 | age beyond which they are left out |
    | TAUGATE_DRIFT_SMALLEST_EFFECT | 0.1 | smallest shift that is worth an alarm, Cohen's h |
    | TAUGATE_DRIFT_SELDOM | 1000000000.0 | a false alarm within N distinct queries has at most the probability N/this |
    | TAUGATE_DRIFT_BLOCK | 200 | distinct queries in a block, 25 to 10,000, or `auto`: as many as its bursts ask for |
    | TAUGATE_DRIFT_BASELINE | – | what `taugate drift baseline` wrote, or the folder that it wrote it to |
    | TAUGATE_CANARY_SECONDS | 300 | between two times that the golden queries are asked |
    | TAUGATE_FEEDBACK_SECONDS | 3600 | how long a reply can be judged |
    | TAUGATE_QUERY_LOG | – | file to which every query is appended, for `taugate drift replay` |
    | TAUGATE_QUERY_LOG_TEXTS | False | whether it holds queries as they are, not hashed |
    | TAUGATE_RELOAD_SECONDS | 0 | between two looks at which release is current; 0: only when told to |
    | TAUGATE_SHADOW_SHARE | 0.05 | share of the queries that a shadow answers as well; 0 loads none |
    | TAUGATE_KEYS_FILE | – | file of API keys, hashed (docs/access.md); read again when it changes |
    | TAUGATE_KEYS | – | API keys in the form of that file, beside it or in its place |
    | TAUGATE_ALLOW_ANYONE | False | whether other machines may be answered without any keys |
    | TAUGATE_QUERIES_PER_SECOND | 0.0 | of a key that names no rate, or of all callers without keys; 0 is no limit |
    | TAUGATE_ALLOWED_HOSTS | localhost | names that the header Host may have, by commas; IP addresses pass |
    | TAUGATE_MAX_CONNECTIONS | 10000 | connections that a process keeps open; fewer where it may open fewer files |
    | TAUGATE_RECEIVE_SECONDS | 10.0 | longest time for a client to send a request, and to take its reply |
    | TAUGATE_MAX_HEADER_BYTES | 32768 | longest head of a request, as in nginx; it has 100 headers at most |
    | TAUGATE_SHUTDOWN_SECONDS | 20 | longest wait for requests in flight after SIGTERM |
    | TAUGATE_LOG_LEVEL | info | debug, info, warning or error |
    | TAUGATE_OTLP_ENDPOINT | – | collector of traces, such as http://127.0.0.1:4318; needs the extra `traces` |
    """

    model_config = SettingsConfigDict(env_prefix="TAUGATE_", frozen=True)

    releases: Annotated[Path | str, BeforeValidator(_path_or_url)]
    releases_copy: Path | None = None
    trusted_keys: Path | None = None
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    precision: RequestedPrecision = "auto"
    workers: int = Field(default_factory=_workers, ge=1)
    encoder_threads: int = Field(default_factory=lambda given: max(1, processors() // given.get("workers", 1)), ge=1)
    search_threads: int = Field(default=1, ge=1)
    max_k: int = Field(default=100, ge=1)
    max_batch: int = Field(default=64, ge=1, le=MOST_QUERIES)
    max_query_chars: int = Field(default=8192, ge=1)
    max_body_bytes: int = Field(default=64 << 10, ge=1)
    max_batch_bytes: int = Field(default=1 << 20, ge=1)
    queue_limit: int = Field(default=256, ge=1)
    deadline_ms: int = Field(default=5000, ge=1)
    cache_bytes: int = Field(default=64 << 20, ge=0)
    redis_url: SecretStr | None = None
    redis_timeout_ms: int = Field(default=10, ge=1)
    redis_ttl_seconds: int = Field(default=86400, ge=1)
    drift: bool = True
    drift_window_queries: int = Field(default=10_000, ge=FEWEST)
    drift_window_seconds: float = Field(default=3600, gt=0)
    drift_smallest_effect: float = Field(default=SMALLEST_EFFECT, ge=0, le=1)
    drift_seldom: float = Field(default=AVERAGE_RUN_LENGTH, gt=1)
    drift_block: Annotated[int, Field(ge=FEWEST_OF_A_BLOCK, le=MOST_OF_A_BLOCK)] | Literal["auto"] = BLOCK
    drift_baseline: Path | None = None
    canary_seconds: float = Field(default=300, gt=0)
    feedback_seconds: float = Field(default=3600, ge=1)
    query_log: Path | None = None
    query_log_texts: bool = False
    reload_seconds: float = Field(default=0, ge=0)
    shadow_share: float = Field(default=0.05, ge=0, le=1)
    keys_file: Path | None = None
    keys: SecretStr | None = None
    allow_anyone: bool = False
    queries_per_second: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    allowed_hosts: str = "localhost"
    max_connections: int = Field(default=10_000, ge=1)
    receive_seconds: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    max_header_bytes: int = Field(default=32 << 10, ge=1024)
    shutdown_seconds: int = Field(default=20, ge=0)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    otlp_endpoint: Annotated[str, AfterValidator(_collector)] | None = None

    @property
    def directory(self) -> Path:
        """Where releases are read: the directory with them, or the copy that is kept of a URL."""
        return self.releases if isinstance(self.releases, Path) else self.copies

    @property
    def copies(self) -> Path:
        """Where copies are kept: of a URL, or of the releases that are open where keys are trusted."""
        if self.releases_copy is not None:
            return self.releases_copy
        return cache_folder() / "releases" / sha256(str(self.releases).encode()).hexdigest()[:16]

    def as_environment(self) -> dict[str, str]:
        """The variables that give these settings to another process."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        values |= {name: each.get_secret_value() for name, each in values.items() if isinstance(each, SecretStr)}
        return {f"TAUGATE_{name.upper()}": str(value) for name, value in values.items() if value is not None}

    @model_validator(mode="after")
    def _a_batch_fits_the_queue(self) -> Self:
        if self.max_batch > self.queue_limit:
            message = "TAUGATE_MAX_BATCH is over TAUGATE_QUEUE_LIMIT: no full batch would ever be admitted; lower it"
            raise PydanticCustomError("batch_over_queue", message)
        return self
