"""Settings of the rules: how the threshold is chosen, when a query is refused, and what a cheaper search may lose."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, get_args

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.errors import InputError
from taugate.evidence.options import Advice, Options, option_of
from taugate.policy.names import Metric, ThresholdKind
from taugate.policy.policy import POLICIES, DecisionScore
from taugate.release.names import METHODS, STATEMENTS, Method, Statement
from taugate.release.search_records import GateRecord

PolicyChoice = Literal[ThresholdKind, "auto"]

CONFIDENCE = 0.95  # the papers' intervals are 95 % ones (thresholds paper §2.1), and so is what is certified by default
MAX_LOSS = 0.01  # default loss of an intended cut: one query in a hundred
# γ without --max-empty: the share of answerable queries refused at which scores are compared, and the largest share
# that is refused if the limit on answers cannot be certified. Refusing one question in ten is the most that a search
# people rely on can afford; benchmarks/results/abstention.md shows the other error for values from .01 to .5.
MAX_EMPTY = 0.10
_MIN_SHARE = 1e-6  # certifying less takes more than a million queries
_METADATA = "metadata."
_MAX_FLOAT32 = float(np.finfo(np.float32).max)

_ADVICE = f"give a share of the queries above 0 and below 1, not less than {_MIN_SHARE:g}"
Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Confidence = Annotated[
    float, Field(ge=0.5, lt=1, allow_inf_nan=False), Advice("give a probability of 0.5 or more and below 1")
]


# Options that request a certified cut.
_CERTIFYING = ("max_loss", "confidence", "guarantee", "max_empty", "strata", "count_at_most")


@dataclass(frozen=True)
class ThresholdRule(Options):
    """How the threshold is chosen. The constructor raises InputError for values out of bounds.

    The confidence (1 − α) covers max_loss (δ) and all further_losses together.
    """

    method: Method = Field(description="how the threshold is chosen")
    policy: PolicyChoice = Field(description="the score that is compared with the threshold")
    metric: Metric = Field(default="accuracy", description="metric whose loss is limited")
    guarantee: Statement = Field(default="high-probability", description="kind of guarantee with risk-control")
    max_loss: Annotated[Share, Advice(_ADVICE)] = Field(
        default=MAX_LOSS,
        description="certify that at most this share of the queries lose their answer to the threshold; of several, "
        "the first sets the threshold and all are certified together",
    )
    confidence: Confidence = Field(default=CONFIDENCE, description="confidence of the certificate")
    max_empty: Annotated[Share | None, Advice(_ADVICE)] = Field(
        default=None, description="largest share of answerable queries that may be left without a result"
    )
    further_losses: Annotated[tuple[Share, ...], Advice(_ADVICE, "--max-loss")] = Field(
        default=(), description="other largest losses, certified beside the first"
    )
    strata: str | None = Field(default=None, description="certify a threshold for each value of a metadata field")
    count_at_most: Annotated[
        Annotated[int, Field(ge=1)] | Literal["auto"] | None, Advice("give a whole number of 1 or more, or auto")
    ] = Field(
        default=None,
        description="certify the loss with each document counted for at most this many queries; auto: as many as nine "
        "in ten documents have; by default as many as let 98 % of the queries count",
    )
    tau: Annotated[
        Annotated[float, Field(allow_inf_nan=False)] | None, Advice("give the threshold as a number, such as 0.42")
    ] = Field(
        default=None,
        description="use this threshold instead of choosing one; needs --policy, and takes the relevance model from "
        "the current release",
    )

    @property
    def score(self) -> DecisionScore | None:
        """What the policy compares with the threshold; None for `auto`."""
        return POLICIES.get(self.policy)

    @property
    def needs_model(self) -> bool:
        """Whether the policy needs a model of relevance; `auto` does if there is no error to divide among policies."""
        return self.on_average if self.score is None else self.score.needs_model

    @property
    def divides_by_document(self) -> bool:
        """Whether whole documents are held out if they are the unit of evidence; the papers hold out queries."""
        return not METHODS[self.method].of_papers

    def kept_from(self, chosen_by: Method) -> "InheritedRule":
        """Return the same rule for the threshold of an earlier release, which the method `chosen_by` chose."""
        return InheritedRule(**{name: getattr(self, name) for name in ThresholdRule.fields()}, chosen_by=chosen_by)

    def split_by_loss(self) -> Iterator[Self]:
        """Yield one rule for each largest loss, the first one in force.

        The error probability is divided among them (Bonferroni), except for guarantees on the expected loss, which have
        none.
        """
        losses = (self.max_loss, *self.further_losses)
        shared = self.confidence
        if self.statement is not None and not self.on_average:
            shared = 1 - (1 - self.confidence) / len(losses)
        for loss in losses:
            yield replace(self, max_loss=loss, further_losses=(), confidence=shared)

    @property
    def statement(self) -> Statement | None:
        """The kind of guarantee that the method gives, None for no guarantee."""
        offered = METHODS[self.method].statements
        return self.guarantee if self.guarantee in offered else next(iter(offered), None)

    @property
    def on_average(self) -> bool:
        """Whether the guarantee limits the loss on average, so that there is no error to divide."""
        return self.statement is not None and STATEMENTS[self.statement].on_average

    @classmethod
    def from_options(cls, **options: Any) -> Self:  # noqa: ANN401 (validated as the fields)
        """Build the rule from command-line options (docs/thresholds.md); None is the same as a missing option.

        Without options the rule is that of the papers. A limit, a guarantee or another policy than similarity requests
        a certified cut; tau is used as it is. Options are fields by name; of max_loss all largest losses, the first in
        force, and of strata a field of the metadata with the prefix `metadata.`. Raises InputError for an invalid
        value, or options that contradict each other.
        """
        given = {name: value for name, value in options.items() if value is not None}
        limits = [option_of(name) for name in _CERTIFYING if name in given]
        method: Method | None = options.get("method")
        policy: PolicyChoice | None = options.get("policy")
        if "tau" in given or method == "fixed":
            return cls._fixed(options.get("tau"), policy, method, options.get("metric", "accuracy"), limits)
        requested = limits if _of_papers(policy) else [*limits, f"--policy {policy}"]
        if method is None:
            method = "risk-control" if requested else "bootstrap"
        elif not METHODS[method].certifies and requested:
            raise InputError(
                f"{requested[0]}: --method bootstrap follows the papers and certifies nothing; leave out one of the two"
            )
        if "guarantee" in given and len(METHODS[method].statements) == 1:
            raise InputError("--guarantee: only for --method risk-control; leave it out with non-inferiority")
        if (strata := options.get("strata")) is not None:
            if not strata.startswith(_METADATA) or strata == _METADATA:
                named = strata.removeprefix(_METADATA) or "FIELD"
                raise InputError(f"--strata {strata}: give a field of the documents' metadata as {_METADATA}{named}")
            given["strata"] = strata.removeprefix(_METADATA)
        losses = [*(options.get("max_loss") or [MAX_LOSS])]
        for name, value in (*(("--max-loss", loss) for loss in losses), ("--max-empty", options.get("max_empty"))):
            if value is not None and not value >= _MIN_SHARE:
                raise InputError(f"{name} {value}: {_ADVICE}")
        if len({*losses}) < len(losses):
            raise InputError(f"--max-loss {','.join(f'{loss:g}' for loss in losses)}: the same loss is given twice")
        default: PolicyChoice = "auto" if METHODS[method].certifies else "similarity"
        given |= {"method": method, "policy": policy or default}
        return cls(**given | {"max_loss": losses[0], "further_losses": tuple(losses[1:])})

    @classmethod
    def _fixed(
        cls,
        tau: float | None,
        policy: PolicyChoice | None,
        method: Method | None,
        metric: Metric,
        limits: Sequence[str],
    ) -> Self:
        """Return the rule for a given threshold; `limits` names the given options that request a guarantee."""
        if tau is None or policy is None or policy == "auto":
            option = "--method fixed" if tau is None else f"--tau {tau:g}"
            *first, last = get_args(ThresholdKind)
            kinds = f"{', '.join(first)} or {last}"
            raise InputError(f"{option}: give both --tau and --policy {kinds}, the score that is compared with it")
        if method not in {None, "fixed"}:
            raise InputError(f"--tau {tau:g}: --method {method} chooses a threshold; leave out one of the two")
        if limits:
            raise InputError(f"--tau {tau:g}: a given threshold cannot be certified; leave out {limits[0]}")
        if abs(tau) > _MAX_FLOAT32:
            raise InputError(f"--tau {tau:g}: too large for float32; give a smaller number")
        return cls(method="fixed", policy=policy, metric=metric, tau=tau)


def _of_papers(policy: PolicyChoice | None) -> bool:
    """Return whether the papers' rule has this policy, or none is named."""
    score = POLICIES.get(policy or "")
    return policy is None or (score is not None and score.plain)


