"""The settings of a calibration, checked before anything is read. `taugate calibrate` has an option for each field."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from taugate.calibration.settings.options import Advice, Options, SplitName
from taugate.calibration.settings.rules import CONFIDENCE, AbstentionRule, ThresholdRule
from taugate.errors import InputError
from taugate.ingestion.dataset.judgements import HUMAN, TRAFFIC
from taugate.retrieval.engines.engine import EngineKind
from taugate.retrieval.index.kinds import Kind
from taugate.retrieval.release.records import GateRecord

# Half a point: less than the papers' encoders differ, and what 600 queries can show, or some 700 documents.
MARGIN = 0.005
# Where no margin is given and the labels cannot show the one above, it is what they can show, up to five points. Above
# that a cheaper encoder is another encoder: int8, a projection or an index that is any use loses less.
WIDEST_MARGIN = 0.05
RETENTION = 0.9  # the query embeddings paper's (§5)
DEFAULT_OVERLAP_PERCENTILE = 5.0  # why: drift/overlap.py

ProjectionChoice = Literal["none", "query-pca", "auto"]
PrecisionChoice = Literal["float32", "int8", "auto"]
IndexChoice = Kind | Literal["auto"]
EngineChoice = Literal["faiss", EngineKind]
_BASELINE = {"precision": "float32", "projection": "none", "index": "flat"}


@dataclass(frozen=True)
class GateSettings(Options):
    """The gate's conditions: a candidate is admitted whose mean loss is below the margin, with the confidence.

    Constructors raise InputError for values out of bounds.
    """

    margin: Annotated[
        Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None,
        Advice("give a loss of accuracy and NDCG above 0 and below 1"),
    ] = Field(
        default=None,
        description=f"largest loss of accuracy@K and of NDCG@10 (default: {MARGIN}, or what the labels can show)",
    )
    confidence: Annotated[
        float,
        Field(ge=0.5, lt=1, allow_inf_nan=False),
        Advice("give a probability from 0.5 and below 1; nothing is certain", "--gate-confidence"),
    ] = Field(default=CONFIDENCE, description="probability that the loss is below the margin")


def default_margin(default: float, least: float) -> float:
    """Choose the margin where none is given: the default, or what the labels can show where that is more.

    Args:
        default: The margin that is wanted.
        least: The smallest loss that the labels can exclude where nothing changes. The margin is rounded up to a tenth
            of a point. Above WIDEST_MARGIN it stays the default, which nothing then passes.
    """
    shown = math.ceil(1000 * least - 1e-9) / 1000
    return max(default, shown) if shown <= WIDEST_MARGIN else default


def asked_margin(judged: Sequence[GateRecord]) -> float | None:
    """Return the margin of the gate that was asked for; None where none was given, so that more labels can show less.

    Args:
        judged: One or more of the records that the gate wrote.
    """
    margin = judged[0].margin
    return None if margin == default_margin(MARGIN, max(each.least or 0.0 for each in judged)) else margin


@dataclass(frozen=True)
class CandidateSettings(Options):
    """Cheaper ways to search, each of which is tried and kept where the gate admits it.

    Constructors raise InputError for a retention that cannot be used, or that nothing would use.
    """

    projection: ProjectionChoice = Field(default="none", description="projection of embeddings before the search")
    retention: Annotated[
        Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None,
        Advice("give a share of the dimensions above 0 and at most 1"),
    ] = Field(default=None, description=f"share of the dimensions that query-pca keeps (default: {RETENTION:g})")
    precision: PrecisionChoice = Field(default="float32", description="precision of the encoder of queries")
    index: IndexChoice = Field(default="flat", description="index of the documents")
    gate: GateSettings = Field(default_factory=GateSettings, description="what it takes to be admitted")

    def __post_init__(self) -> None:
        if self.retention is not None and self.projection != "query-pca":
            raise InputError(f"--retention {self.retention}: goes with --projection query-pca; give both, or neither")

    @property
    def requested(self) -> dict[str, str]:
        """The options that differ from the baseline of exact search in float32: precision, projection, index."""
        chosen = {name: getattr(self, name) for name in _BASELINE}
        return {name: value for name, value in chosen.items() if value != _BASELINE[name]}


def _from_people(splits: tuple[str, ...]) -> tuple[str, ...]:
    if splits not in {(), (HUMAN,), (HUMAN, TRAFFIC)}:
        raise ValueError("not what people judged")
    return splits


_POSITIVE = Advice("give a whole number of 1 or more")
_MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class CalibrationSettings(Options):
    """All settings of one calibration; the defaults of K, m and l are the papers' (thresholds paper, after Table 1).

    Constructors raise InputError for a value that cannot be used.
    """

    split: SplitName = Field(
        default=None,
        description="file in qrels/, without .tsv (default: test where there is one, else human, else generated)",
    )
    labels: Annotated[
        tuple[str, ...],
        AfterValidator(_from_people),
        Advice("give human, or human,traffic: the splits of what people judged"),
    ] = Field(
        default=(),
        description="calibrate on few human judgements, of the split human or of human,traffic: each judged query "
        "counts by its weight, and a model scores the queries that nobody judged; --split names another split in "
        "place of human",
    )
    k: Annotated[int, _POSITIVE] = Field(default=5, ge=1, description="K, documents retrieved for each query")
    bootstraps: Annotated[int, _POSITIVE] = Field(default=500, ge=1, description="m, number of bootstrap samples")
    sample_size: Annotated[int, _POSITIVE] = Field(default=100, ge=1, description="l, queries in each bootstrap sample")
    seed: Annotated[int, Advice(f"give a whole number from 0 to {_MAX_SEED}")] = Field(
        default=0, ge=0, le=_MAX_SEED, description="seed of every random choice"
    )
    holdout: Annotated[float, Advice("give a share of the queries, 0 or more and below 1")] = Field(
        default=0.3,
        ge=0,
        lt=1,
        allow_inf_nan=False,
        description="share of the answerable queries that are held out, to measure the calibration on; 0 with --labels",
    )
    overlap_percentile: Annotated[float, Advice("give a percentile from 0 to 100")] = Field(
        default=DEFAULT_OVERLAP_PERCENTILE,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="percentile of S_topK that gives θ",
    )
    rule: ThresholdRule = Field(default_factory=ThresholdRule.from_options, description="how the threshold is chosen")
    abstention: AbstentionRule | None = Field(
        default=None, description="when queries are refused as a whole; None: never"
    )
    candidates: CandidateSettings = Field(
        default_factory=CandidateSettings, description="what is tried for less time or memory"
    )
    engine: EngineChoice = Field(
        default="faiss",
        description="store of vectors and texts: faiss keeps them in the release, the others in the engine at "
        "TAUGATE_ENGINE_URL",
    )
    embeddings: str | None = Field(
        default=None, description="folder, or URL in object storage, where `taugate encode` wrote the vectors"
    )

    def __post_init__(self) -> None:
        if self.labels:
            self._check_labels()
        if self.engine != "faiss":
            self._check_engine(self.engine)
        elif self.embeddings is not None:
            raise InputError(
                f"--embeddings {self.embeddings}: goes with --engine milvus or pgvector; without an engine vectors are "
                "in memory, and come from the cache of embeddings"
            )

    def _check_engine(self, kind: EngineKind) -> None:
        """Raise InputError for what takes every document's vector or text in memory, and so no engine can do yet."""
        rule = self.rule
        refused = {
            **{
                f"--{name} {value}": "what is cheaper is tried on vectors in memory"
                for name, value in (self.candidates.requested.items())
            },
            f"--strata metadata.{rule.strata}": rule.strata is not None and "strata take the metadata of all documents",
            "--max-answered": self.abstention is not None and "refusing whole queries takes the words of all documents",
        }
        for option, why in refused.items():
            if why:
                raise InputError(
                    f"{option}: does not go with --engine {kind} yet, as {why}; leave it out, or use --engine faiss"
                )

    @property
    def labelled_splits(self) -> tuple[str, ...]:
        """The splits that few labels are read from, that of the release first; empty where one split is all."""
        return (self.split or HUMAN, *self.labels[1:]) if self.labels else ()

    def _check_labels(self) -> None:
        """Raise InputError for what few labels cannot be asked for."""
        rule, given = self.rule, ",".join(self.labels)
        single_limit = "few labels limit one loss of accuracy, of a cut by similarity"
        refused = {
            f"--holdout {self.holdout:g}": (bool(self.holdout), "every judged query counts"),
            f"--method {rule.method}": (rule.method == "non-inferiority", single_limit),
            f"--policy {rule.policy}": (rule.policy not in {"similarity", "auto"}, single_limit),
            f"--metric {rule.metric}": (rule.metric != "accuracy", single_limit),
            f"--guarantee {rule.guarantee}": (rule.guarantee != "high-probability", single_limit),
            f"--max-empty {rule.max_empty}": (rule.max_empty is not None, single_limit),
            f"--strata metadata.{rule.strata}": (rule.strata is not None, single_limit),
            "--max-loss with several": (bool(rule.further_losses), single_limit),
            "--max-answered": (self.abstention is not None, "refusing whole queries takes labels of its own"),
        }
        for option, (asked, why) in refused.items():
            if asked:
                raise InputError(f"{option}: does not go with --labels {given}, as {why}; leave one of the two out")

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Build the settings from the options of `taugate calibrate`.

        Args:
            options: Those given, by name with underscores: fields of this class, of its rules and of CandidateSettings,
                and GateSettings as margin and gate_confidence. What is left out has its default.

        Raises:
            InputError: For a value that cannot be used, and for options that contradict each other.
        """

        def of(group: type[Options]) -> dict[str, Any]:
            return {name: options[name] for name in group.fields() if name in options}

        abstention, of_the_threshold = AbstentionRule.from_options(of(ThresholdRule) | of(AbstentionRule))
        rule = ThresholdRule.from_options(**of_the_threshold)
        gate = {"margin": options.get("margin"), "confidence": options.get("gate_confidence", CONFIDENCE)}
        candidates = CandidateSettings(**of(CandidateSettings), gate=GateSettings(**gate))
        own = of(cls)
        if own.get("labels"):
            own.setdefault("holdout", 0.0)  # few labels leave none to hold out
        return cls(**own, rule=rule, abstention=abstention, candidates=candidates)
