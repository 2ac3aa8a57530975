"""Parts of an earlier release that a new release reuses instead of fitting and choosing them again."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from taugate.policy.abstention import AnswerRule
from taugate.policy.relevance import Relevance
from taugate.policy.score_relevance import ScoreRelevance
from taugate.release.evidence import RelevanceRecord
from taugate.release.layout import RELEVANCE
from taugate.release.manifest import Manifest
from taugate.release.names import Method
from taugate.release.outcome_records import PolicyRecord
from taugate.release.refusal_records import RefusalRecord
from taugate.release.verify import verify
from taugate.retrieval.reader import Release
from taugate.retrieval.rerank.stage import SecondStageRule
from taugate.retrieval.retriever import Retriever


@dataclass(frozen=True)
class Inherited:
    """Reused parts of an earlier release."""

    # Model of relevance, whose weights do not change, None if the release has none. Of a second stage, it is a
    # model of scores.
    relevance: Relevance | ScoreRelevance | None
    relevance_record: RelevanceRecord | None  # record of the model, None if the release has none
    chosen_by: Method
    policy: PolicyRecord | None = None  # the policy, None if only the model is reused
    # The rule by which queries are refused, with its record; None if there is none
    refusal: tuple[AnswerRule, RefusalRecord] | None = None

    @property
    def score_relevance(self) -> ScoreRelevance | None:
        """The model, if it reads scores alone."""
        return self.relevance if isinstance(self.relevance, ScoreRelevance) else None

    @property
    def refuses_by_default(self) -> bool:
        """Whether it has a default ρ."""
        return self.refusal is not None and self.refusal[1].is_default

    @classmethod
    def everything(cls, release: Release) -> Self:
        """Reuse the model, the policy and the refusals of an opened release; of two stages, of the second."""
        second = release.retriever.second
        return cls._of(release.manifest, release.retriever if second is None else second.rule)

    @classmethod
    def first_stage(cls, release: Release) -> Self:
        """Reuse the same of the first stage alone of an opened release with two stages."""
        return cls._of(release.manifest.first_stage, release.retriever)

    @classmethod
    def _of(cls, manifest: Manifest, rule: Retriever | SecondStageRule) -> Self:
        refusal = None
        if rule.abstention is not None and manifest.refusal is not None:
            refusal = (rule.abstention, manifest.refusal)
        policy = manifest.policy
        return cls(rule.relevance, manifest.relevance, policy.method, policy, refusal)

    @classmethod
    def model_of(cls, release: Path, encoder_sha256: str, k: int) -> Self | None:
        """Reuse only the model of relevance.

        Args:
            encoder_sha256: Digest of the float32 encoder of the new release.

        Returns:
            None if the release has another encoder or another K, or none, or a second stage, so that its model does not
            fit.
        """
        manifest = verify(release).searchable
        if manifest is None or manifest.second_stage is not None:
            return None
        encoder = manifest.float32_encoder or manifest.answering
        if (encoder.sha256, manifest.policy.k) != (encoder_sha256, k):
            return None
        return cls(_relevance(release, manifest), manifest.relevance, manifest.policy.method)


def _relevance(release: Path, manifest: Manifest) -> Relevance | None:
    if manifest.relevance is None:
        return None
    dimension = manifest.encoder.dimension if manifest.projection is None else manifest.projection.dimension
    documents = manifest.index.documents if manifest.engine is None else None
    return Relevance.load(release / RELEVANCE, dimension, documents)
