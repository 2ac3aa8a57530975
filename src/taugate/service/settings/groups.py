"""The settings of the service in groups: type, bounds, default and description of each, declared here and only here.

docs/settings.md, with a group's title and docstring above its variables, and the values of the Helm chart are generated
from these declarations.
"""

import ipaddress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, cast, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr
from pydantic_core import PydanticCustomError

from taugate.drift.rules import (
    AVERAGE_RUN_LENGTH,
    BLOCK,
    MAX_IN_BLOCK,
    MIN_EFFECT,
    MIN_IN_BLOCK,
    MIN_IN_WINDOW,
)
from taugate.retrieval.encoder.encoder import RequestedPrecision
from taugate.retrieval.encoder.processors import processors
from taugate.retrieval.exploration import MAX_EXPLORED
from taugate.retrieval.index.flat import gpu_count
from taugate.storage.folders import cache_folder

# APIs of others that the service can answer as well.
Dialect = Literal["openai", "dify"]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
# Parts of the service that can be off, whose paths do not exist then.
Part = Dialect | Literal["playground"]
PARTS: frozenset[Part] = frozenset({*DIALECTS, "playground"})
MAX_QUERIES = 1024  # what TAUGATE_MAX_BATCH may be set to
REFUSED = "refused_setting"  # type of the errors of this module's own rules, whose text is a whole message

