"""How many unanswerable queries may be answered, and at what price; checked before anything is read."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from taugate.errors import InputError
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.policy.policy import Metric
from taugate.retrieval.release.evidence import Method, Statement

AskedPolicy = Literal["similarity", "relative", "probability", "auto"]

CONFIDENCE = 0.95  # the papers' intervals are 95 % ones (thresholds paper §2.1), and so is what is certified by default
MAX_LOSS = 0.01  # one query in a hundred: what an intended cut may cost where nobody says otherwise
_METADATA = "metadata."
_LEAST = 1e-6  # to certify less takes more than a million queries


@dataclass(frozen=True)
class Rule:
    """How the threshold is chosen.

    max_loss: δ, largest loss of the metric, and confidence: 1 − α of the statement; also: other largest losses that are
    certified beside it, all of them with that confidence together; max_empty: largest share of answerable queries that
    may be answered with nothing, None for no such limit; strata: field of the documents' metadata each of whose values
    is certified by itself.
    """

    method: Method
    policy: AskedPolicy
    metric: Metric = "accuracy"
    guarantee: Statement = "high-probability"
    max_loss: float = MAX_LOSS
    confidence: float = CONFIDENCE
    max_empty: float | None = None
    also: tuple[float, ...] = ()
    strata: str | None = None

    def each(self) -> Iterator[Self]:
        """One rule for each largest loss, the one in force first; together they err as rarely as one would.

        The error is divided among them (Bonferroni). An expected loss is no statement that errs: nothing is divided.
        """
        losses = (self.max_loss, *self.also)
        shared = self.confidence
        if self.statement == "high-probability":
            shared = 1 - (1 - self.confidence) / len(losses)
        for loss in losses:
            yield replace(self, max_loss=loss, also=(), confidence=shared)

    @property
    def statement(self) -> Statement | None:
        """The kind of guarantee that the method gives: one of risk control's two, the only one of non-inferiority."""
        return {"bootstrap": None, "non-inferiority": "high-probability", "risk-control": self.guarantee}[self.method]

    @classmethod
    def asked(  # noqa: PLR0913 (one for each option of the command line)
        cls,
        *,
        method: Method | None = None,
        policy: AskedPolicy | None = None,
        metric: Metric = "accuracy",
        guarantee: Statement | None = None,
        max_loss: Sequence[float] | None = None,
        confidence: float | None = None,
        max_empty: float | None = None,
        strata: str | None = None,
    ) -> Self:
        """Complete what the command line leaves open (docs/thresholds.md).

        Nothing asked for is the papers' rule; a limit, a guarantee or another policy asks for a certified cut. Raises
        InputError for a value that cannot be used, or for two that contradict each other.
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
        if method is None:
            method = "risk-control" if given else "bootstrap"
        elif method == "bootstrap" and given:
            raise InputError(
                f"{given[0]}: the method bootstrap follows the papers and certifies nothing; leave one of the two out"
            )
        if guarantee is not None and method == "non-inferiority":
            raise InputError("--guarantee: belongs to the method risk-control; non-inferiority has one, its confidence")
        if strata is not None and not (strata.startswith(_METADATA) and strata != _METADATA):
            named = strata.removeprefix(_METADATA) or "FIELD"
            raise InputError(f"--strata {strata}: give a field of the documents' metadata, as {_METADATA}{named}")
        losses = [MAX_LOSS] if max_loss is None else [*max_loss]
        for name, value in (*(("--max-loss", loss) for loss in losses), ("--max-empty", max_empty)):
            if value is not None and not (math.isfinite(value) and _LEAST <= value < 1):
                raise InputError(
                    f"{name} {value}: give a share of the queries above 0 and below 1, not less than {_LEAST:g}"
                )
        if len({*losses}) < len(losses):
            raise InputError(f"--max-loss {','.join(f'{loss:g}' for loss in losses)}: names one loss twice")
        if confidence is not None and not (math.isfinite(confidence) and 0.5 <= confidence < 1):
            raise InputError(f"--confidence {confidence}: give a probability from 0.5 and below 1; nothing is certain")
        return cls(
            method=method,
            policy=policy or ("similarity" if method == "bootstrap" else "auto"),
            metric=metric,
            guarantee=guarantee or "high-probability",
            max_loss=losses[0],
            also=tuple(losses[1:]),
            strata=strata and strata.removeprefix(_METADATA),
            confidence=CONFIDENCE if confidence is None else confidence,
            max_empty=max_empty,
        )


# γ where no --max-empty is given: the share of answerable queries refused at which scores are compared, and what is
# refused at most where the limit on answers cannot be certified. One question in ten sent away is what a search that
# people rely on can cost at most; docs/benchmarks/abstention.md draws the other error for values from .01 to .5.
MAX_EMPTY = 0.10


@dataclass(frozen=True)
class AbstentionRule:
    """Limits on both errors of refusing queries as a whole.

    max_answered: β, largest share of unanswerable queries that may be answered; max_empty: γ, largest share of
    answerable queries that may be refused, None where nothing was asked of it; confidence: that both hold together.

    Raises InputError for a value that cannot be used.
    """

    max_answered: float
    max_empty: float | None = None
    confidence: float = CONFIDENCE

    def __post_init__(self) -> None:
        if not (math.isfinite(self.max_answered) and 0 < self.max_answered < 1):
            raise InputError(
                f"--max-answered {self.max_answered}: give a share of the unanswerable queries above 0 and below 1"
            )
        if self.max_empty is not None and not (math.isfinite(self.max_empty) and 0 < self.max_empty < 1):
            raise InputError(
                f"--max-empty {self.max_empty}: give a share of the answerable queries above 0 and below 1"
            )
        if not (math.isfinite(self.confidence) and 0.5 <= self.confidence < 1):
            raise InputError(
                f"--confidence {self.confidence}: give a probability from 0.5 and below 1; nothing is certain"
            )

    @property
    def most_refused(self) -> float:
        """γ, asked for or not."""
        return MAX_EMPTY if self.max_empty is None else self.max_empty

    @property
    def each(self) -> float:
        """Confidence of each of the two limits by itself: half of the error is each one's (Bonferroni)."""
        return 1 - (1 - self.confidence) / 2

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> tuple[Self | None, dict[str, Any]]:
        """The rule that the options ask for, with those that are left for the cut.

        Without max_answered there is no rule, and max_empty limits what the cut leaves empty. With it max_empty speaks
        of refusals, and says nothing of the cut, which may be any; nor does a confidence alone ask for a certified one.
        """
        if options.get("max_answered") is None:
            return None, {name: value for name, value in options.items() if name != "max_answered"}
        own = {name: options[name] for name in ("max_answered", "max_empty", "confidence") if name in options}
        certified = (
            bool({"guarantee", "max_loss", "strata"} & {*options})
            or options.get("method") not in {None, "bootstrap"}
            or options.get("policy") not in {None, "similarity"}
        )
        left = {"max_answered", "max_empty"} | (set() if certified else {"confidence"})
        return cls(**own), {name: value for name, value in options.items() if name not in left}

    def check(self, dataset: Dataset) -> None:
        """Raise InputError where there is nothing to certify it on."""
        if not dataset.unanswerable:
            raise InputError(
                f"--max-answered {self.max_answered:g}: the split {dataset.split} has no unanswerable query, and what "
                "is never asked cannot be limited; label some, each with a score of 0 for a document that does not "
                "answer it, or leave the option out"
            )
