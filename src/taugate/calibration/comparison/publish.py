"""Publishes a new release: signs it, promotes it if requested and if nothing is against it, and says the outcome."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from taugate.calibration.comparison.rule import MARGIN, PromotionRule
from taugate.calibration.progress import fixed
from taugate.errors import EngineUnavailable, NotPromoted, TaugateError
from taugate.evidence.abstention.words import limits_remedy
from taugate.evidence.rules import ThresholdRule
from taugate.registry import promotion
from taugate.registry.promotion import SatisfiedRule
from taugate.registry.writer import sign
from taugate.release.manifest import ReleaseManifest
from taugate.release.verify import TrustedKeys, verify
from taugate.storage.files import Json

if TYPE_CHECKING:  # comparing needs the extra `calibration`, and signing `cryptography`; not every command has them
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from taugate.calibration.comparison.decision import ClauseVerdict, PromotionDecision


# Exit codes: too few labels for a safe threshold; not promoted for another reason; no threshold can be certified with
# these documents, however many queries are labelled.
NO_CUT, NOT_PROMOTED, IMPOSSIBLE = 3, 4, 5

_REASONS = {
    "first release": "no release is current, so there is nothing to compare with",
    "same content": "same content as the current release, nothing to promote",
}
PROVISIONAL = "promotion: the current release is now provisional, because its threshold rests on too little evidence"


@dataclass(frozen=True)
class Promotion:
    """The promotion that the user requested for a new release."""

    requested: bool = True
    rule: PromotionRule | None = None  # rule that has to hold against the current release; None for no rule
    force: bool = False  # promote even if the evidence is against the release
    new_encoder: bool = False  # promote even if the encoder is not that of the current release
    key: "Ed25519PrivateKey | None" = None  # private key to sign the release with, None for no signature
    trusted: TrustedKeys | None = None  # keys of which one must have signed the release; None requires no signature

    def check(self, releases: Path, k: int) -> None:
        """Check, before any work, that the rule can compare a new release with the current one."""
        if self.rule is not None:
            from taugate.calibration.comparison.decision import check_current

            check_current(releases, k)


@dataclass(frozen=True)
class Published:
    """How publishing a release ended."""

    promoted: bool = False
    code: int = 0
    # Why the release is not promoted; None if it is, if no promotion was requested, or if the rule decided
    message: str | None = None
    reason: str | None = None
    decision: "PromotionDecision | None" = None  # the comparison under the promotion rule, if there was one
    provisional: bool = False

    @property
    def sentences(self) -> str | None:
        """The message as sentences, which say that the release was written."""
        if self.message is None or self.code != NOT_PROMOTED:
            return self.message
        return f"{self.message.removesuffix('.')}. The release was written but not promoted."

    @classmethod
    def refused(cls, message: str, reason: str | None = None) -> Self:
        """Return the end without a promotion, because the evidence is against the release."""
        return cls(code=NOT_PROMOTED, message=message, reason=reason)


def publish(
    release: Path,
    requested: Promotion,
    against: Published | None = None,
    satisfied: SatisfiedRule | None = None,
    trial: Callable[[], str | None] | None = None,
    *,
    report: Callable[[str], object] = lambda line: None,
) -> Published:
    """Sign a release, and promote it if that is requested and its evidence, the rule and the trial allow it.

    Args:
        against: The end without a promotion, if the command itself has a reason against it.
        satisfied: What the command has shown, for the history; a promotion rule replaces it.
        trial: Tries the release once nothing else is against it; returns an objection or None.
        report: Prints a line before an error that leaves a new release without a promotion.

    Raises:
        ReleaseError: If the release does not verify, or another command made a release current.
        InputError: If the rule cannot compare the two releases.
        OSError: If the directory cannot be written.
    """
    if requested.key is not None:
        sign(release, requested.key)
    if against is not None or not requested.requested:
        return against or Published()
    try:
        return _promote(release, requested, satisfied, trial)
    except NotPromoted as error:
        return Published.refused(str(error), error.rule)
    except EngineUnavailable as error:
        raise EngineUnavailable(
            f"{error}; {release.name} was written but not promoted: run taugate release promote {release.name} "
            f"--releases {release.parent}"
        ) from error
    except (TaugateError, OSError):
        report(f"warning: {release} is written but not promoted:")
        raise


def _promote(
    release: Path, requested: Promotion, satisfied: SatisfiedRule | None, trial: Callable[[], str | None] | None
) -> Published:
    decision = None
    releases, name = release.parent, release.name
    if requested.rule is not None:
        from taugate.calibration.comparison.decision import decide_promotion

        decision = decide_promotion(releases, name, requested.rule, requested.trusted)
        if not decision.promoted:
            return Published(code=0 if decision.holds else NOT_PROMOTED, message=decision.objection, decision=decision)
        satisfied = SatisfiedRule(str(decision.judged), decision.current)
    if trial is not None:
        promotion.check_evidence(releases, verify(release, requested.trusted))
        if (objection := trial()) is not None:
            return Published(code=NOT_PROMOTED, message=objection, decision=decision)
    manifest = promotion.promote(
        releases, name, requested.trusted, force=requested.force, new_encoder=requested.new_encoder, rule=satisfied
    )
    return Published(promoted=True, decision=decision, provisional=manifest.state == "provisional")


def unfit(manifest: ReleaseManifest, rule: ThresholdRule) -> Published | None:
    """Explain why a release cannot be promoted, whichever release is current; None if it can."""
    refusal = manifest.refusal
    uncertified = None if refusal is None or refusal.certified else refusal.limits
    advice = None if uncertified is None else limits_remedy(uncertified, manifest.data)
    if manifest.policy.tau is None:
        from taugate.calibration.threshold.shortage import remedy  # needs the extra `calibration`

        policy = manifest.policy
        ways = remedy(
            manifest.data.answerable,
            manifest.bootstrap.holdout,
            rule,
            policy.certificates,
            policy.shortage,
            refuses=refusal is not None and refusal.is_default,
        )
        nothing = policy.guarantee.replace("Nothing is certified", "Nothing is certified, and nothing was promoted", 1)
        message = f"{nothing} {ways}"
        possible = policy.shortage is None or policy.shortage.min_loss is None
        return Published(code=NO_CUT if possible else IMPOSSIBLE, message=message, reason="no cut")
    return None if advice is None else Published.refused(advice, "abstention")


def report(decision: "PromotionDecision", say: Callable[[str], object]) -> int:
    """Report for each clause whether it holds, and what to do next; returns the exit code."""
    for line in _lines(decision):
        say(line)
    if decision.holds:
        return 0
    say(
        f"taugate: {decision.name}: not promoted, because {decision.objection}. "
        f"`taugate release diff {decision.name}` shows what changed; to promote it anyway, run "
        f"`taugate release promote {decision.name}` without a rule"
    )
    return NOT_PROMOTED


def as_json(rule: PromotionRule, ending: Published) -> dict[str, Json]:
    """Return the object `promotion` of `taugate calibrate --json`.

    Args:
        ending: How publishing ended; without a decision, the release could not be promoted under any rule.
    """
    decision = ending.decision
    if decision is None:
        return {"rule": str(rule), "current": None, "promoted": False, "reason": ending.reason, "clauses": []}
    return {
        "rule": str(decision.judged),
        "current": decision.current,
        "promoted": decision.promoted,
        "reason": decision.reason,
        "clauses": [_clause(verdict) for verdict in decision.verdicts],
    }


def _lines(decision: "PromotionDecision") -> list[str]:
    """Return one line per clause, after its warnings."""
    lines = [
        f"warning: {name} was calibrated with --holdout 0, so its figures come from the queries that chose its "
        "threshold"
        for name in decision.optimistic
    ]
    if decision.reason is not None:
        lines.append(f"promotion: {_REASONS[decision.reason]}")
    for verdict in decision.verdicts:
        lines += [_widened(verdict)] if verdict.widened else []
        lines.append(f"promotion: {verdict_sentence(verdict)}")
    return [*lines, PROVISIONAL] if decision.promoted and decision.provisional else lines


def verdict_sentence(verdict: "ClauseVerdict") -> str:
    """Return the verdict on a clause, with its numbers, as a sentence without a period."""
    clause, (before, after) = verdict.clause, verdict.queries
    queries = f"{after:,} queries" if verdict.test == "paired" else f"{before:,} and {after:,} queries"
    if verdict.unit == "document":
        queries += f" about {verdict.documents:,} documents"
    line = (
        f"{clause}: {verdict.finding}, {fixed(verdict.new)} after {fixed(verdict.current)}, "
        f"{'the average document ' if verdict.unit == 'document' else ''}{_limit(verdict)} "
        f"({verdict.confidence:.0%} confidence; {queries}, {verdict.test})"
    )
    if verdict.statement == "document and query":
        line += "; the clause also holds for the average query"
    if verdict.detectable is not None:
        line += f"; these queries cannot exclude a difference below {fixed(verdict.detectable)}"
    if verdict.needed is not None:
        line += f"; about {verdict.needed:,} queries like these would show it"
    elif verdict.finding == "not shown" and verdict.test == "paired":
        line += "; more queries like these would not show it"
    return line


def _limit(verdict: "ClauseVerdict") -> str:
    way = verdict.clause.way
    if verdict.upper >= 0:
        return f"{way} by at most {fixed(verdict.upper)}"
    return f"{'higher' if way == 'lower' else 'lower'} by at least {fixed(-verdict.upper)}"


def _widened(verdict: "ClauseVerdict") -> str:
    clause = verdict.clause
    return (
        f'warning: the margin of "{clause.quantity} not {clause.way}" is {clause.margin:g} instead of {MARGIN:g}: '
        f"{verdict.queries[1]:,} queries cannot support a smaller one. Label more, or name a margin in the rule"
    )


def _clause(verdict: "ClauseVerdict") -> dict[str, Json]:
    return {
        "quantity": verdict.clause.quantity,
        "not": verdict.clause.way,
        "margin": verdict.clause.margin,
        "widened": verdict.widened,
        "current": verdict.current,
        "new": verdict.new,
        "worse_by_at_most": verdict.upper,
        "confidence": verdict.confidence,
        "finding": verdict.finding,
        "test": verdict.test,
        "unit": verdict.unit,
        "statement": verdict.statement,
        "could_have_shown": verdict.detectable,
        "queries_needed": verdict.needed,
        "queries": list(verdict.queries),
    }
