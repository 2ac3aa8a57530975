"""The options and settings that change a release or a reply, with the values that are tried.

A test fails if an option of `taugate calibrate`, a setting of the service or a field of a search is neither here nor in
`UNCHANGING`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, auto

Value = str | None  # None: not given
Row = dict[str, Value]


class Kind(StrEnum):
    """What a factor is part of; it also tells how a value is given."""

    DATA = auto()
    OPTION = auto()  # of `taugate calibrate`
    SETTING = auto()  # of the service
    REQUEST = auto()  # a field of POST /search


@dataclass(frozen=True)
class Factor:
    """An option or a setting with the values that are tried, the default first.

    Attributes:
        name: Its name: of a field of the settings, with underscores.
        kind: What it is part of.
        values: The values.
        needs: Values of other factors without which it is refused, unless it is off.
    """

    name: str
    kind: Kind
    values: tuple[Value, ...]
    needs: Mapping[str, str] | None = None

    def needed(self, value: Value) -> Mapping[str, str]:
        """Return the values of other factors without which a value of this one is refused."""
        return {} if value in {None, "off"} else self.needs or {}


# Models are placeholders in braces, which a run replaces by paths.
FACTORS = (
    Factor("documents", Kind.DATA, ("whole", "chunks")),
    Factor("unanswerable", Kind.DATA, ("some", "none")),
    Factor("encoder", Kind.OPTION, ("{encoder}", "vectors", "openai:{endpoint}")),
    Factor("policy", Kind.OPTION, (None, "similarity", "relative", "gap", "probability", "auto")),
    Factor("method", Kind.OPTION, (None, "bootstrap", "non-inferiority", "risk-control")),
    Factor("tau", Kind.OPTION, (None, "0.3"), {"policy": "similarity"}),
    Factor("refuse", Kind.OPTION, (None, "off", "0.2"), {"tau": "0.3", "policy": "similarity"}),
    Factor("max_loss", Kind.OPTION, (None, "0.15", "0.15,0.3")),
    Factor("metric", Kind.OPTION, (None, "ndcg")),
    Factor("guarantee", Kind.OPTION, (None, "expected-loss")),
    Factor("confidence", Kind.OPTION, (None, "0.8")),
    Factor("max_empty", Kind.OPTION, (None, "0.4")),
    Factor("strata", Kind.OPTION, (None, "metadata.part")),
    Factor("count_at_most", Kind.OPTION, (None, "1", "auto"), {"drawn": "documents"}),
    Factor("max_answered", Kind.OPTION, (None, "0.6")),
    Factor("labels", Kind.OPTION, (None, "human", "human,traffic")),
    Factor("split", Kind.OPTION, (None, "human", "generated")),
    Factor("relevant_from", Kind.OPTION, (None, "2")),
    Factor("drawn", Kind.OPTION, (None, "queries", "documents")),
    Factor("k", Kind.OPTION, (None, "1", "8")),
    Factor("holdout", Kind.OPTION, (None, "0", "0.5")),
    Factor("seed", Kind.OPTION, (None, "7")),
    Factor("bootstraps", Kind.OPTION, (None, "60")),
    Factor("sample_size", Kind.OPTION, (None, "30")),
    Factor("overlap_percentile", Kind.OPTION, (None, "50")),
    Factor("lexical", Kind.OPTION, (None, "off", "0.3")),
    Factor("projection", Kind.OPTION, (None, "query-pca", "auto")),
    Factor("retention", Kind.OPTION, (None, "0.8"), {"projection": "query-pca"}),
    Factor("precision", Kind.OPTION, (None, "int8", "bfloat16", "auto")),
    Factor("index", Kind.OPTION, (None, "hnsw", "flat-int8", "ivf-flat", "auto")),
    Factor("rerank", Kind.OPTION, (None, "{cross-encoder}", "{late-interaction}", "endpoint", "auto:{worse}")),
    Factor("rerank_candidates", Kind.OPTION, (None, "12", "auto"), {"rerank": "{cross-encoder}"}),
    Factor("margin", Kind.OPTION, (None, "0.05")),
    Factor("gate_confidence", Kind.OPTION, (None, "0.8")),
    Factor("query_prompt", Kind.OPTION, (None, "permit: ")),
    Factor("document_prompt", Kind.OPTION, (None, "answer: ")),
    Factor("max_length", Kind.OPTION, (None, "12")),
    Factor("similarity", Kind.OPTION, (None, "dot"), {"encoder": "vectors"}),  # exported encoders have one already
    Factor("dimensions", Kind.OPTION, (None, "16"), {"encoder": "openai:{endpoint}"}),
    Factor("accept_vectors", Kind.OPTION, (None, "")),
    Factor("encoder_threads", Kind.SETTING, (None, "2")),
    Factor("search_threads", Kind.SETTING, (None, "2")),
    Factor("cache_bytes", Kind.SETTING, (None, "0")),
    Factor("encoder_precision", Kind.SETTING, (None, "float32")),
    Factor("rerank_deadline_ms", Kind.SETTING, (None, "1")),
    Factor("rerank_url", Kind.SETTING, (None, "{nobody}")),
    Factor("explore_share", Kind.SETTING, (None, "0.1")),
    Factor("drift", Kind.SETTING, (None, "false")),
    Factor("keys", Kind.SETTING, (None, "filtered")),
    Factor("k of the request", Kind.REQUEST, (None, "1", "12")),
    Factor("filter", Kind.REQUEST, (None, "part", "year", "nothing")),
    Factor("group_by", Kind.REQUEST, (None, "document")),
    Factor("threshold", Kind.REQUEST, (None, "0.35", "-2")),
    Factor("min_results", Kind.REQUEST, (None, "3")),
    Factor("explain", Kind.REQUEST, (None, "true")),
    Factor("include_text", Kind.REQUEST, (None, "false")),
    Factor("explore", Kind.REQUEST, (None, "false")),
    Factor("vector", Kind.REQUEST, (None, "beside the text")),
)
BY_NAME = {factor.name: factor for factor in FACTORS}
DEFAULTS: Row = {factor.name: factor.values[0] for factor in FACTORS}

ANY = "any value"
# What a calibration refuses after it has read the data set or the model, with a sentence that names the option.
CONFLICTS: tuple[dict[str, Value], ...] = (
    {"unanswerable": "none", "max_answered": ANY},
    {"encoder": "{encoder}", "similarity": "dot"},
    {"drawn": "queries", "count_at_most": ANY},
    {"encoder": "vectors", "precision": "int8"},
    {"encoder": "vectors", "precision": "bfloat16"},
    {"encoder": "vectors", "dimensions": ANY},
    {"encoder": "openai:{endpoint}", "similarity": "dot"},
    {"policy": "probability", "tau": ANY},  # it takes the model of relevance from a current release
    {"encoder": "{encoder}", "precision": "int8"},  # a mean of words; tests/calibration/acceptance has a BERT
    {"encoder": "{encoder}", "precision": "bfloat16"},
    {"encoder": "openai:{endpoint}", "precision": "int8"},
    {"encoder": "openai:{endpoint}", "precision": "bfloat16"},
    {"encoder": "vectors", "query_prompt": ANY},
    {"encoder": "vectors", "document_prompt": ANY},
    {"encoder": "vectors", "max_length": ANY},
)

# What changes neither what a release returns nor a reply, or has a test with servers of its own.
UNCHANGING = {
    "data": "what is calibrated on; `documents` and `unanswerable` vary it",
    "releases": "where the release goes; every other calibration is repeated in another folder",
    "as_json": "what is printed; given always",
    "verbose": "what is printed",
    "model": "given whenever the encoder is behind an endpoint",
    "yes": "no question before texts are sent; given always",
    "encoder_key_file": "who may use the endpoint",
    "no_promote": "moves no result", "force": "moves no result; given always", "sign_with": "adds a file",
    "max_accuracy_drop": "decides on the promotion alone", "max_kept_increase": "decides on the promotion alone",
    "promote_if": "an old form of the two above",
    "engine": "needs a server; plugins/engines/tests", "embeddings": "needs an engine",
    "no_refusal": "a deprecated name of refuse", "rho": "a deprecated name of refuse",
    "by": "a name in the history",
    "settings": "a file of other options", "accept": "accepts a projection that the gate refuses",
    # Settings of the service.
    **dict.fromkeys(
        ("judge_share", "judge_url", "judge_model", "judge_key_file", "judge_calls_per_day"),
        "draws queries to judge beside the replies",
    ),
    "query_log_chain": "the form of log lines", "decision_log_key_file": "signs the log",
    "releases_copy": "where a copy is kept", "trusted_keys": "what may be loaded", "host": "where it listens",
    "port": "where it listens", "playground": "another path", "workers": "processes of the same",
    "max_k": "refuses requests", "max_batch": "refuses requests", "max_query_chars": "refuses requests",
    "max_body_bytes": "refuses requests", "max_batch_bytes": "refuses requests", "dialects": "other paths",
    "queue_limit": "refuses requests", "deadline_ms": "refuses requests", "engine_url": "needs an engine",
    "engine_token_file": "needs an engine", "engine_timeout_ms": "needs an engine", "encoder_url": "the same endpoint",
    "encoder_timeout_ms": "refuses requests", "rerank_key_file": "who may use the endpoint",
    "redis_url": "tests/service/cache and tests/faults", "redis_timeout_ms": "how long Redis is waited for",
    "redis_ttl_seconds": "how long Redis keeps", "drift_window_queries": "alarms", "drift_window_seconds": "alarms",
    "drift_smallest_effect": "alarms", "drift_average_run_length": "alarms", "drift_block": "alarms",
    "drift_baseline": "alarms", "canary_seconds": "alarms", "feedback_seconds": "until when a judgement is taken",
    "query_log": "what is kept; given always", "query_log_texts": "what is kept; given always",
    "query_log_days": "what is kept", "reload_seconds": "when a release is loaded", "shadow_share": "another release",
    "keys_file": "as `keys`", "allow_unauthenticated": "who may ask", "queries_per_second": "refuses requests",
    "allowed_hosts": "refuses requests", "max_connections": "refuses requests", "receive_seconds": "refuses requests",
    "keep_alive_seconds": "connections", "max_header_bytes": "refuses requests", "drain_seconds": "the end",
    "shutdown_seconds": "the end", "log_level": "what is logged", "otlp_endpoint": "traces",
    "telemetry": "of libraries",
    "query": "the text itself",
}  # fmt: skip