Count = Annotated[int, Field(ge=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class ComputedDefault:
    """Says what a default is that depends on the machine; documentation reads it from the field's annotation.

    Attributes:
        text: The default in words.
    """

    text: str


def _default_workers() -> int:
    """One process for every four processors, rounded up; one with a GPU, where each would hold a copy of the index.

    HTTP takes a small part of the processor time that encoding takes (docs/benchmarks/serving.md), so one process keeps
    four processors busy.
    """
    return 1 if gpu_count() else -(-processors() // 4)


def _path_or_url(value: object) -> object:
    return Path(value) if isinstance(value, str) and "://" not in value else value


def _collector(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query or parts.fragment:
        message = "must be http://HOST:PORT or https://…, and a key goes into OTEL_EXPORTER_OTLP_HEADERS"
        raise PydanticCustomError(REFUSED, message)
    return url


def _redis_url(url: SecretStr) -> SecretStr:
    """Refuse a URL that redis-py cannot use. Its own messages are not shown: they may quote a part of the password."""
    from redis import ConnectionPool  # takes 0.2 s

    try:
        parts = urlsplit(url.get_secret_value())
        if parts.scheme != "unix" and (database := parts.path.strip("/")):
            int(database)  # redis-py would use database 0 for what is not a number
        if parts.scheme == "unix" and (parts.hostname or not parts.path.strip("/")):
            raise ValueError  # redis-py would read unix://run/redis.sock as the path /redis.sock
        ConnectionPool.from_url(url.get_secret_value()).make_connection()  # opens no connection yet
    except (TypeError, ValueError):  # TypeError: an option that redis-py does not know
        message = (
            "must be redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], rediss://… for TLS, or "
            "unix://[USER:PASSWORD@]/PATH[?db=DATABASE] for a socket; write special characters of a password as %XX"
        )
        raise PydanticCustomError(REFUSED, message) from None
    return url


def _dialects(names: str) -> str:
    if strange := [name for name in _split(names) if name not in DIALECTS]:
        message = f"{{name}} is no dialect; name any of {', '.join(DIALECTS)}, separated by commas"
        raise PydanticCustomError(REFUSED, message, {"name": repr(strange[0])})
    return names


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


class SettingGroup(BaseModel):
    """Settings that belong together.

    TAUGATE_NAME sets the field `name`, or the field whose first validation alias is `name`. Further aliases are older
    names of the variable, which still work.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


class ReleaseSettings(SettingGroup, title="Releases"):
    """Where releases are read from, and whose signatures are trusted."""

    location: Annotated[Path | str, BeforeValidator(_path_or_url)] = Field(
        validation_alias="releases",
        description="directory, or URL such as s3://bucket/prefix, with the releases and the pointer `current`",
    )
    copy_folder: Path | None = Field(
        default=None,
        validation_alias="releases_copy",
        description="folder for the local copies of releases, made where RELEASES is a URL or TRUSTED_KEYS is set; "
        "unset: a folder in the user's cache",
    )
    trusted_keys: Path | None = Field(
        default=None,
        description="PEM file or folder of public keys; a release that none of them signed is never loaded",
    )

    @property
    def directory(self) -> Path:
        """The directory that releases are read from: the location, or the local copy of a URL."""
        return self.location if isinstance(self.location, Path) else self.copies

    @property
    def copies(self) -> Path:
        """The folder of local copies: of a URL's releases, or of the releases whose signatures are checked."""
        if self.copy_folder is not None:
            return self.copy_folder
        return cache_folder() / "releases" / sha256(str(self.location).encode()).hexdigest()[:16]


class ListenSettings(SettingGroup, title="Address"):
    """The address that the service listens on."""

    host: str = Field(default="127.0.0.1", description="address to listen on; 0.0.0.0 is every IPv4 address")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on")
    playground: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="whether the page at /playground is served: on, off, or auto, where only this machine reaches HOST",
    )

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine reaches the address; a name other than localhost may stand for any address."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def has_playground(self) -> bool:
        """Whether the playground is served."""
        return self.on_loopback if self.playground == "auto" else self.playground == "on"


class ComputeSettings(SettingGroup, title="Processes and threads"):
    """How the processors are shared among processes, encoding and searching."""

    precision: RequestedPrecision = Field(
        default="auto", description="encoder of the release to use: float32, int8, or auto, the calibrated one"
    )
    workers: Annotated[int, ComputedDefault("one for every four processors, one with a GPU")] = Field(
        default_factory=_default_workers, ge=1, description="number of processes that answer requests"
    )
    encoder_threads: Annotated[int, ComputedDefault("its share of the processors")] = Field(
        default_factory=lambda validated: max(1, processors() // validated.get("workers", 1)),
        ge=1,
        description="batches that one process encodes at the same time",
    )
    search_threads: Count = Field(
        default=1, description="threads of one search; more are faster only with a large flat index"
    )


class RequestSettings(SettingGroup, title="Limits of a request"):
    """The largest request that is answered."""

    max_k: Count = Field(default=100, description="largest `k` that a search may ask for")
    max_batch: Count = Field(
        default=64, le=MAX_QUERIES, description=f"most queries in one /search/batch; at most {MAX_QUERIES}"
    )
    max_query_chars: Count = Field(
        default=8192,
        description="longest query, in characters: four times what an encoder of 512 tokens reads",
    )
    max_body_bytes: Count = Field(
        default=64 << 10,
        description="largest request body; a query of MAX_QUERY_CHARS in UTF-8 takes half of it",
    )
    max_batch_bytes: Count = Field(
        default=1 << 20,
        description="largest body of /search/batch; a full batch of queries of 16 kB fits",
    )
    dialects: Annotated[str, AfterValidator(_dialects)] = Field(
        default="",
        description=f"APIs of others that are answered as well, separated by commas: {', '.join(DIALECTS)}",
    )

    @property
    def dialect_names(self) -> tuple[Dialect, ...]:
        """The dialects that are on."""
        return cast("tuple[Dialect, ...]", tuple(_split(self.dialects)))


class AdmissionSettings(SettingGroup, title="Queue"):
    """How many queries wait, and how long, before they are refused."""

    queue_limit: Count = Field(
        default=256,
        description="queries waiting or in progress before the next is answered 429; at least MAX_BATCH",
    )
    deadline_ms: Count = Field(default=5000, description="time after which a request is answered 504")


class EngineSettings(SettingGroup, title="Engine"):
    """Where the vectors and documents are of a release that holds none itself; one that does ignores these settings."""

    url: SecretStr | None = Field(
        default=None,
        validation_alias="engine_url",
        description="URLs of the engine's servers, separated by commas, such as http://127.0.0.1:19530 of Milvus or "
        "postgresql://USER@HOST/DATABASE",
    )
    token_file: Path | None = Field(
        default=None,
        validation_alias="engine_token_file",
        description="file with the token of Milvus, or the password of PostgreSQL",
    )
    timeout_ms: Count = Field(
        default=2000,
        validation_alias="engine_timeout_ms",
        description="longest wait for the engine, half of it for the first server asked; then a request is answered "
        "503; below DEADLINE_MS",
    )

    @property
    def seconds(self) -> float:
        """Longest wait for the engine, in seconds."""
        return self.timeout_ms / 1000


class CacheSettings(SettingGroup, title="Cache and Redis"):
    """What is kept in the memory of each process, and in the Redis that replicas share."""

    max_bytes: int = Field(
        default=64 << 20,
        ge=0,
        validation_alias="cache_bytes",
        description="memory for cached replies and vectors in each process, about 12,000 queries; 0 turns it off",
    )
    redis_url: Annotated[SecretStr, AfterValidator(_redis_url)] | None = Field(
        default=None,
        description="Redis that all replicas share, such as redis://127.0.0.1:6379/0 or unix:///run/redis.sock: "
        "cache, rates, drift alarms",
    )
    redis_timeout_ms: Count = Field(
        default=10, description="longest wait for Redis; encoding a query takes about as long"
    )
    redis_ttl_seconds: Count = Field(default=86400, description="how long Redis keeps a cached entry")


class DriftSettings(SettingGroup, title="Drift and feedback"):
    """How traffic is watched for drift, and which of it is recorded."""

    enabled: bool = Field(
        default=True, validation_alias="drift", description="whether traffic is watched for drift (docs/drift.md)"
    )
    window_queries: int = Field(
        default=10_000,
        ge=MIN_IN_WINDOW,
        validation_alias="drift_window_queries",
        description="how many of a process's latest queries COE, ROE and distances are measured on",
    )
    window_seconds: float = Field(
        default=3600,
        gt=0,
        validation_alias="drift_window_seconds",
        description="age at which a query leaves that window",
    )
    smallest_effect: Share = Field(
        default=MIN_EFFECT,
        validation_alias="drift_smallest_effect",
        description="smallest shift that is worth an alarm, as Cohen's h",
    )
    average_run_length: float = Field(
        default=AVERAGE_RUN_LENGTH,
        gt=1,
        validation_alias=AliasChoices("drift_average_run_length", "drift_seldom"),
        description="how rare false alarms are: the probability of one within N distinct queries is at most N divided "
        "by this",
    )
    block: Annotated[int, Field(ge=MIN_IN_BLOCK, le=MAX_IN_BLOCK)] | Literal["auto"] = Field(
        default=BLOCK,
        validation_alias="drift_block",
        description=f"distinct queries in a block, {MIN_IN_BLOCK} to {MAX_IN_BLOCK:,}, or `auto`: as many as "
        "the bursts of the traffic need",
    )
    baseline: Path | None = Field(
        default=None,
        validation_alias="drift_baseline",
        description="file that `taugate drift baseline` wrote, or the folder with it",
    )
    canary_seconds: float = Field(
        default=300, gt=0, description="interval at which the release's golden queries are searched again"
    )
    feedback_seconds: float = Field(default=3600, ge=1, description="how long /feedback accepts a reply's query_id")
    explore_share: Annotated[float, Field(ge=0, le=MAX_EXPLORED)] = Field(
        default=0.0,
        description="probability with which each result below the threshold is shown all the same, to be judged "
        f"(docs/how-to/learn-from-traffic.md); at most {MAX_EXPLORED:g}",
    )
    query_log: Path | None = Field(
        default=None,
        description="file to which every query and judgement is appended, for `taugate drift` and `taugate traffic`",
    )
    query_log_texts: bool = Field(
        default=False, description="whether the query log holds the texts of queries, not hashes of them"
    )
    query_log_days: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="age in days at which hashes replace the texts in the query log; unset: never",
    )


class LifecycleSettings(SettingGroup, title="Reloading and shadow releases"):
    """When another release is loaded, and how much traffic a shadow release answers."""

    reload_seconds: float = Field(
        default=0,
        ge=0,
        description="interval at which the current release is looked up; 0: only on /admin/reload and SIGHUP",
    )
    shadow_share: Share = Field(
        default=0.05, description="share of the queries that a shadow release answers too; 0 loads none"
    )


class AccessSettings(SettingGroup, title="Access"):
    """Who is answered, and how often."""

    keys_file: Path | None = Field(
        default=None, description="file of hashed API keys (docs/access.md); read again when it changes"
    )
    keys: SecretStr | None = Field(
        default=None, description="API keys in the form of that file, in addition to it or instead"
    )
    allow_unauthenticated: bool = Field(
        default=False,
        validation_alias=AliasChoices("allow_unauthenticated", "allow_anyone"),
        description="whether the service listens beyond loopback addresses even without API keys",
    )
    queries_per_second: Finite = Field(
        default=0.0,
        ge=0,
        description="queries per second of a key without its own rate or, without keys, of all callers; 0: no limit",
    )
    allowed_hosts: str = Field(
        default="localhost",
        description="host names that the Host header may have, separated by commas; IP addresses always pass",
    )


class ConnectionSettings(SettingGroup, title="Connections"):
    """How many connections are kept, and how long they may take."""

    max_connections: Count = Field(
        default=10_000,
        description="connections that a process keeps open; fewer where its limit of open files is lower",
    )
    receive_seconds: Finite = Field(
        default=10.0, gt=0, description="longest time for a client to send a request, and again to take its reply"
    )
    keep_alive_seconds: Finite = Field(
        default=75.0,
        gt=0,
        le=86400,
        description="how long an idle connection is kept after a reply; above the idle timeout of the proxy in front, "
        "60 s for most (docs/operations.md)",
    )
    max_header_bytes: int = Field(
        default=32 << 10, ge=1024, description="longest request head, as in nginx; it has at most 100 headers"
    )
    drain_seconds: int = Field(
        default=20,
        ge=0,
        le=86400,
        description="longest time after SIGTERM in which requests are served, each reply with `Connection: close`; "
        "shorter if there is no connection for 5 s; 0: none (docs/operations.md)",
    )
    shutdown_seconds: int = Field(
        default=20, ge=0, description="longest wait for requests in progress after DRAIN_SECONDS"
    )


class TelemetrySettings(SettingGroup, title="Logs, traces and reports"):
    """What is logged, where traces go, and whether libraries report their use to their makers."""

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="lowest level that is logged: debug, info, warning or error"
    )
    otlp_endpoint: Annotated[str, AfterValidator(_collector)] | None = Field(
        default=None,
        description="OpenTelemetry collector of traces, such as http://127.0.0.1:4318; needs the extra `traces`",
    )
    # taugate.telemetry reads it, before any library is imported; here it is checked, shown and described.
    libraries_report: bool = Field(
        default=False,
        validation_alias="telemetry",
        description="whether libraries may report their use to their makers, as ONNX Runtime does unless told not to "
        "(docs/security.md); every command reads it",
    )
