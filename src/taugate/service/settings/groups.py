"""The only declarations of the settings, in groups: type, bounds, default and description.

docs/settings.md, with a group's title and docstring above its variables, and the values of the Helm chart are generated
from them.
"""

import ipaddress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, cast, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr
from pydantic_core import PydanticCustomError

from taugate.drift.signals import AVERAGE_RUN_LENGTH, BLOCK, MAX_IN_BLOCK, MIN_EFFECT, MIN_IN_BLOCK, MIN_IN_WINDOW
from taugate.retrieval.encoder.encoder import RequestedPrecision
from taugate.retrieval.hardware import gpu_count, processors
from taugate.retrieval.query import MAX_EXPLORED
from taugate.storage.folders import cache_folder

# APIs of other products that the service can provide as well.
Dialect = Literal["openai", "dify"]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
# Parts of the service that can be off. Their paths do not exist then.
Part = Dialect | Literal["playground"]
MAX_QUERIES = 1024  # largest value of TAUGATE_MAX_BATCH
REFUSED = "refused_setting"  # type of the errors raised in this module; their messages are shown without the value

Count = Annotated[int, Field(ge=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class ComputedDefault:
    """Annotation of a field whose default depends on the machine, with the default in words for the documentation."""

    text: str


@dataclass(frozen=True)
class FormerVariable:
    """Annotation of a field whose own variable is a former one: it works with a notice, and is on no page.

    With a key, the field is an option of the variable that succeeds it: TAUGATE_WORKERS=2,encoder_threads=4.
    """

    successor: str
    key: str = ""

    @property
    def use(self) -> str:
        """What to set in place of the former variable."""
        name = f"TAUGATE_{self.successor.upper()}"
        return f"{name}=VALUE,{self.key}=VALUE" if self.key else name


def _default_workers() -> int:
    """Return one process per four processors, rounded up; one with a GPU, which would hold an index for each process.

    HTTP takes a small part of the processor time that encoding takes (benchmarks/results/serving.md), so one process
    keeps four processors busy.
    """
    return 1 if gpu_count() else -(-processors() // 4)


def _path_or_url(value: object) -> object:
    return Path(value) if isinstance(value, str) and "://" not in value else value


def _collector(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query or parts.fragment:
        message = "must be http://HOST:PORT or https://…; set keys in OTEL_EXPORTER_OTLP_HEADERS"
        raise PydanticCustomError(REFUSED, message)
    return url


def _redis_url(url: SecretStr) -> SecretStr:
    """Refuse a URL that redis-py cannot use, without quoting its messages, which may contain part of the password."""
    from redis.asyncio import ConnectionPool  # takes 0.2 s

    try:
        parts = urlsplit(url.get_secret_value())
        if parts.scheme != "unix" and (database := parts.path.strip("/")):
            int(database)  # redis-py would use database 0 if it is not a number
        if parts.scheme == "unix" and (parts.hostname or not parts.path.strip("/")):
            raise ValueError  # redis-py would read unix://run/redis.sock as the path /redis.sock
        pool = ConnectionPool.from_url(url.get_secret_value())
        pool.make_connection()  # type: ignore[no-untyped-call]  # opens no connection yet
    except (TypeError, ValueError):  # TypeError: an option that redis-py does not know
        message = (
            "must be redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], rediss://… for TLS, or "
            "unix://[USER:PASSWORD@]/PATH[?db=DATABASE] for a socket; write special characters of a password as %XX"
        )
        raise PydanticCustomError(REFUSED, message) from None
    return url


def _dialects(names: str) -> str:
    if unknown := [name for name in _split(names) if name not in DIALECTS]:
        message = f"{{name}} is not a dialect; use {' or '.join(DIALECTS)}, or several separated by commas"
        raise PydanticCustomError(REFUSED, message, {"name": repr(unknown[0])})
    return names


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


class SettingGroup(BaseModel):
    """A group of settings.

    TAUGATE_NAME sets the field `name`, or the field whose first validation alias is `name`. Further aliases are older
    names of the variable, which still work; see also `FormerVariable`. The string below a field is its description.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ReleaseSettings(SettingGroup, title="Releases"):
    """The source of releases, and the keys whose signatures are trusted."""

    location: Annotated[Path | str, BeforeValidator(_path_or_url)] = Field(validation_alias="releases")
    """directory, or URL such as s3://bucket/prefix, that contains the releases and the pointer `current`; releases of a
    URL, and signed ones, are copied into TAUGATE_CACHE (below)"""
    copy_folder: Annotated[Path | None, FormerVariable("cache")] = Field(None, validation_alias="releases_copy")
    """folder for local copies of releases; unset: one in TAUGATE_CACHE"""
    trusted_keys: Path | None = None
    """PEM file or folder with public keys; only releases signed by one of them are loaded"""

    @property
    def directory(self) -> Path:
        """Directory that releases are read from: the location, or the local copy of a URL."""
        return self.location if isinstance(self.location, Path) else self.copies

    @property
    def copies(self) -> Path:
        """Folder with local copies of the releases of a URL, or of releases whose signatures are checked."""
        if self.copy_folder is not None:
            return self.copy_folder
        return cache_folder() / "releases" / sha256(str(self.location).encode()).hexdigest()[:16]


class ListenSettings(SettingGroup, title="Address"):
    """The address that the service listens on, and the playground."""

    host: str = "127.0.0.1"
    """address to listen on; 0.0.0.0 means all IPv4 addresses"""
    port: int = Field(8000, ge=0, le=65535)
    """port to listen on"""
    playground: Literal["auto", "on", "off"] = "auto"
    """whether to serve the page at /playground: on, off, or auto, which means on if only this machine can reach HOST"""

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the address; names other than localhost may resolve to any address."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def has_playground(self) -> bool:
        """Whether the playground is served."""
        return self.on_loopback if self.playground == "auto" else self.playground == "on"


class ComputeSettings(SettingGroup, title="Processes and threads"):
    """Division of the processors among processes, encoding and searching."""

    precision: RequestedPrecision = "auto"
    """encoder of the release to use: float32, bfloat16, int8, or auto (as calibrated)"""
    workers: Annotated[int, ComputedDefault("one per four processors; one if there is a GPU")] = Field(
        default_factory=_default_workers, ge=1
    )
    """number of worker processes"""
    encoder_threads: Annotated[
        int, ComputedDefault("processors divided by workers"), FormerVariable("workers", "encoder_threads")
    ] = Field(default_factory=lambda validated: max(1, processors() // validated.get("workers", 1)), ge=1)
    """batches that a process encodes at the same time"""
    search_threads: Annotated[Count, FormerVariable("workers", "search_threads")] = 1
    """threads per search; more than one helps only with a large flat index"""


class RequestSettings(SettingGroup, title="Limits of a request"):
    """Limits on requests, and the APIs that are offered."""

    max_k: Count = 100
    """largest `k` of a search"""
    max_batch: Count = Field(
        default=64,
        le=MAX_QUERIES,
        description=f"maximum number of queries in /search/batch and /gate/batch; at most {MAX_QUERIES}",
    )
    max_query_chars: Count = 8192
    """maximum length of a query in characters; the default is about four times what a 512-token encoder reads"""
    max_body_bytes: Annotated[Count, FormerVariable("max_query_chars", "body_bytes")] = 64 << 10
    """maximum size of a request body in bytes, twice what the default of MAX_QUERY_CHARS takes"""
    max_batch_bytes: Annotated[Count, FormerVariable("max_batch", "body_bytes")] = 1 << 20
    """maximum size of the body of /search/batch, /gate and /gate/batch in bytes, enough for 64 queries of 16 kB, or for
    10,000 results"""
    dialects: Annotated[str, AfterValidator(_dialects)] = Field(
        default="", description=f"APIs of other products to provide as well, separated by commas: {', '.join(DIALECTS)}"
    )

    @property
    def dialect_names(self) -> tuple[Dialect, ...]:
        """The dialects that are on."""
        return cast("tuple[Dialect, ...]", tuple(_split(self.dialects)))


class AdmissionSettings(SettingGroup, title="Queue"):
    """Length of the queue, and the deadline of a request."""

    queue_limit: Count = 256
    """maximum number of queries waiting or in progress; further ones get 429; at least MAX_BATCH"""
    deadline_ms: Count = 5000
    """time in milliseconds after which a request gets 504"""


class EngineSettings(SettingGroup, title="Engine"):
    """The engine that holds the vectors and documents. Ignored for a release that contains them itself."""

    url: SecretStr | None = Field(None, validation_alias="engine_url")
    """URLs of the engine's servers, separated by commas, such as http://127.0.0.1:19530 for Milvus or
    postgresql://USER@HOST/DATABASE"""
    token_file: Path | None = Field(None, validation_alias="engine_token_file")
    """file with the Milvus token or the PostgreSQL password"""
    timeout_ms: Annotated[Count, FormerVariable("deadline_ms", "engine_ms")] = Field(
        2000, validation_alias="engine_timeout_ms"
    )
    """longest wait for the engine before a request gets 503; the first server gets half of it; must be below
    DEADLINE_MS"""

    @property
    def seconds(self) -> float:
        """Longest wait for the engine, in seconds."""
        return self.timeout_ms / 1000


class EndpointSettings(SettingGroup, title="Encoder behind an endpoint"):
    """How to reach the endpoint that encodes queries. Ignored for a release that contains its encoder."""

    url: str | None = Field(None, validation_alias="encoder_url")
    """base URL of the endpoint, such as https://api.example.com/v1, if it is not the one that the release names, or if
    there is a key"""
    key_file: Annotated[Path | None, FormerVariable("encoder_url", "key_file")] = Field(
        None, validation_alias="encoder_key_file"
    )
    """file with the endpoint's key, which is sent to no other URL"""
    timeout_ms: Annotated[Count, FormerVariable("deadline_ms", "encoder_ms")] = Field(
        2000, validation_alias="encoder_timeout_ms"
    )
    """longest wait for the encoder's endpoint before a query gets 503; never more than nine tenths of DEADLINE_MS"""


class RerankSettings(SettingGroup, title="Second stage"):
    """The second stage of a release that has one, and the endpoint of its reranker. Ignored for other releases."""

    deadline_ms: Count = Field(1000, validation_alias="rerank_deadline_ms")
    """time in milliseconds after the arrival of a query at which it gets the results of the first stage instead; has no
    effect from DEADLINE_MS on"""
    url: str = Field("", validation_alias="rerank_url")
    """URL of the reranker, such as http://127.0.0.1:8080, if it is an endpoint"""
    key_file: Annotated[Path | None, FormerVariable("rerank_url", "key_file")] = Field(
        None, validation_alias="rerank_key_file"
    )
    """file with the key of that endpoint"""

    @property
    def seconds(self) -> float:
        """Time for both stages, in seconds."""
        return self.deadline_ms / 1000


class CacheSettings(SettingGroup, title="Cache and Redis"):
    """The cache in the memory of each process, and the Redis that replicas share."""

    max_bytes: int = Field(64 << 20, ge=0, validation_alias="cache_bytes")
    """bytes of memory per process for cached replies and vectors; the default holds about 12,000 queries; 0: no
    cache"""
    redis_url: Annotated[SecretStr, AfterValidator(_redis_url)] | None = None
    """URL of the Redis that replicas share for cache, rate limits and drift alarms, such as redis://127.0.0.1:6379/0 or
    unix:///run/redis.sock"""
    redis_timeout_ms: Annotated[Count, FormerVariable("cache_bytes", "redis_timeout_ms")] = 10
    """shortest deadline of Redis in milliseconds, about what encoding a query takes; three times the median of
    its replies if that is longer, and at most 50"""
    redis_ttl_seconds: Annotated[Count, FormerVariable("cache_bytes", "redis_ttl_seconds")] = 86400
    """lifetime of a cached entry in Redis, in seconds"""


class DriftSettings(SettingGroup, title="Drift and feedback"):
    """Drift detection, feedback, exploration, and the query log."""

    enabled: bool = Field(True, validation_alias="drift")
    """whether to check traffic for drift (docs/drift.md)"""
    window_queries: Annotated[int, FormerVariable("drift", "window_queries")] = Field(
        10_000, ge=MIN_IN_WINDOW, validation_alias="drift_window_queries"
    )
    """number of latest queries per process on which COE, ROE and distances are measured"""
    window_seconds: Annotated[float, FormerVariable("drift", "window_seconds")] = Field(
        3600, gt=0, validation_alias="drift_window_seconds"
    )
    """age in seconds at which a query leaves that window"""
    smallest_effect: Annotated[Share, FormerVariable("drift", "smallest_effect")] = Field(
        MIN_EFFECT, validation_alias="drift_smallest_effect"
    )
    """smallest shift that raises an alarm, as Cohen's h"""
    average_run_length: Annotated[float, FormerVariable("drift", "average_run_length")] = Field(
        AVERAGE_RUN_LENGTH, gt=1, validation_alias=AliasChoices("drift_average_run_length", "drift_seldom")
    )
    """rarity of false alarms: without drift, an alarm within N distinct queries has a probability of at most N divided
    by this number"""
    block: Annotated[
        Annotated[int, Field(ge=MIN_IN_BLOCK, le=MAX_IN_BLOCK)] | Literal["auto"], FormerVariable("drift", "block")
    ] = Field(
        default=BLOCK,
        validation_alias="drift_block",
        description=f"distinct queries per block, {MIN_IN_BLOCK} to {MAX_IN_BLOCK:,}, or `auto` for as many as the "
        "bursts of the traffic require",
    )
    baseline: Path | None = Field(None, validation_alias="drift_baseline")
    """baseline file written by `taugate drift baseline`, or its folder"""
    canary_seconds: Annotated[float, FormerVariable("drift", "canary_seconds")] = Field(300, gt=0)
    """interval in seconds at which the release's golden queries are repeated"""
    feedback_seconds: Annotated[float, FormerVariable("drift", "feedback_seconds")] = Field(3600, ge=1)
    """time in seconds for which /feedback accepts a reply's query_id"""
    explore_share: Annotated[float, Field(ge=0, le=MAX_EXPLORED)] = Field(
        default=0.0,
        description="probability that a result below the threshold is returned anyway, so that it can be judged "
        f"(docs/how-to/labels.md#learn-from-traffic); at most {MAX_EXPLORED:g}",
    )
    query_log: Path | None = None
    """file to which all queries and judgements are appended, for `taugate drift` and `taugate traffic`"""
    query_log_texts: bool = False
    """whether the query log contains the texts of queries instead of hashes"""
    query_log_days: Annotated[Annotated[float, Field(gt=0)] | None, FormerVariable("query_log_texts", "days")] = None
    """age in days at which hashes replace the texts; unset: never"""
    query_log_chain: bool = False
    """whether the lines of the query log are chained, so that `taugate log verify` finds a change; without texts"""
    decision_log_key_file: Path | None = None
    """Ed25519 key (PEM) that signs the chained log once an hour; it signs nothing else"""
    judge_share: Share = 0.0
    """share of queries that are stored beside QUERY_LOG with all K results, to be judged (docs/drift.md#live-loss)"""
    judge_url: str | None = None
    """OpenAI-compatible API, as http://localhost:8080/v1, that judges drawn queries and chooses those for people"""
    judge_model: str = ""
    """model of JUDGE_URL"""
    judge_key_file: Path | None = None
    """file with the key of JUDGE_URL"""
    judge_calls_per_day: Count = 1000
    """most requests to JUDGE_URL in a day, one for each query"""


class LifecycleSettings(SettingGroup, title="Reloading and shadow releases"):
    """Checks for a new release, and the traffic of a shadow release."""

    reload_seconds: float = Field(0, ge=0)
    """interval in seconds between checks for a new current release; 0: only on /admin/reload and SIGHUP"""
    shadow_share: Share = 0.05
    """share of queries that are also run on the shadow release; 0: no shadow is loaded"""


class AccessSettings(SettingGroup, title="Access"):
    """API keys, rate limits and host names."""

    keys_file: Path | None = None
    """file with hashed API keys (docs/access.md); reloaded when it changes"""
    keys: SecretStr | None = None
    """API keys in the format of KEYS_FILE, in addition to it or instead"""
    allow_unauthenticated: bool = Field(False, validation_alias=AliasChoices("allow_unauthenticated", "allow_anyone"))
    """whether the service may listen on non-loopback addresses without API keys"""
    queries_per_second: Finite = Field(0.0, ge=0)
    """queries per second of a key without a limit of its own or, without keys, of all clients together; 0: no limit"""
    allowed_hosts: str = "localhost"
    """host names allowed in the Host header, separated by commas; IP addresses are always allowed"""


class ConnectionSettings(SettingGroup, title="Connections"):
    """Number of connections, and their timeouts."""

    max_connections: Count = 10_000
    """maximum number of open connections per process; lowered if the open-file limit is too low"""
    receive_seconds: Annotated[Finite, FormerVariable("max_connections", "receive_seconds")] = Field(10.0, gt=0)
    """longest time in seconds for a client to send a request and, separately, to read its reply"""
    keep_alive_seconds: Finite = Field(75.0, gt=0, le=86400)
    """time in seconds after which an idle connection is closed; must exceed the idle timeout of a proxy in front, 60 s
    for most (docs/operations.md)"""
    max_header_bytes: Annotated[int, FormerVariable("max_connections", "header_bytes")] = Field(32 << 10, ge=1024)
    """maximum size of the request line and headers in bytes, as in nginx; at most 100 headers"""
    drain_seconds: int = Field(20, ge=0, le=86400)
    """longest time in seconds to serve after SIGTERM, each reply with `Connection: close`; ends early after 5 s without
    connections; 0: none (docs/operations.md)"""
    shutdown_seconds: Annotated[int, FormerVariable("drain_seconds", "shutdown_seconds")] = Field(20, ge=0)
    """longest wait in seconds for requests in progress afterwards"""


class TelemetrySettings(SettingGroup, title="Logs, traces and reports"):
    """The log level, the collector of traces, and telemetry of libraries."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """lowest level that is logged: debug, info, warning or error"""
    otlp_endpoint: Annotated[str, AfterValidator(_collector)] | None = None
    """OpenTelemetry collector for traces, such as http://127.0.0.1:4318; needs the extra `traces`"""
    # taugate.telemetry reads it before any library is imported. Here it is only validated, shown and documented.
    libraries_report: bool = Field(False, validation_alias="telemetry")
    """whether libraries may send usage data to their vendors, as ONNX Runtime does by default (docs/security.md);
    applies to every command"""
