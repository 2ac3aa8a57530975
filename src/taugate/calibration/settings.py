"""The settings of a calibration and of an update of its corpus. `taugate calibrate` has an option for each field."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from taugate.data.judgements import HUMAN, TRAFFIC
from taugate.errors import InputError
from taugate.evidence import rules
from taugate.evidence.options import RELEVANT_FROM, Advice, Options, RelevantFrom, SplitName
from taugate.release.engine import EngineKind
from taugate.release.evidence import Drawn
from taugate.release.manifest import Manifest
from taugate.release.names import MAX_WEIGHT, METHODS, Kind
from taugate.release.outcome_records import PolicyRecord
from taugate.retrieval.engines.engine import IN_PROCESS, external

RETENTION = 0.9  # the query embeddings paper's (§5)
DEFAULT_OVERLAP_PERCENTILE = 5.0  # why: drift/signals.py

ProjectionChoice = Literal["none", "query-pca", "auto"]
PrecisionChoice = Literal["float32", "bfloat16", "int8", "auto"]
IndexChoice = Kind | Literal["auto"]
LexicalChoice = Annotated[
    Literal["off", "auto"] | Annotated[float, Field(gt=0, le=MAX_WEIGHT, allow_inf_nan=False)],
    Advice(f"give off, auto, or a weight above 0 and at most {MAX_WEIGHT:g}"),
]
RefuseChoice = Annotated[
    Literal["auto", "off"] | Annotated[float, Field(allow_inf_nan=False)],
    Advice("give auto, off, or the threshold ρ as a number"),
]
DrawnChoice = Literal["auto", Drawn]
Accepted = Literal["projection"]
_BASELINE = {"precision": "float32", "projection": "none", "index": "flat"}


def _names_a_reranker(choice: str) -> str:
    if not choice or choice.endswith(":"):
        raise ValueError("names no model")
    return choice


@dataclass(frozen=True)
class CandidateSettings(Options):
    """Other ways to search; each is tried, and used if the gate accepts it, except a lexical weight that is given.

    The constructor raises InputError for an invalid or unused retention.
    """

    projection: ProjectionChoice = Field(default="none", description="projection of the embeddings to fewer dimensions")
    retention: Annotated[
        Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None,
        Advice("give a share of the dimensions above 0 and at most 1"),
    ] = Field(default=None, description=f"share of the dimensions that query-pca keeps (default: {RETENTION:g})")
    precision: PrecisionChoice = Field(
        default="float32", description="precision of the query encoder; bfloat16 and int8 are faster"
    )
    index: IndexChoice = Field(default="flat", description="index of the documents; flat is exact search")
    lexical: LexicalChoice = Field(
        default="auto",
        description="weight of shared words in the score, which is the cosine + weight · lexical share; auto: the best "
        "weight that is shown to help, else off; off: the papers' score",
    )
    rerank: Annotated[str, AfterValidator(_names_a_reranker), Advice("give off, auto, MODEL, or auto:MODEL")] = Field(
        default="off",
        description="second stage that reranks the best candidates: MODEL is the folder or name of a cross-encoder "
        "or a late-interaction model, late (token vectors of the encoder), endpoint or endpoint:NAME "
        "(TAUGATE_RERANK_URL); auto:MODEL uses it only if it is shown to help; auto: that of the encoder's folder or "
        "of the current release, if it is shown to help",
    )
    rerank_candidates: Annotated[
        Annotated[int, Field(ge=1, le=1000)] | Literal["auto"],
        Advice("give auto, or a whole number of 1 or more, at least K"),
    ] = Field(
        default=20,
        description="results of the first stage that a second stage scores (N); auto: the fewest of 10, 20 and 50 that "
        "are shown to be as good as the most that are in time",
    )
    accept: Annotated[tuple[Accepted, ...], Advice('give ["projection"]')] = Field(
        default=(), description="candidates that are used although the gate does not accept them"
    )
    gate: rules.GateSettings = Field(
        default_factory=rules.GateSettings, description="conditions for accepting a candidate"
    )

    def __post_init__(self) -> None:
        if self.retention is not None and self.projection != "query-pca":
            raise InputError(f"--retention {self.retention}: needs --projection query-pca; give both or neither")

    @property
    def requested(self) -> dict[str, str]:
        """The choices of precision, projection and index that differ from exact float32 search."""
        chosen = {name: getattr(self, name) for name in _BASELINE}
        return {name: value for name, value in chosen.items() if value != _BASELINE[name]}


def _from_people(splits: tuple[str, ...]) -> tuple[str, ...]:
    if splits not in {(), (HUMAN,), (HUMAN, TRAFFIC)}:
        raise ValueError("not a split judged by people")
    return splits


_POSITIVE = Advice("give a whole number of 1 or more")
_MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class CalibrationSettings(Options):
    """All settings of one calibration; the defaults of K, m and l are the papers' (thresholds paper, after Table 1).

    The constructor raises InputError for an invalid value.
    """

    split: SplitName = Field(
        default=None,
        description="labels: name of a file in qrels/, without .tsv (default: test if it exists, else human, else "
        "generated)",
    )
    relevant_from: RelevantFrom = Field(default=None, description=RELEVANT_FROM)
    labels: Annotated[
        tuple[str, ...],
        AfterValidator(_from_people),
        Advice("give human, or human,traffic: the splits that people judged"),
    ] = Field(
        default=(),
        description="calibrate on few human judgements, of the split human or of human,traffic: judged queries count "
        "by their weights, and a model scores the unjudged queries; --split names another split instead of human",
    )
    drawn: DrawnChoice = Field(
        default="auto",
        description="how the labels were drawn: queries one by one, such as from a log, or documents with their "
        "queries; auto: queries for traffic and taugate judge, else documents",
    )
    k: Annotated[int, _POSITIVE] = Field(default=5, ge=1, description="results per query before the threshold (K)")
    bootstraps: Annotated[int, _POSITIVE] = Field(default=500, ge=1, description="number of bootstrap samples (m)")
    sample_size: Annotated[int, _POSITIVE] = Field(default=100, ge=1, description="queries per bootstrap sample (l)")
    seed: Annotated[int, Advice(f"give a whole number from 0 to {_MAX_SEED}")] = Field(
        default=0, ge=0, le=_MAX_SEED, description="seed of all random choices"
    )
    holdout: Annotated[float, Advice("give a share of the queries, 0 or more and below 1")] = Field(
        default=0.3,
        ge=0,
        lt=1,
        allow_inf_nan=False,
        description="share of the answerable queries held out to measure the threshold; 0 with --labels",
    )
    overlap_percentile: Annotated[float, Advice("give a percentile from 0 to 100")] = Field(
        default=DEFAULT_OVERLAP_PERCENTILE,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="percentile of the top-K similarities that gives θ, for COE and ROE",
    )
    rule: rules.ThresholdRule = Field(
        default_factory=rules.ThresholdRule.from_options, description="how the threshold is chosen"
    )
    abstention: rules.AbstentionRule | None = Field(
        default=None, description="when queries are refused as a whole, with certified limits; None for never"
    )
    refuse: RefuseChoice = Field(
        default="off",
        description="refuse a query as a whole if its best similarity is below ρ: auto, the default, chooses a ρ that "
        "refuses questions about other subjects, except with --tau or --max-answered; RHO is a given one, with --tau",
    )
    candidates: CandidateSettings = Field(
        default_factory=CandidateSettings, description="cheaper ways to search that are tried"
    )
    engine: Annotated[EngineKind, Advice("give faiss, or the name of an engine such as milvus")] = Field(
        default=IN_PROCESS,
        description="store of vectors and texts: the release itself (faiss), or an engine at TAUGATE_ENGINE_URL, such "
        "as milvus or pgvector (default: faiss)",
    )
    accept_vectors: bool = Field(
        default=False, description="let requests have the vector of a query, made by the same encoder, instead of text"
    )
    embeddings: str | None = Field(default=None, description="folder or URL of the vectors that `taugate encode` wrote")

    def __post_init__(self) -> None:
        for first, second, reason, remedy in self._exclusions():
            raise InputError(f"{first}: cannot be combined with {second}, because {reason}; {remedy}")
        if self.embeddings is not None and external(self.engine) is None:
            raise InputError(
                f"--embeddings {self.embeddings}: needs an --engine such as milvus or pgvector; without an engine, "
                "vectors come from the cache of embeddings"
            )

    def _exclusions(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield the options that are given and exclude each other: both, why, and what to do."""
        rule, candidates, method = self.rule, self.candidates, METHODS[self.rule.method]
        count, labels = candidates.rerank_candidates, ",".join(self.labels)
        strata, answered = (f"--strata metadata.{rule.strata}", rule.strata is not None), self.abstention is not None
        limit = "few labels can limit one loss of accuracy, for the policy similarity"
        of_labels = (
            (f"--holdout {self.holdout:g}", bool(self.holdout), "every judged query counts"),
            (f"--method {rule.method}", method.certifies and not method.few_labels, limit),
            (f"--policy {rule.policy}", rule.score is not None and not rule.score.plain, limit),
            (f"--metric {rule.metric}", rule.metric != "accuracy", limit),
            (f"--guarantee {rule.guarantee}", rule.on_average, limit),
            (f"--max-empty {rule.max_empty}", rule.max_empty is not None, limit),
            (*strata, limit),
            (f"--count-at-most {rule.count_at_most}", rule.count_at_most is not None, limit),
            (f"--relevant-from {self.relevant_from}", self.relevant_from is not None, "people answer yes or no"),
            ("--max-loss with several", bool(rule.further_losses), limit),
            ("--max-answered", answered, "refusing whole queries needs labels of its own"),
        )
        of_engine = (
            *(
                (f"--{name} {value}", True, "it is tried on vectors in memory")
                for name, value in candidates.requested.items()
            ),
            (*strata, "strata need the metadata of all documents"),
            ("--max-answered", answered, "refusing whole queries needs the words of all documents"),
        )
        of_second_stage = (
            (f"--labels {labels}", bool(self.labels), "a machine would have to score its candidates too"),
            (*strata, "strata are certified on the first stage"),
            (f"--tau {rule.tau}", rule.tau is not None, "each of the two stages has a threshold of its own"),
            (
                f"--rerank-candidates {count}",
                count != "auto" and count < self.k,
                f"they would be fewer than the {self.k} results",
            ),
        )
        leave_out, use_faiss = "leave out one of the two", "leave it out, or use --engine faiss"
        for other, is_given, excluded, remedy in (
            (f"--labels {labels}", bool(self.labels), of_labels, leave_out),
            (f"--engine {self.engine} yet", external(self.engine) is not None, of_engine, use_faiss),
            (f"--rerank {candidates.rerank}", candidates.rerank != "off", of_second_stage, leave_out),
        ):
            yield from ((option, other, why, remedy) for option, also, why in excluded if is_given and also)

    @property
    def refuses(self) -> bool:
        """Whether queries are refused below a default or given ρ."""
        return self.refuse != "off"

    @property
    def rho(self) -> float | None:
        """The given ρ; None without one."""
        return self.refuse if isinstance(self.refuse, float) else None

    @property
    def labelled_splits(self) -> tuple[str, ...]:
        """The splits that few labels are read from, the release's own first; empty without --labels."""
        return (self.split or HUMAN, *self.labels[1:]) if self.labels else ()

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Build the settings from the options of `taugate calibrate`.

        Args:
            options: The given options, by name with underscores: fields of this class, of its rules and of
                CandidateSettings, and those of GateSettings as margin and gate_confidence. Others have their
                defaults.
        """

        def of(group: type[Options]) -> dict[str, Any]:
            return {name: options[name] for name in group.fields() if name in options}

        abstention, threshold_options = rules.AbstentionRule.from_options(
            of(rules.ThresholdRule) | of(rules.AbstentionRule)
        )
        rule = rules.ThresholdRule.from_options(**threshold_options)
        gate = {"margin": options.get("margin"), "confidence": options.get("gate_confidence", rules.CONFIDENCE)}
        candidates = CandidateSettings(**of(CandidateSettings), gate=rules.GateSettings(**gate))
        values = of(cls)
        values["refuse"] = _refuse_choice(options.get("refuse", "auto"), rule, abstention)
        if values.get("labels"):
            values.setdefault("holdout", 0.0)  # few labels leave none to hold out
        return cls(**values, rule=rule, abstention=abstention, candidates=candidates)


def _refuse_choice(
    choice: RefuseChoice, rule: rules.ThresholdRule, abstention: rules.AbstentionRule | None
) -> Literal["auto", "off"] | float:
    """Return what is refused by default: with auto, nothing if other options decide it, or name the threshold."""
    if choice == "auto":
        return "off" if abstention is not None or rule.tau is not None else choice
    if abstention is not None:
        raise InputError(
            f"--refuse {choice}: --max-answered {abstention.max_answered:g} decides what is refused; leave out one of "
            "the two"
        )
    if choice != "off" and rule.tau is None:
        raise InputError(f"--refuse {choice}: a chosen threshold would depend on it; give --tau and --policy as well")
    return choice


# Kinds of candidate that the gate tests again for each corpus; encoder and projection are kept.
TESTED_AGAIN = frozenset({"index", "engine"})


@dataclass(frozen=True)
class UpdateSettings(Options):
    """Settings of the check that the threshold still holds. The constructor raises InputError for an invalid value.

    Another split has other labels, so the threshold is chosen anew.
    """

    split: str | None = Field(
        default=None, description="labels: name of a file in qrels/, without .tsv (default: as the current release)"
    )
    margin: Annotated[
        Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None,
        Advice("give a loss of accuracy above 0 and below 1"),
    ] = Field(
        default=None,
        description=f"largest loss of accuracy allowed (default: {rules.MAX_LOSS:g}, or the smallest the labels can "
        "show)",
    )
    embeddings: str | None = Field(
        default=None,
        description="folder or URL of the vectors that `taugate encode` wrote for the newer corpus; for a release "
        "whose vectors are in an engine",
    )

    def margin_for(self, detectable: float) -> float:
        """Return the margin, or the default for labels that can exclude a loss of `detectable` and no smaller one."""
        return rules.default_margin(rules.MAX_LOSS, detectable) if self.margin is None else self.margin


def kept_rule(policy: PolicyRecord) -> rules.ThresholdRule:
    """Return the rule that keeps the threshold of a policy, as if it had been given with --tau."""
    return rules.ThresholdRule(
        method="fixed",
        policy="similarity" if policy.kind == "none" else policy.kind,
        metric=policy.metric,
        max_loss=policy.max_loss or rules.MAX_LOSS,
        confidence=policy.confidence,
        tau=policy.tau,
    )


def kept_settings(manifest: Manifest, embeddings: str | None) -> CalibrationSettings:
    """Return the settings of the current release's calibration, with its threshold fixed."""
    tested = [record for record in manifest.gate if record.kind in TESTED_AGAIN and record.admitted]
    gate = rules.GateSettings(rules.requested_margin(tested), tested[-1].confidence) if tested else rules.GateSettings()
    engine = manifest.engine
    return CalibrationSettings(
        split=manifest.data.split,
        k=manifest.policy.k,
        **manifest.bootstrap.model_dump(),
        rule=kept_rule(manifest.policy).kept_from(manifest.policy.method),
        candidates=CandidateSettings(
            index=manifest.index.kind if engine is None else "flat",
            lexical="off" if manifest.lexical is None else manifest.lexical.weight,
            gate=gate,
        ),
        engine=IN_PROCESS if engine is None else engine.kind,
        accept_vectors=bool(manifest.accepts_vectors),
        embeddings=embeddings,
    )


def requested_rule(policy: PolicyRecord, strata: str | None = None) -> rules.ThresholdRule:
    """Return the rule that was requested of the calibration of a policy with a guarantee."""
    max_losses, offered = [level.max_loss for level in policy.levels], METHODS[policy.method].statements
    return rules.ThresholdRule.from_options(
        method=policy.method,
        policy="auto" if policy.choice is not None or policy.kind == "none" else policy.kind,
        metric=policy.metric,
        guarantee=policy.statement if len(offered) > 1 and policy.statement in offered else None,
        max_loss=max_losses or (None if policy.max_loss is None else [policy.max_loss]),
        confidence=policy.confidence,
        max_empty=policy.max_empty,
        strata=strata and f"metadata.{strata}",
        count_at_most=next((certificate.count_at_most for certificate in policy.certificates), None),
    )
