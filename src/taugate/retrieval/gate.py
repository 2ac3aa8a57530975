"""The gate: cuts the results of another retriever by a threshold that was calibrated on a run of it.

It needs the scores of results alone: no encoder, no index and no texts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np

from taugate.errors import InputError, ReleaseError
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.policy.abstention import AnswerRule, RefusalScore
from taugate.retrieval.policy.component_signals import Components, component_means
from taugate.retrieval.policy.names import PolicyKind
from taugate.retrieval.policy.policy import POLICIES, Mask, Policy, keep_answered
from taugate.retrieval.policy.scales import SCALES
from taugate.retrieval.policy.score_relevance import ScoreRelevance
from taugate.retrieval.release.decisions import ModelsFolder
from taugate.retrieval.release.layout import REFERENCE
from taugate.retrieval.release.manifest import RunManifest
from taugate.retrieval.release.query_arrays import Reference
from taugate.retrieval.release.signature import TrustedKeys
from taugate.retrieval.release.verify import check_optional_files, verify
from taugate.retrieval.vectors.similarity import Float32

# Far more than any retriever lists, and few enough to check in milliseconds.
MAX_RESULTS = 10_000
MAX_SCORES = 1000  # further scores of a result
GateReason = Literal["no_results", "all_below_threshold", "unanswerable"]
_MAX_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class ScoredResult:
    """A result of the retriever.

    Attributes:
        id: Id of the document.
        score: Its score, on the scale that was calibrated.
        scores: Further scores by name; None for a missing one, or for all.
    """

    id: str
    score: float
    scores: Mapping[str, float | None] | None

    def component(self, name: str) -> float:
        """Return a further score, NaN if it is missing."""
        value = (self.scores or {}).get(name)
        return math.nan if value is None else value


@dataclass(frozen=True, slots=True)
class KeptResult:
    """A result that is kept.

    Attributes:
        id: Id of the document.
        rank: Rank by score before the cut, from 1.
        score: Its score, as it was given.
        relevance: Probability that it is relevant; None if the release has no model of it.
    """

    id: str
    rank: int
    score: float
    relevance: float | None


@dataclass(frozen=True, slots=True)
class GateReply:
    """What the gate keeps of a query's results.

    Attributes:
        results: The kept results, best first.
        considered: Number of results that were compared with the threshold.
        dropped: Number of these that are not kept.
        best_score: Score of the best result, as it was given; None without a result.
        threshold: τ; None if the release has none. For distances it is negative.
        policy: What is compared with τ.
        calibrated: Whether the certificate of the threshold covers these results.
        why_not: Why it does not; None if it does.
        reason: Why nothing is kept; None if any result is.
        refuses: Whether the release has a rule that refuses queries.
        refusal: Score of the query as a whole and the threshold ρ; None if no rule refuses queries.
        top: (K,) float32 scores of the first K results; None with fewer.
        uncut_kept: Number of these that the policy keeps.
        component_means: (C,) float32 mean scores of the components among them; None if the reference has none.
    """

    results: list[KeptResult]
    considered: int
    dropped: int
    best_score: float | None
    threshold: float | None
    policy: PolicyKind
    calibrated: bool
    why_not: str | None
    reason: GateReason | None
    refuses: bool
    refusal: RefusalScore | None
    top: Float32 | None
    uncut_kept: int
    component_means: Float32 | None = None


@dataclass(frozen=True)
class Gate:
    """Cuts results by the policy of a release that was calibrated on a run. `cut` may be called by several threads.

    Attributes:
        manifest: Manifest of the release.
        policy: The policy.
        reference: Scores of the calibration queries.
        relevance: Model of relevance; None if the release has none.
        abstention: Rule that refuses queries; None if none is refused.
    """

    manifest: RunManifest
    policy: Policy
    reference: Reference
    relevance: ScoreRelevance | None
    abstention: AnswerRule | None

    @classmethod
    def load(cls, release: Path, trusted: TrustedKeys | None = None) -> Self:
        """Verify and open a release.

        Args:
            release: Folder of the release.
            trusted: Keys of which one must have signed the release; None requires no signature.

        Raises:
            ReleaseError: If the release is not as it was written, or was not calibrated on a run.
        """
        manifest = verify(release, trusted)
        if not isinstance(manifest, RunManifest):
            raise ReleaseError(
                f"{release}: has a corpus, so a service searches it; name a release of `taugate calibrate-run`"
            )
        check_optional_files(release, manifest)
        record, components = manifest.policy, tuple(manifest.retriever.components)
        relevance, rule = ModelsFolder(release).open_of_scores(manifest, components, components)
        return cls(
            manifest,
            Policy(record.kind, record.tau, record.k, record.metric, provisional=manifest.state != "calibrated"),
            Reference.load(release / REFERENCE),
            relevance,
            rule,
        )

    def cut(self, results: Sequence[ScoredResult], k: int | None = None) -> GateReply:
        """Keep the results of a query that pass.

        Args:
            results: Results of the retriever, best first.
            k: How many of them are considered; None for the K of the calibration.

        Raises:
            InputError: If there are too many results, an id is repeated, or a score is not a finite number.
        """
        given = check_results(results)
        considered = self.policy.k if k is None else k
        sign = SCALES[self.manifest.retriever.scores].sign
        scores = np.array([sign * result.score for result in given], dtype=np.float32)
        ordered = not (scores[1:] > scores[:-1]).any()
        order = np.argsort(-scores, kind="stable")[: max(considered, self.policy.k)]
        given, scores = [given[place] for place in order.tolist()], scores[None, order]
        if not given:
            return self._nothing()
        components = {
            name: np.array([[result.component(name) for result in given]], dtype=np.float32)
            for name in self.manifest.retriever.components
        }
        relevance = None if self.relevance is None else self.relevance.estimate(scores, components)
        decisions = POLICIES[self.policy.kind].decide(scores, relevance)
        refusal, answered = self._refusal(scores, components)
        passing = keep_answered(decisions[:, :considered].copy(), self.policy.threshold, answered)[0]
        kept = np.flatnonzero(passing).tolist()
        k_results = scores[0, : self.policy.k]
        why_not = self._why_not(considered, k_results, components, ordered=ordered)
        means = None if self.reference.components is None else component_means(components, self.policy.k)[0]
        return GateReply(
            results=[
                KeptResult(
                    given[place].id,
                    place + 1,
                    given[place].score,
                    None if relevance is None else float(relevance[0, place]),
                )
                for place in kept
            ],
            considered=len(passing),
            dropped=len(passing) - len(kept),
            best_score=given[0].score,
            threshold=self._threshold,
            policy=self.policy.kind,
            calibrated=why_not is None,
            why_not=why_not,
            reason=_reason(kept, answered),
            refuses=self.abstention is not None,
            refusal=refusal,
            top=k_results if len(k_results) == self.policy.k else None,
            uncut_kept=int(keep_answered(decisions[:, : self.policy.k].copy(), self.policy.threshold, answered).sum()),
            component_means=means,
        )

    @property
    def _threshold(self) -> float | None:
        threshold = self.policy.threshold
        return None if threshold is None else float(threshold)

    def _nothing(self) -> GateReply:
        """Return the reply to a query without results."""
        policy, refuses = self.policy.kind, self.abstention is not None
        return GateReply(
            [], 0, 0, None, self._threshold, policy, False, "fewer_than_k", "no_results", refuses, None, None, 0
        )

    def _refusal(self, scores: Float32, components: Components) -> tuple[RefusalScore | None, Mask | None]:
        """Return the score of the query as a whole, and whether it is answered, (1,) bool; None without a rule."""
        if self.abstention is None:
            return None, None
        positions = np.arange(scores.shape[1])[None]
        vectors, top = np.empty((1, 0), dtype=np.float32), TopK(scores, positions)
        (refusal,) = self.abstention.decide([""], vectors, top, components)
        return refusal, np.array([refusal.score >= refusal.rho])

    def _why_not(
        self, considered: int, scores: Float32, components: Mapping[str, Float32], *, ordered: bool
    ) -> str | None:
        """Return the first reason why the calibration does not cover the first K results; None if it does."""
        low, high = self.reference.top.min(), self.reference.top.max()
        missing = (name for name, values in components.items() if np.isnan(values[0, : self.policy.k]).all())
        reasons = {
            "no_threshold": self.policy.tau is None,
            self.manifest.state: self.policy.provisional,
            "fewer_than_k": len(scores) < self.policy.k,
            "not_sorted": not ordered,
            "other_k": not self.policy.covers(considered),
            **{f"missing_score:{name}": True for name in missing},
            "outside_calibrated_range": scores[0] > high or scores[-1] < low,
        }
        return next((reason for reason, applies in reasons.items() if applies), None)


def _reason(kept: Sequence[int], answered: Mask | None) -> GateReason | None:
    """Return why nothing is kept; None if any result is."""
    if kept:
        return None
    return "all_below_threshold" if answered is None or answered[0] else "unanswerable"


def check_results(results: Sequence[ScoredResult]) -> Sequence[ScoredResult]:
    """Return results that can be cut; raises InputError at the first fault."""
    if len(results) > MAX_RESULTS:
        raise InputError(f"results: {len(results):,} are over {MAX_RESULTS:,}; send the best ones")
    seen: set[str] = set()
    for place, result in enumerate(results):
        if result.id in seen:
            raise InputError(f"results.{place}.id: {result.id[:200]!r} is listed twice; send every document once")
        seen.add(result.id)
        if not abs(result.score) <= _MAX_FLOAT32:
            raise _not_finite(f"{place}.score", result.score)
        for name, value in (result.scores or {}).items():
            if value is not None and not abs(value) <= _MAX_FLOAT32:
                raise _not_finite(f"{place}.scores.{name}", value)
    return results


def _not_finite(name: str, value: float) -> InputError:
    return InputError(f"results.{name}: {value} is not a finite number; correct it, or leave it out")
