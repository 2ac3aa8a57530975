"""The gate: cuts the results of another retriever by a threshold that was calibrated on a run of it.

It needs the scores of results alone: no encoder, no index and no texts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import repeat
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from taugate.errors import InputError, ReleaseError
from taugate.policy.abstention import AnswerRule
from taugate.policy.arrays import Float32
from taugate.policy.policy import Policy
from taugate.policy.score_relevance import SCALES, ScoreRelevance, component_means
from taugate.release.layout import REFERENCE
from taugate.release.manifest import RunManifest
from taugate.release.queries import Reference
from taugate.release.verify import TrustedKeys, check_optional_files, verify
from taugate.retrieval.cut import cut
from taugate.retrieval.folders import ModelsFolder
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.query import Answer, NotComparable, Query

# Far more than any retriever lists, and few enough to check in milliseconds.
MAX_RESULTS = 10_000
MAX_SCORES = 1000  # further scores of a result
_MAX_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class ScoredResult:
    """A result of the retriever."""

    id: str
    score: float
    scores: Mapping[str, float | None] | None  # further scores by name; None for a missing one, or for all

    def component(self, name: str) -> float:
        """Return a further score, NaN if it is missing."""
        value = (self.scores or {}).get(name)
        return math.nan if value is None else value


class KeptResult(NamedTuple):
    """A result that is kept."""

    id: str
    rank: int  # rank by score before the cut, from 1
    score: float
    relevance: float | None  # probability that it is relevant; None if the release has no model of it


@dataclass(frozen=True, slots=True)
class GateReply(Answer):
    """What the gate keeps of a query's results; the scores of distances are negative, except in `results`."""

    results: list[KeptResult] = field(default_factory=list)
    why_not: str | None = None  # why the certificate of the threshold does not cover these results; None if it does
    refuses: bool = False  # whether the release has a rule that refuses queries
    # (C,) float32 mean scores of the components among the first K; None if the reference has none
    component_means: Float32 | None = None

    @property
    def dropped(self) -> int:
        """Number of results below the threshold."""
        return self.considered - len(self.results)


@dataclass(frozen=True)
class Gate:
    """Cuts results by the policy of a release that was calibrated on a run. `cut` may be called by several threads."""

    manifest: RunManifest
    policy: Policy
    reference: Reference  # scores of the calibration queries
    relevance: ScoreRelevance | None  # model of relevance; None if the release has none
    abstention: AnswerRule | None  # rule that refuses queries; None if none is refused

    @classmethod
    def load(cls, release: Path, trusted: TrustedKeys | None = None) -> Self:
        """Verify and open a release."""
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
        """Keep the results of a query that pass; `results`: results of the retriever, best first."""
        listed, policy = check_results(results), self.policy
        query = Query("", policy.k if k is None else k)
        sign = SCALES[self.manifest.retriever.scores].sign
        scores = np.array([sign * result.score for result in listed], dtype=np.float32)
        ordered = not (scores[1:] > scores[:-1]).any()
        order = np.argsort(-scores, kind="stable")[: max(query.k, policy.k)]
        listed = [listed[place] for place in order.tolist()]
        top, complete = TopK(scores[None, order], np.arange(len(order))[None]), len(order) >= policy.k
        components = {
            name: np.array([[result.component(name) for result in listed]], dtype=np.float32)
            for name in self.manifest.retriever.components
        }
        relevance = None
        if self.relevance is not None:  # without results, there are no scores
            relevance = self.relevance.estimate(top.scores, components) if listed else top.scores
        refusals = means = None
        if self.abstention is not None and listed:
            refusals = self.abstention.decide([""], np.empty((1, 0), dtype=np.float32), top, components)
        considered = min(query.k, len(listed))
        other = [] if considered == policy.k else [NotComparable.K if complete else NotComparable.FEWER_RESULTS]
        (answer,) = cut([query], top, policy, relevance, refusals, lambda _: other)
        why_not: str | None = "fewer_than_k"
        if listed:
            why_not = self._why_not(query.k, top.scores[0, : policy.k], components, ordered=ordered)
            if self.reference.components is not None:
                means = component_means(components, policy.k)[0]
        parts = {part.name: getattr(answer, part.name) for part in fields(answer)} | {
            "best_score": listed[0].score if listed else None,
            "calibrated": why_not is None,
            "reason": answer.reason if listed else "no_results",
        }
        probabilities = repeat(None) if answer.relevance is None else answer.relevance.tolist()
        kept = [
            KeptResult(listed[position].id, position + 1, listed[position].score, probability)
            for position, probability in zip(answer.positions.tolist(), probabilities, strict=False)
        ]
        return GateReply(
            **parts, results=kept, why_not=why_not, refuses=self.abstention is not None, component_means=means
        )

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
