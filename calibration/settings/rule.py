"""What cut is asked for: method, policy and how much may be lost, checked and completed before anything is read."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from taugate.errors import InputError
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