@dataclass(frozen=True)
class InheritedRule(ThresholdRule):
    """The threshold of an earlier release.

    Queries are divided as in that release, so the same queries are held out.
    """

    chosen_by: Method = Field(default="fixed", description="method that chose the threshold")

    @property
    def divides_by_document(self) -> bool:
        """Whether whole documents were held out in that release."""
        return not METHODS[self.chosen_by].of_papers


@dataclass(frozen=True)
class AbstentionRule(Options):
    """Limits on both errors of refusing queries as a whole: β on answers to unanswerable queries, γ on refusals.

    The confidence covers both limits together. The constructor raises InputError for values out of bounds.
    """

    max_answered: Annotated[Share, Advice("give a share of the unanswerable queries above 0 and below 1")] = Field(
        description="refuse whole queries so that at most this share of unanswerable queries gets a result; "
        "--max-empty then limits the share of answerable queries refused, which otherwise has no limit"
    )
    max_empty: Annotated[Share | None, Advice("give a share of the answerable queries above 0 and below 1")] = Field(
        default=None, description="largest share of answerable queries that may be refused"
    )
    confidence: Confidence = Field(default=CONFIDENCE, description="probability that both limits hold")

    @property
    def refusal_limit(self) -> float:
        """γ, or its default if no limit is given."""
        return MAX_EMPTY if self.max_empty is None else self.max_empty

    @property
    def confidence_per_limit(self) -> float:
        """Confidence of each limit alone: each gets half of the error (Bonferroni)."""
        return 1 - (1 - self.confidence) / 2

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> tuple[Self | None, dict[str, Any]]:
        """Return the rule that command-line options request, and the options left for the threshold's rule.

        Without max_answered there is no rule, and max_empty limits the queries that the cut leaves empty. With
        max_answered, max_empty limits refusals instead, and a confidence alone does not request a certified cut.
        """
        if options.get("max_answered") is None:
            return None, {name: value for name, value in options.items() if name != "max_answered"}
        values = {name: options[name] for name in cls.fields() if name in options}
        certified = (
            bool({"guarantee", "max_loss", "strata", "count_at_most"} & {*options})
            or not METHODS[options.get("method") or "bootstrap"].of_papers
            or not _of_papers(options.get("policy"))
        )
        taken = {"max_answered", "max_empty"} | (set() if certified else {"confidence"})
        return cls(**values), {name: value for name, value in options.items() if name not in taken}

    def check(self, split: str, unanswerable: int) -> None:
        """Raise InputError if a split has no unanswerable queries, without which nothing can be certified."""
        if not unanswerable:
            raise InputError(
                f"--max-answered {self.max_answered:g}: the split {split} has no unanswerable queries to "
                "measure it on; label some, each with a score of 0 for a document that does not answer it, or leave "
                "out the option"
            )


