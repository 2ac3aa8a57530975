"""What an upgrade of a retriever changes: two releases of its runs, measured on the same questions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from taugate.calibration.comparison.decision import ClauseVerdict, evaluate_rule, measured
from taugate.calibration.comparison.publish import verdict_sentence
from taugate.calibration.comparison.rule import Clause, PromotionRule
from taugate.calibration.progress import fixed
from taugate.errors import InputError
from taugate.policy.policy import POLICIES
from taugate.release.layout import REFERENCE
from taugate.release.manifest import ReleaseManifest
from taugate.release.outcome_records import PolicyRecord
from taugate.release.queries import Reference
from taugate.release.verify import is_of_run

# What the new retriever finds, what its gate loses, and what that costs, each with the default margin.
_RULE = PromotionRule((Clause("accuracy@K", "lower"), Clause("accuracy", "lower"), Clause("kept share", "higher")))


@dataclass(frozen=True)
class Upgrade:
    """A change from one retriever to another."""

    old: ReleaseManifest
    new: ReleaseManifest
    # Verdicts on the new retriever and its gate; empty if the two releases cannot be compared
    verdicts: list[ClauseVerdict]
    kept: tuple[float, float]  # mean number of results that the old and the new release keep of the K
    # Threshold of the new policy that keeps as many results as the old release; None if refusals of whole queries
    # decide as well, or the new release has no threshold
    equal_tau: float | None

    @classmethod
    def between(cls, old: Path, new: Path) -> Self | None:
        """Compare two releases by their folders; None unless both were calibrated on runs."""
        if not (is_of_run(old) and is_of_run(new)):
            return None
        before, after = measured(old.parent, old.name), measured(new.parent, new.name)
        references = Reference.load(old / REFERENCE), Reference.load(new / REFERENCE)
        kept_before, kept_after = (float(reference.kept.mean()) for reference in references)
        try:
            verdicts = evaluate_rule(_RULE, before, after)
        except InputError:  # another K
            verdicts = []
        equal_tau = None
        refusals = (before.manifest.refusal, after.manifest.refusal)
        if all(refusal is None or refusal.limits is None for refusal in refusals):
            equal_tau = threshold_that_keeps(kept_before, references[1], after.manifest.policy)
        return cls(before.manifest, after.manifest, verdicts, (kept_before, kept_after), equal_tau)

    def sentences(self) -> list[str]:
        """Say what the upgrade changes, a line each."""
        lines = [verdict_sentence(verdict) for verdict in self.verdicts]
        old, new = self.old.policy, self.new.policy
        if self.equal_tau is not None and old.tau is not None and new.tau is not None:
            lines.append(
                f"old {_threshold(old, old.tau)} keeps {self.kept[0]:.2f} of {old.k} results, as new "
                f"{_threshold(new, self.equal_tau)} does; the new release has τ {fixed(new.tau)}, which keeps "
                f"{self.kept[1]:.2f}"
            )
        return lines


def threshold_that_keeps(kept: float, reference: Reference, policy: PolicyRecord) -> float | None:
    """Return the threshold of a policy that keeps a mean number of results of the calibration queries.

    With equal decision scores it keeps the next larger number. None if the policy has no threshold, or the release
    lacks the relevance of its calibration queries.
    """
    score = POLICIES[policy.kind]
    if policy.tau is None or (score.needs_model and reference.relevance is None):
        return None
    decisions = np.sort(score.decide(reference.top, reference.relevance), axis=None)[::-1]
    return float(decisions[max(1, round(kept * len(reference))) - 1])


def _threshold(policy: PolicyRecord, tau: float) -> str:
    return f"τ {fixed(tau)} ({policy.kind})"
