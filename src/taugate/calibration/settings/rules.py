"""The two rules that a user sets limits for: how the threshold is chosen, and when a query is refused as a whole."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.settings.options import Advice, Options
from taugate.errors import InputError
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.policy.policy import Metric
from taugate.retrieval.release.evidence import Method, Statement

PolicyChoice = Literal["similarity", "relative", "probability", "auto"]

CONFIDENCE = 0.95  # the papers' intervals are 95 % ones (thresholds paper §2.1), and so is what is certified by default
MAX_LOSS = 0.01  # one query in a hundred: what an intended cut may cost where nobody says otherwise
# γ where no --max-empty is given: the share of answerable queries refused at which scores are compared, and what is
# refused at most where the limit on answers cannot be certified. One question in ten sent away is what a search that
# people rely on can cost at most; docs/benchmarks/abstention.md draws the other error for values from .01 to .5.
MAX_EMPTY = 0.10
_LEAST = 1e-6  # to certify less takes more than a million queries
_METADATA = "metadata."
_MAX_FLOAT32 = float(np.finfo(np.float32).max)

_ADVICE = f"give a share of the queries above 0 and below 1, not less than {_LEAST:g}"
Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Confidence = Annotated[
    float,
    Field(ge=0.5, lt=1, allow_inf_nan=False),
    Advice("give a probability from 0.5 and below 1; nothing is certain"),
]


@dataclass(frozen=True)
class ThresholdRule(Options):
    """How the threshold is chosen. Each field says what it is; constructors raise InputError for values out of bounds.

    further_losses are certified beside max_loss (δ), all of them together with the one confidence (1 − α).
    """

    method: Method = Field(description="how the threshold is chosen")
    policy: PolicyChoice = Field(description="what is compared with the threshold")
    metric: Metric = Field(default="accuracy", description="metric whose loss is limited")
    guarantee: Statement = Field(default="high-probability", description="kind of guarantee that risk-control gives")
    max_loss: Annotated[Share, Advice(_ADVICE)] = Field(
        default=MAX_LOSS,
        description="largest share of the queries that may lose their answer; with several, the first is in force and "
        "all are certified together",
    )
    confidence: Confidence = Field(default=CONFIDENCE, description="probability that the certified statement holds")
    max_empty: Annotated[Share | None, Advice(_ADVICE)] = Field(
        default=None, description="share of answerable queries that may be left without a result"
    )
    further_losses: Annotated[tuple[Share, ...], Advice(_ADVICE, "--max-loss")] = Field(
        default=(), description="other largest losses, certified beside the one in force"
    )
    strata: str | None = Field(default=None, description="certify each value of a metadata field on its own")
    tau: Annotated[
        Annotated[float, Field(allow_inf_nan=False)] | None,
        Advice("give the threshold as a number, such as 0.42"),
    ] = Field(
        default=None,
        description="keep this threshold instead of choosing one; needs --policy, and takes the model of relevance "
        "from the current release",
    )

    @property
    def divides_by_document(self) -> bool:
        """Whether whole documents are held out where they are the unit of evidence; the papers hold out queries."""
        return self.method != "bootstrap"

    def kept_from(self, chosen_by: Method) -> "InheritedRule":
        """Return the same rule for a threshold that an earlier release has.

        Args:
            chosen_by: The method of that release.
        """
        return InheritedRule(**{name: getattr(self, name) for name in ThresholdRule.fields()}, chosen_by=chosen_by)

    def split_by_loss(self) -> Iterator[Self]:
        """Yield one rule for each largest loss, the one in force first; together they err as rarely as one would.

        The error is divided among them (Bonferroni). An expected loss is no statement that errs, so nothing is divided.
        """
        losses = (self.max_loss, *self.further_losses)
        shared = self.confidence
        if self.statement == "high-probability":
            shared = 1 - (1 - self.confidence) / len(losses)
        for loss in losses:
            yield replace(self, max_loss=loss, further_losses=(), confidence=shared)

    @property
    def statement(self) -> Statement | None:
        """The kind of guarantee that the method gives: one of risk control's two, the only one of non-inferiority."""
        given: dict[Method, Statement] = {"non-inferiority": "high-probability", "risk-control": self.guarantee}
        return given.get(self.method)

    @classmethod
    def from_options(  # noqa: PLR0913 (one for each option of the command line)
        cls,
        *,
        method: Method | None = None,
        policy: PolicyChoice | None = None,
        metric: Metric = "accuracy",
        guarantee: Statement | None = None,
        max_loss: Sequence[float] | None = None,
        confidence: float | None = None,
        max_empty: float | None = None,
        strata: str | None = None,
        tau: float | None = None,
    ) -> Self:
        """Complete what the command line leaves open (docs/thresholds.md).

        Each parameter is the option of that name, None where it is not given: max_loss every loss, the one in force
        first; strata with its prefix, as in metadata.FIELD. Without any of them the rule is the papers'; a limit, a
        guarantee or another policy asks for a certified cut; tau is kept as it is given.

        Raises:
            InputError: For a value that cannot be used, and for two that contradict each other.
        """
        certified = {
            "--max-loss": max_loss,
            "--confidence": confidence,
            "--guarantee": guarantee,
            "--max-empty": max_empty,
            "--strata": strata,
            f"--policy {policy}": None if policy in {None, "similarity"} else policy,
        }
        given = [name for name, value in certified.items() if value is not None]
        if tau is not None or method == "fixed":
            limits = [name for name in given if not name.startswith("--policy")]
            return cls._fixed(method, policy, metric, tau, limits)
        if method is None:
            method = "risk-control" if given else "bootstrap"
        elif method == "bootstrap" and given:
            raise InputError(
                f"{given[0]}: the method bootstrap follows the papers and certifies nothing; leave one of the two out"
            )
        if guarantee is not None and method == "non-inferiority":
            raise InputError("--guarantee: only the method risk-control takes it; leave it out with non-inferiority")
        if strata is not None and not (strata.startswith(_METADATA) and strata != _METADATA):
            named = strata.removeprefix(_METADATA) or "FIELD"
            raise InputError(f"--strata {strata}: give a field of the documents' metadata, as {_METADATA}{named}")
        losses = [MAX_LOSS] if max_loss is None else [*max_loss]
        for name, value in (*(("--max-loss", loss) for loss in losses), ("--max-empty", max_empty)):
            if value is not None and not value >= _LEAST:
                raise InputError(f"{name} {value}: {_ADVICE}")
        if len({*losses}) < len(losses):
            raise InputError(f"--max-loss {','.join(f'{loss:g}' for loss in losses)}: names one loss twice")
        return cls(
            method=method,
            policy=policy or ("similarity" if method == "bootstrap" else "auto"),
            metric=metric,
            guarantee=guarantee or "high-probability",
            max_loss=losses[0],
            confidence=CONFIDENCE if confidence is None else confidence,
            max_empty=max_empty,
            further_losses=tuple(losses[1:]),
            strata=strata and strata.removeprefix(_METADATA),
        )

    @classmethod
    def _fixed(
        cls,
        method: Method | None,
        policy: PolicyChoice | None,
        metric: Metric,
        tau: float | None,
        limits: Sequence[str],
    ) -> Self:
        """Return the rule that keeps a given threshold.

        Args:
            limits: Names of the options given that ask for a guarantee.

        Raises:
            InputError: For options that contradict each other, and where one is missing.
        """
        if tau is None or policy is None or policy == "auto":
            given = "--method fixed" if tau is None else f"--tau {tau:g}"
            raise InputError(
                f"{given}: needs both --tau and --policy similarity, relative or probability, which says what is "
                "compared with it"
            )
        if method not in {None, "fixed"}:
            raise InputError(f"--tau {tau:g}: --method {method} chooses a threshold; leave one of the two out")
        if limits:
            raise InputError(f"--tau {tau:g}: nothing is certified of a threshold that is given; leave {limits[0]} out")
        if abs(tau) > _MAX_FLOAT32:
            raise InputError(f"--tau {tau:g}: is beyond float32, in which it is compared; give a smaller number")
        return cls(method="fixed", policy=policy, metric=metric, tau=tau)