# Half a point: less than the papers' encoders differ, and what 600 queries or some 700 documents can show.
MARGIN = 0.005
# If no margin is given and the labels cannot show MARGIN, the margin is what they can show, up to five points. A useful
# int8 encoder, projection or index loses less than that.
WIDEST_MARGIN = 0.05


@dataclass(frozen=True)
class GateSettings(Options):
    """The gate accepts a candidate if its mean loss is below the margin, with the confidence.

    The constructor raises InputError for values out of bounds.
    """

    margin: Annotated[
        Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None,
        Advice("give a loss of accuracy and NDCG above 0 and below 1"),
    ] = Field(
        default=None,
        description=f"loss of accuracy@K and NDCG@10 that a cheaper search has to stay below (default: {MARGIN}, or "
        "the smallest the labels can show)",
    )
    confidence: Annotated[
        float,
        Field(ge=0.5, lt=1, allow_inf_nan=False),
        Advice("give a probability of 0.5 or more and below 1", "--gate-confidence"),
    ] = Field(default=CONFIDENCE, description="confidence that the loss is below the margin")


def default_margin(default: float, detectable: float) -> float:
    """Choose a margin: the default, or the smallest loss that the labels can exclude if that is larger.

    The latter is rounded up to a tenth of a point. If it is above WIDEST_MARGIN, the default is returned, and nothing
    passes. `detectable` is the smallest loss that the labels can exclude if nothing changes.
    """
    shown = math.ceil(1000 * detectable - 1e-9) / 1000
    return max(default, shown) if shown <= WIDEST_MARGIN else default


def requested_margin(records: Sequence[GateRecord]) -> float | None:
    """Return the gate's margin if the user gave one; None for the default, which more labels can lower."""
    margin = records[0].margin
    return None if margin == default_margin(MARGIN, max(record.least or 0.0 for record in records)) else margin