@dataclass(frozen=True)
class InheritedRule(ThresholdRule):
    """A threshold that an earlier release has.

    The queries are divided as they were there, so that those that are held out are the same where the queries are.
    """

    chosen_by: Method = Field(default="fixed", description="method that chose the threshold")

    @property
    def divides_by_document(self) -> bool:
        """Whether whole documents were held out in that release."""
        return self.chosen_by != "bootstrap"


@dataclass(frozen=True)
class AbstentionRule(Options):
    """Limits on both errors of refusing queries as a whole: β on answers to unanswerable queries, γ on refusals.

    Both limits hold together with the confidence. Constructors raise InputError for values out of bounds.
    """

    max_answered: Annotated[Share, Advice("give a share of the unanswerable queries above 0 and below 1")] = Field(
        description="share of unanswerable queries that may get a result: refuses whole queries, before any cut; "
        "--max-empty then limits the share of answerable queries refused, which is otherwise unlimited"
    )
    max_empty: Annotated[Share | None, Advice("give a share of the answerable queries above 0 and below 1")] = Field(
        default=None, description="share of answerable queries that may be refused"
    )
    confidence: Confidence = Field(default=CONFIDENCE, description="probability that both limits hold")

    @property
    def refusal_limit(self) -> float:
        """γ, or its default where the user gives no limit."""
        return MAX_EMPTY if self.max_empty is None else self.max_empty

    @property
    def confidence_per_limit(self) -> float:
        """Confidence of each of the two limits by itself: each gets half of the error (Bonferroni)."""
        return 1 - (1 - self.confidence) / 2

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> tuple[Self | None, dict[str, Any]]:
        """Return the rule that options of the command line ask for, and the options left for the threshold's rule.

        Args:
            options: Those given, by name with underscores. Without max_answered there is no rule, and max_empty limits
                what the cut leaves empty. With it max_empty limits refusals and says nothing of the cut, which may be
                any; nor does a confidence alone ask for a certified cut.
        """
        if options.get("max_answered") is None:
            return None, {name: value for name, value in options.items() if name != "max_answered"}
        own = {name: options[name] for name in cls.fields() if name in options}
        certified = (
            bool({"guarantee", "max_loss", "strata"} & {*options})
            or options.get("method") not in {None, "bootstrap"}
            or options.get("policy") not in {None, "similarity"}
        )
        taken = {"max_answered", "max_empty"} | (set() if certified else {"confidence"})
        return cls(**own), {name: value for name, value in options.items() if name not in taken}

    def check(self, dataset: Dataset) -> None:
        """Raise InputError where the data set has no unanswerable queries, so that nothing can be certified.

        Args:
            dataset: The data set that is calibrated on.
        """
        if not dataset.unanswerable:
            raise InputError(
                f"--max-answered {self.max_answered:g}: the split {dataset.split} has no unanswerable query, so "
                "there is nothing to measure it on; label some, each with a score of 0 for a document that does not "
                "answer it, or leave the option out"
            )
